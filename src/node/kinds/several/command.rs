//! What may be asked of a node about several locks at once, and what it may answer. They are the locks of
//! [`mutex`](crate::node::mutex), and the names are sorted, each there once.

use std::{sync::Arc, time::Duration};

use crate::{
    FencingToken,
    base::{name::Name, owner::Entry},
    node::{fault::Fault, kinds::Guarded},
};

/// What may be asked.
#[derive(Clone, Debug)]
pub enum Command {
    /// Takes all the locks if all are free, and nobody waits for one of them; else none.
    Acquire {
        /// The locks.
        names: Arc<[Name]>,
        /// The new holder.
        entry: Entry,
        /// For how long, lock-delay included.
        ttl: Duration,
        /// p: where the counters should at least be, in µs of the wall clock.
        floor: u64,
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
    },
    /// Raises every counter to the token, if all the locks are ours.
    Raise {
        /// The locks.
        names: Arc<[Name]>,
        /// The holder.
        entry: Entry,
        /// The token.
        token: u64,
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
    },
    /// Prolongs all the locks, if all are ours; never shortens, never re-creates.
    Extend {
        /// The locks.
        names: Arc<[Name]>,
        /// The holder.
        entry: Entry,
        /// From now, lock-delay included.
        ttl: Duration,
    },
    /// Puts all the locks back for a holder whom a majority still has, where nobody else holds one of them; brings the
    /// counters up to the token.
    Repair {
        /// The locks.
        names: Arc<[Name]>,
        /// The holder.
        entry: Entry,
        /// From now, lock-delay included.
        ttl: Duration,
        /// The holder's.
        token: u64,
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
    },
    /// Frees those of the locks that are ours. A node that may not vote obeys it too, and says so. One that may hands
    /// each free lock to the head of its line.
    Release {
        /// The locks.
        names: Arc<[Name]>,
        /// The holder.
        entry: Entry,
        /// p, for who gets one of the locks next.
        floor: u64,
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// All acquired; the greatest of their counters is now this, and so are all of them.
    Granted(u64),
    /// Somebody else has one of them, or waits for it.
    Held {
        /// Which. Of several the one that is held for longest.
        which: Name,
        /// For this much longer; none: without an end.
        remaining: Option<Duration>,
        /// The greatest of the counters.
        counter: u64,
        /// The holder's entry; none where what stands there is not one.
        holder: Option<Arc<str>>,
    },
    /// Raised; the least of the counters is now this.
    Raised(u64),
    /// Extended.
    Extended,
    /// Not all of them are ours: to a raise or an extension.
    Lost,
    /// To a repair: whether all stand there now. If not, somebody else has one of them, or it was evicted.
    Repaired(bool),
    /// To a release: whether any of them was ours.
    Released(bool),
    /// To a release: they stand there no more, but this memory is not admitted: what it says of them is no vote.
    ReleasedUnadmitted,
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
                    "a counter for one of these names is damaged: {counter} is not below 2^53"
                )))
            }
            Self::Held {
                which,
                remaining,
                counter,
                holder,
            } if damaged(counter) => Ok(Self::Held {
                which,
                remaining,
                counter: 0,
                holder,
            }),
            reply => Ok(reply),
        }
    }
}
