//! The subject of the tests: a master, and what can be done to it besides sending requests.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    base::name::Name,
    node::{Node, request::Pool},
};

/// One master, for as long as the cases run. Nobody else uses it.
///
/// Only [`name`](Self::name), [`node`](Self::node) and [`fresh`](Self::fresh) are required. The more
/// [`powers`](Self::powers) a subject has, the more cases are run on it.
pub trait Subject {
    /// The name of the subject in failures.
    fn name(&self) -> &str;

    /// The node by which the master is reached. The cases dial it.
    fn node(&self) -> Arc<dyn Node>;

    /// Makes it a master without keys and without faults, which was never a replica. It may be another process
    /// afterwards, because the cases dial it again.
    fn fresh(&self) -> Doing<'_, ()>;

    /// The further things that can be done to it.
    fn powers(&self) -> &[Power] {
        &[]
    }

    /// Changes the master without the knowledge of its clients. Called only for changes that its
    /// [`powers`](Self::powers) include.
    fn change(&self, change: Change) -> Doing<'_, ()> {
        unreachable!("{} has no power to {change:?}", self.name())
    }

    /// Returns the content of a key of the admission. Called only with [`Power::Keys`].
    fn stands(&self, key: Key) -> Doing<'_, Option<String>> {
        unreachable!("{} has no power to read {key:?}", self.name())
    }

    /// The keys that stand there without an expiry, but those of the admission and the counters. Called only with
    /// [`Power::Rights`].
    fn lasting(&self) -> Doing<'_, Vec<String>> {
        unreachable!("{} has no power to read its keys", self.name())
    }

    /// The master's own clock, in µs since 1970. The cases compute the caps of tokens from it. The default is the
    /// system's clock.
    fn wall_us(&self) -> Doing<'_, u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
        Box::pin(async move { now })
    }
}

/// An operation that is running. It need not be `Send`.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// An ability of a subject besides answering requests.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// [`Change::Flush`].
    Flush,
    /// [`Change::Full`]. The error with which the master then refuses a write begins with `OOM`.
    Full,
    /// [`Change::Replica`]. The error with which the master then refuses a write begins with `READONLY`.
    Replica,
    /// [`Change::Put`], and [`Subject::stands`].
    Keys,
    /// [`Change::Age`], [`Change::Counter`] and [`Change::SlotCounter`].
    Counters,
    /// [`Change::Withdraw`], [`Change::NoReplicas`], and [`Subject::lasting`].
    Rights,
    /// A connection can be ended by its [`Connection::client_id`](crate::node::Connection::client_id).
    Kill,
}

/// A change to a master that no client of this library makes.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Change {
    /// The master loses all keys, and goes on.
    Flush,
    /// The master refuses writes that may need memory, or accepts them again.
    Full(bool),
    /// The master becomes a replica, or a master again.
    Replica(bool),
    /// The user of the node may not run this command any more, or may run all commands again.
    Withdraw(Option<&'static str>),
    /// The master refuses every write, as if too few replicas were there, or accepts them again.
    NoReplicas(bool),
    /// The key gets this content, or is deleted.
    Put(Key, Option<String>),
    /// The current counters were begun this long ago.
    Age(Duration),
    /// The current counter of this lock is now this.
    Counter(Name, u64),
    /// The current counter of this read-write lock is now this.
    RwlockCounter(Name, u64),
    /// The current counter of this slot is now this.
    SlotCounter(Pool, u32, u64),
}

/// A key of the admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The record of the memory.
    Boot,
    /// The content that a guard must have.
    Open,
    /// TIME in µs at the last handshake that wrote it.
    Time,
}
