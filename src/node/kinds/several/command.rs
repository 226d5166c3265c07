//! What may be asked of a node about several locks at once, and what it may answer. They are the locks of
//! [`mutex`](crate::node::mutex), and the names are sorted, each there once.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{name::Name, owner::Entry},
    node::kinds::Guarded,
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
    },
    /// Raises every counter to the token, if all the locks are ours.
    Raise {
        /// The locks.
        names: Arc<[Name]>,
        /// The holder.
        entry: Entry,
        /// The token.
        token: u64,
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
    },
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
