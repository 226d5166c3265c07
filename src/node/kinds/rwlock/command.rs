//! What may be asked of a node about a read-write lock, and what it may answer.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{name::Name, owner::Entry},
    node::kinds::Guarded,
};

/// What may be asked.
#[derive(Clone, Debug)]
pub enum Command {
    /// Takes a share of the lock, if no writer has it or waits for it.
    Read {
        /// The lock.
        name: Name,
        /// The new holder.
        entry: Entry,
        /// For how long, lock-delay included.
        ttl: Duration,
        /// p: where the counter is begun, if there is none.
        floor: u64,
        /// Who waits, if it is refused; none: nobody.
        wait: Option<Wait>,
    },
    /// Takes the lock alone, if nobody has it, and it is not kept for readers. Who waits and is refused keeps new readers
    /// out.
    Write {
        /// The lock.
        name: Name,
        /// The new holder.
        entry: Entry,
        /// For how long, lock-delay included.
        ttl: Duration,
        /// p: where the counter should at least be, in µs of the wall clock.
        floor: u64,
        /// Who waits; none: nobody.
        wait: Option<Wait>,
    },
    /// Raises the counter to the token, if the entry has the lock or a share of it.
    Raise {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// The token.
        token: u64,
    },
    /// Prolongs what the entry has; never shortens, never re-creates. As a reader's it makes a share of a lock that the
    /// entry has alone.
    Extend {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// As what.
        side: Side,
        /// From now, lock-delay included.
        ttl: Duration,
        /// For how long it is kept for readers, where it makes a share of the lock and some were refused.
        window: Duration,
    },
    /// Puts back what the entry had, where nobody stands against it; brings the counter up to the token.
    Repair {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// As what.
        side: Side,
        /// From now, lock-delay included.
        ttl: Duration,
        /// The holder's.
        token: u64,
    },
    /// Frees whatever the entry has of the lock. A node that may not vote obeys it too, and says so.
    Release {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// Who waits no more; none: it does, or nobody did.
        wait: Option<Entry>,
        /// For how long it is kept for readers, where a writer frees it and some were refused.
        window: Duration,
    },
    /// Reads who holds, and who waits.
    Inspect {
        /// The lock.
        name: Name,
    },
    /// Frees the lock, no matter who holds it, and forgets who waits. For a while nobody's is put back.
    Evict {
        /// The lock.
        name: Name,
    },
}

/// As what somebody holds a read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Beside other readers.
    Reader,
    /// Alone.
    Writer,
}

/// One who waits, as a node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who waits. It lives for one wait, over all attempts.
    pub entry: Entry,
    /// Who has not asked again for so long waits no more.
    pub life: Duration,
    /// Where it hears that the lock was freed; empty: nowhere.
    pub channel: Arc<str>,
}

impl Command {
    /// The lock.
    pub(crate) fn of(&self) -> &Name {
        match self {
            Self::Read { name, .. }
            | Self::Write { name, .. }
            | Self::Raise { name, .. }
            | Self::Extend { name, .. }
            | Self::Repair { name, .. }
            | Self::Release { name, .. }
            | Self::Inspect { name }
            | Self::Evict { name, .. } => name,
        }
    }

    pub(crate) fn guarded(&self) -> Guarded {
        match self {
            Self::Release { .. } => Guarded::Answer,
            _ => Guarded::Deed,
        }
    }

    pub(crate) fn takes(&self) -> Option<&Entry> {
        match self {
            Self::Read { entry, .. } | Self::Write { entry, .. } | Self::Repair { entry, .. } => {
                Some(entry)
            }
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
