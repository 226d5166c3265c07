//! What is tested: a master, and what can be done to it beside asking.

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
/// Only [`name`](Self::name), [`node`](Self::node) and [`fresh`](Self::fresh) are needed. The more
/// [`powers`](Self::powers) a subject has, the more cases it is put to.
pub trait Subject {
    /// Names it in failures.
    fn name(&self) -> &str;

    /// How it is reached. The cases dial it.
    fn node(&self) -> Arc<dyn Node>;

    /// Makes it a master without a key, without a fault, that was never a replica. It may be another
    /// process afterwards: the cases dial it anew.
    fn fresh(&self) -> Doing<'_, ()>;

    /// What else can be done to it.
    fn powers(&self) -> &[Power] {
        &[]
    }

    /// Changes it behind its clients' backs. Asked only for what its [`powers`](Self::powers) name.
    fn change(&self, change: Change) -> Doing<'_, ()> {
        unreachable!("{} has no power to {change:?}", self.name())
    }

    /// What stands in a key of the admission. Asked only with [`Power::Keys`].
    fn stands(&self, key: Key) -> Doing<'_, Option<String>> {
        unreachable!("{} has no power to read {key:?}", self.name())
    }

    /// The master's own clock, in µs since 1970: what a case compares its caps with. The system's, unless
    /// the subject knows better.
    fn wall_us(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Something under way. It need not be `Send`.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a subject can do beside answering.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// [`Change::Flush`].
    Flush,
    /// [`Change::Full`]. What it refuses then is an error that begins with `OOM`.
    Full,
    /// [`Change::Replica`]. What it refuses then is an error that begins with `READONLY`.
    Replica,
    /// [`Change::Put`], and [`Subject::stands`].
    Keys,
    /// [`Change::Age`], [`Change::Counter`] and [`Change::SlotCounter`].
    Counters,
    /// Its [`Connection::client_id`](crate::node::Connection::client_id) can be ended.
    Kill,
}

/// A change to a master that no client of ours makes.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Change {
    /// It loses all keys, and goes on.
    Flush,
    /// It refuses writes that may need memory, or does so no more.
    Full(bool),
    /// It is a replica from now on, or no more.
    Replica(bool),
    /// This key now says this, or is gone.
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
    /// What a guard has to say.
    Open,
    /// TIME in µs at the last handshake that wrote it.
    Time,
}
