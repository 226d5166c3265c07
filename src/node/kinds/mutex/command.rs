//! What may be asked of a node about a lock, and what it may answer.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{name::Name, owner::Entry},
    node::kinds::Guarded,
};

/// What may be asked.
#[derive(Clone, Debug)]
pub enum Command {
    /// Takes the lock if it is free.
    Acquire {
        /// The lock.
        name: Name,
        /// The new holder.
        entry: Entry,
        /// For how long, lock-delay included.
        ttl: Duration,
        /// p: where the counter should at least be, in µs of the wall clock.
        floor: u64,
    },
    /// Raises the counter to the token, if the lock is ours.
    Raise {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// Which of its grants, where it came through the line; 0 for any.
        seq: u64,
        /// The token.
        token: u64,
    },
    /// Prolongs the lock, if it is ours; never shortens, never re-creates.
    Extend {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// From now, lock-delay included.
        ttl: Duration,
    },
    /// Puts the lock back for a holder whom a majority still has, where nobody else holds it; brings the
    /// counter up to the token.
    Repair {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// From now, lock-delay included.
        ttl: Duration,
        /// The holder's.
        token: u64,
    },
    /// Frees the lock, if it is ours, and leaves the line. A node that may not vote obeys it too, and says so. One
    /// that may hands a free lock to the head of the line.
    Release {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// p, for who gets the lock next.
        floor: u64,
    },
    /// Takes the lock if it is free and nobody waits before us; else takes a place in line, or keeps it.
    Join {
        /// The lock.
        name: Name,
        /// The place.
        place: Place,
        /// Who would come before somebody that stands there already, or holds it, takes no place: it is answered as an
        /// `Acquire` is.
        only_last: bool,
        /// For how long, lock-delay included, if it is granted at once.
        ttl: Duration,
        /// p: where the counter should at least be, in µs of the wall clock.
        floor: u64,
    },
    /// Gives back this grant of ours, and keeps the place in line: for whoever waits before us.
    Yield {
        /// The lock.
        name: Name,
        /// The place; its `seq` is that of the grant.
        place: Place,
        /// p, for who gets the lock next.
        floor: u64,
    },
    /// Reads who holds, and who waits.
    Inspect {
        /// The lock.
        name: Name,
    },
    /// Frees the lock, no matter who holds it. For a while nobody's is put back.
    Evict {
        /// The lock.
        name: Name,
    },
}

/// One who waits, as a node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who waits; it lives for one wait.
    pub entry: Entry,
    /// 1, 2, … for each request of this wait. With the entry it names one grant.
    pub seq: u64,
    /// The order of the line, the same on every node.
    pub ticket: u64,
    /// S: for how long a hand-over is good until it is confirmed.
    pub term: Duration,
    /// How much longer than that the node keeps it.
    pub lock_delay: Duration,
    /// Who has not been heard of for so long waits no more.
    pub life: Duration,
    /// For how long a free lock is kept for who has been called.
    pub claim: Duration,
    /// Where it hears that it is its turn; empty: it asks from time to time.
    pub channel: Arc<str>,
}

impl Command {
    pub(crate) fn guarded(&self) -> Guarded {
        match self {
            Self::Release { .. } => Guarded::Answer,
            _ => Guarded::Deed,
        }
    }

    pub(crate) fn takes(&self) -> Option<&Entry> {
        match self {
            Self::Acquire { entry, .. } | Self::Repair { entry, .. } => Some(entry),
            Self::Join { place, .. } | Self::Yield { place, .. } => Some(&place.entry),
            _ => None,
        }
    }

    pub(crate) fn begins(&self) -> Option<&Entry> {
        match self {
            Self::Acquire { entry, .. } => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn frees(&self) -> Option<&Entry> {
        match self {
            Self::Release { entry, .. } => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn extends(&self) -> bool {
        matches!(self, Self::Extend { .. } | Self::Repair { .. })
    }
}
