//! What operators ask of a name.

use std::{sync::Arc, time::Duration};

use crate::{
    Vote,
    base::{name::Name, owner::Entry},
    node::{Operation, Reply, mutex, rwlock},
    protocol::ballot::answers::Evidence,
};

/// Who reads, who writes and who waits to, by a name, as one node answers.
pub(crate) use rwlock::Inspected as SeenRwlock;

/// Reads who holds the mutex of this name.
pub(crate) fn inspect(name: Name) -> Arc<Operation> {
    Operation::new(mutex::Command::Inspect { name })
}

/// Reads who has the read-write lock of this name.
pub(crate) fn inspect_rwlock(name: Name) -> Arc<Operation> {
    Operation::new(rwlock::Command::Inspect { name })
}

/// Frees the mutex of this name, no matter who holds it.
/// `max_ttl`: the fleet's longest ttl.
pub(crate) fn evict(name: Name, max_ttl: Duration) -> Arc<Operation> {
    Operation::new(mutex::Command::Evict { name, max_ttl })
}

/// The same of the read-write lock.
pub(crate) fn evict_rwlock(name: Name, max_ttl: Duration) -> Arc<Operation> {
    Operation::new(rwlock::Command::Evict { name, max_ttl })
}

/// Who holds the mutex of a name, as one node answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The holder's entry, and for how much longer; none: without an end.
    pub(crate) holder: Option<(String, Option<Duration>)>,
    /// The newest token that was given out there; 0 if none.
    pub(crate) counter: u64,
    /// Those who wait, in order, as far as they are told: entry, and for how long they have waited.
    pub(crate) line: Vec<(String, Duration)>,
    /// How many wait.
    pub(crate) waiting: u64,
}

/// A node's answer to [`inspect`].
pub(crate) fn seen(reply: Reply) -> Option<Seen> {
    match reply {
        Reply::Mutex(mutex::Reply::Inspected {
            holder,
            counter,
            line,
            waiting,
        }) => Some(Seen {
            holder,
            counter,
            line,
            waiting,
        }),
        _ => None,
    }
}

/// A node's answer to [`inspect_rwlock`].
pub(crate) fn seen_rwlock(reply: Reply) -> Option<SeenRwlock> {
    match reply {
        Reply::Rwlock(rwlock::Reply::Inspected(inspected)) => Some(inspected),
        _ => None,
    }
}

/// What an eviction found on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// Whether anybody held it.
    pub(crate) held: bool,
    /// Who did, as far as that is told.
    pub(crate) holders: Vec<Entry>,
}

impl Evidence for Evicted {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

/// A node's answer to [`evict`] or [`evict_rwlock`].
pub(crate) fn evicted(reply: Reply) -> Option<Evicted> {
    let (held, holders) = match reply {
        Reply::Mutex(mutex::Reply::Evicted { held, holder }) => {
            (held, holder.into_iter().collect())
        }
        Reply::Rwlock(rwlock::Reply::Evicted { held, holders }) => (held, holders),
        _ => return None,
    };
    let holders = holders.iter().filter_map(|text| Entry::read(text));
    Some(Evicted {
        held,
        holders: holders.collect(),
    })
}
