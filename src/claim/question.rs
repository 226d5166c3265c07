//! What operators ask of a name.

use std::{sync::Arc, time::Duration};

use crate::{
    name::Name,
    node::{Operation, Reply, mutex},
    owner::Entry,
};

/// Reads who holds what by this name.
pub(crate) fn inspect(name: Name) -> Arc<Operation> {
    Operation::new(mutex::Command::Inspect { name })
}

/// Frees what is held by this name, no matter who holds it.
/// `max_ttl`: the fleet's longest ttl.
pub(crate) fn evict(name: Name, max_ttl: Duration) -> Arc<Operation> {
    Operation::new(mutex::Command::Evict { name, max_ttl })
}

/// Who holds what by a name, as one node answers.
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

/// A node's answer to [`evict`]: whether anybody held it, and who, where that is known.
pub(crate) fn evicted(reply: &Reply) -> Option<(bool, Option<Entry>)> {
    match reply {
        Reply::Mutex(mutex::Reply::Evicted { held, holder }) => {
            Some((*held, holder.as_deref().and_then(Entry::read)))
        }
        _ => None,
    }
}
