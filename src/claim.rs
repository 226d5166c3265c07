//! What is claimed: the operations that a round puts to the nodes, and what their answers say, for each
//! kind of thing that can be held. Above `node/` they are known here alone.

use std::{sync::Arc, time::Duration};

use crate::{
    ballot::answers::Said,
    name::Name,
    node::{Operation, Reply, mutex},
    owner::Entry,
};

pub(crate) use mutex::Place;

/// Something that can be held.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// A lock that one holds at a time.
    Mutex(Name),
}

/// What the nodes are asked for with an acquisition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// For how long, lock-delay included.
    pub(crate) ttl: Duration,
    /// p: where the counter should at least be, in µs of the wall clock.
    pub(crate) floor: u64,
    /// The fleet's longest ttl.
    pub(crate) max_ttl: Duration,
}

impl Claim {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Mutex(name) => name,
        }
    }

    /// Takes it where it is free.
    pub(crate) fn acquire(&self, entry: &Entry, ask: Ask) -> Arc<Operation> {
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Acquire {
                name: name.clone(),
                entry: entry.clone(),
                ttl: ask.ttl,
                floor: ask.floor,
                max_ttl: ask.max_ttl,
            }),
        }
    }

    /// Takes it where it is free and nobody stands before us, or takes or keeps this place in line.
    pub(crate) fn join(&self, place: Place, ask: Ask) -> Arc<Operation> {
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Join {
                name: name.clone(),
                place,
                ttl: ask.ttl,
                floor: ask.floor,
                max_ttl: ask.max_ttl,
            }),
        }
    }

    /// Gives back a grant, and keeps the place in line. `floor`: as in [`release`](Self::release).
    pub(crate) fn give_way(&self, place: Place, floor: u64, max_ttl: Duration) -> Arc<Operation> {
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Yield {
                name: name.clone(),
                place,
                floor,
                max_ttl,
            }),
        }
    }

    /// Raises the counter to the token where it is ours. `seq`: by which request it came to us, or 0.
    pub(crate) fn raise(
        &self,
        entry: &Entry,
        seq: u64,
        token: u64,
        max_ttl: Duration,
    ) -> Arc<Operation> {
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Raise {
                name: name.clone(),
                entry: entry.clone(),
                seq,
                token,
                max_ttl,
            }),
        }
    }

    /// Prolongs it where it is ours.
    pub(crate) fn extend(&self, entry: &Entry, ttl: Duration) -> Arc<Operation> {
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Extend {
                name: name.clone(),
                entry: entry.clone(),
                ttl,
            }),
        }
    }

    /// Puts it back for its holder where nobody else has it, and brings the counter up to the token.
    pub(crate) fn repair(
        &self,
        entry: &Entry,
        ttl: Duration,
        token: u64,
        max_ttl: Duration,
    ) -> Arc<Operation> {
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Repair {
                name: name.clone(),
                entry: entry.clone(),
                ttl,
                token,
                max_ttl,
            }),
        }
    }

    /// Frees it where it is ours, and leaves its line. `floor`: p, where the counter should be for who gets it next.
    pub(crate) fn release(&self, entry: &Entry, floor: u64, max_ttl: Duration) -> Arc<Operation> {
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Release {
                name: name.clone(),
                entry: entry.clone(),
                floor,
                max_ttl,
            }),
        }
    }
}

/// Reads who holds what by this name.
pub(crate) fn inspect(name: Name) -> Arc<Operation> {
    Operation::new(mutex::Command::Inspect { name })
}

/// Frees what is held by this name, no matter who holds it.
/// `max_ttl`: the fleet's longest ttl.
pub(crate) fn evict(name: Name, max_ttl: Duration) -> Arc<Operation> {
    Operation::new(mutex::Command::Evict { name, max_ttl })
}

/// A node's answer to an operation of a claim.
pub(crate) fn vote_of(reply: Reply) -> Said {
    let Reply::Mutex(reply) = reply else {
        return Said::Else;
    };
    match reply {
        mutex::Reply::Granted(counter) => Said::Granted(counter),
        mutex::Reply::Held {
            remaining,
            counter,
            holder,
            ticket,
        } => Said::Held {
            remaining,
            counter,
            holder,
            ticket,
        },
        mutex::Reply::Taken { counter, seq } => Said::Taken { counter, seq },
        mutex::Reply::InLine { rank, ahead } => Said::InLine {
            rank,
            remaining: ahead.remaining,
            holder: ahead.holder,
            ticket: ahead.ticket,
            is_reserved: ahead.is_reserved,
        },
        mutex::Reply::Yielded => Said::Yielded,
        mutex::Reply::Raised(counter) => Said::Raised(counter),
        mutex::Reply::Extended => Said::Extended,
        mutex::Reply::Lost => Said::Lost,
        mutex::Reply::Repaired(stands) => Said::Repaired(stands),
        mutex::Reply::Released(freed) => Said::Released(freed),
        mutex::Reply::ReleasedUnadmitted
        | mutex::Reply::Inspected { .. }
        | mutex::Reply::Evicted { .. } => Said::Else,
    }
}

/// Who holds what by a name, as one node answers.
#[derive(Clone, Debug, PartialEq, Eq)]
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
