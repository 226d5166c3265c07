//! What may be asked of a node about a lock, and what it may answer.

use std::{sync::Arc, time::Duration};

use crate::{
    FencingToken,
    name::Name,
    node::{fault::Fault, kinds::Guarded},
    owner::Entry,
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
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
    },
    /// Raises the counter to the token, if the lock is ours.
    Raise {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// The token.
        token: u64,
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
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
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
    },
    /// Frees the lock, if it is ours. A node that may not vote obeys it too, and says so.
    Release {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
    },
    /// Reads who holds.
    Inspect {
        /// The lock.
        name: Name,
    },
    /// Frees the lock, no matter who holds it. For a while nobody's is put back.
    Evict {
        /// The lock.
        name: Name,
        /// The fleet's: no lease is longer.
        max_ttl: Duration,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Acquired; the counter is now this.
    Granted(u64),
    /// Somebody else holds it.
    Held {
        /// For this much longer; none: without an end.
        remaining: Option<Duration>,
        /// The counter.
        counter: u64,
        /// The holder's entry; none where what stands there is not one.
        holder: Option<Arc<str>>,
    },
    /// Raised; the counter is now this.
    Raised(u64),
    /// Extended.
    Extended,
    /// The lock is not ours: to a raise or an extension.
    Lost,
    /// To a repair: whether it stands there now. If not, somebody else holds it, or it was evicted.
    Repaired(bool),
    /// To a release: whether it was ours.
    Released(bool),
    /// To a release: it stands there no more, but this memory is not admitted: what it says of the lock
    /// is no vote.
    ReleasedUnadmitted,
    /// To an inspection.
    Inspected {
        /// The holder's entry, and its remaining time.
        holder: Option<(String, Option<Duration>)>,
        /// The counter: the newest token that was given out here; 0 if none.
        counter: u64,
    },
    /// To an eviction: whether anybody held it.
    Evicted(bool),
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

impl Reply {
    pub(crate) fn credible(self) -> Result<Self, Fault> {
        let damaged = |counter: u64| counter > FencingToken::MAX;
        match self {
            Self::Granted(counter) | Self::Raised(counter) if damaged(counter) => {
                Err(Fault::Error(format!(
                    "its counter for this name is damaged: {counter} is not below 2^53"
                )))
            }
            Self::Held {
                remaining,
                counter,
                holder,
            } if damaged(counter) => Ok(Self::Held {
                remaining,
                counter: 0,
                holder,
            }),
            Self::Inspected { holder, counter } if damaged(counter) => {
                Ok(Self::Inspected { holder, counter: 0 })
            }
            reply => Ok(reply),
        }
    }
}
