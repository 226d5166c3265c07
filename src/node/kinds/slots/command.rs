//! What may be asked of a node about the slots of a semaphore, and what it may answer.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{limit::Limit, name::Name, owner::Entry},
    node::kinds::Guarded,
};

/// Whose slots they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool {
    /// The semaphore.
    pub name: Name,
    /// Which of its slots.
    pub family: Family,
}

/// The slots of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// What is held.
    Permits,
    /// The one who takes several permits at once.
    Gatherers,
    /// The units of a rate limit that has fewer of them than there are masters. One that was used is left until it ends.
    Units {
        /// For how long a slot is taken, which may be longer than any lease of the fleet.
        kept: Duration,
        /// For how long a memory must have been watched before it counts.
        history: Duration,
    },
}

/// What may be asked.
#[derive(Clone, Debug)]
pub enum Command {
    /// Takes a slot, if one may be taken; else takes a place in line, or keeps it.
    Take {
        /// The semaphore.
        pool: Pool,
        /// Who asks.
        place: Place,
        /// How many slots there are, as the client knows it.
        limit: Limit,
        /// How.
        mode: Mode,
        /// Which slot. None: none, whatever is free.
        want: Option<u32>,
        /// For how long, lock-delay included.
        ttl: Duration,
        /// p: where the slot's counter should at least be, in µs of the wall clock.
        floor: u64,
    },
    /// Raises the slot's counter to the token, if the slot is ours.
    Raise {
        /// The semaphore.
        pool: Pool,
        /// The holder.
        entry: Entry,
        /// The slot.
        slot: u32,
        /// The token.
        token: u64,
    },
    /// Prolongs the slot, if it is ours; never shortens, never re-creates.
    Extend {
        /// The semaphore.
        pool: Pool,
        /// The holder.
        entry: Entry,
        /// The slot.
        slot: u32,
        /// From now, lock-delay included.
        ttl: Duration,
    },
    /// Puts the slot back for a holder whom a majority still has, where nobody else has it, and it is within the limit.
    Repair {
        /// The semaphore.
        pool: Pool,
        /// The holder.
        entry: Entry,
        /// The slot.
        slot: u32,
        /// From now, lock-delay included.
        ttl: Duration,
        /// The holder's.
        token: u64,
    },
    /// Frees what is ours, and leaves the line. A node that may not vote obeys it too, and says so. One that may tells
    /// who is first in line.
    Release {
        /// The semaphore.
        pool: Pool,
        /// The holder.
        entry: Entry,
        /// What is not freed: this slot.
        keep: Option<u32>,
    },
    /// Frees what is ours, and keeps the place in line. Nobody is told.
    Yield {
        /// The semaphore.
        pool: Pool,
        /// Who gives it back.
        place: Place,
    },
    /// Changes the limit, where this one beats it.
    Resize {
        /// The semaphore.
        pool: Pool,
        /// The new one.
        limit: Limit,
    },
    /// Reads who holds, who waits, and the limit.
    Inspect {
        /// The semaphore.
        pool: Pool,
    },
}

/// One who asks for a slot, as a node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who; it lives for one wait.
    pub entry: Entry,
    /// The order of the line.
    pub ticket: u64,
    /// S: who was called and has not asked for so long is out of line.
    pub term: Duration,
    /// Who has not been heard of for so long waits no more. Zero: takes no place in line.
    pub life: Duration,
    /// Where it hears that a slot is free; empty: it asks from time to time.
    pub channel: Arc<str>,
}

/// How a slot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For the first time. What is wanted is step · limit + slot: that slot, or where it is taken another free one, first
    /// of those that lie whole steps of 1 + step behind it. Who takes a place in line stands behind everybody there.
    Pick,
    /// The one that is wanted, in place of what is ours; else what is ours stays.
    Move,
}

impl Family {
    /// The time for which these slots are taken, if it may be longer than the fleet's longest ttl. Zero otherwise.
    pub(crate) fn kept(self) -> Duration {
        match self {
            Self::Permits | Self::Gatherers => Duration::ZERO,
            Self::Units { kept, .. } => kept,
        }
    }

    /// For how long a memory must have been watched before it counts.
    pub(crate) fn history(self) -> Duration {
        match self {
            Self::Permits | Self::Gatherers => Duration::ZERO,
            Self::Units { history, .. } => history,
        }
    }
}

impl Command {
    /// Whose slots it is about.
    pub(crate) fn pool(&self) -> &Pool {
        match self {
            Self::Take { pool, .. }
            | Self::Raise { pool, .. }
            | Self::Extend { pool, .. }
            | Self::Repair { pool, .. }
            | Self::Release { pool, .. }
            | Self::Yield { pool, .. }
            | Self::Resize { pool, .. }
            | Self::Inspect { pool } => pool,
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
            Self::Take { place, .. } | Self::Yield { place, .. } => Some(&place.entry),
            Self::Repair { entry, .. } => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn holds(&self) -> Option<&Entry> {
        match self {
            Self::Take { place, .. } => Some(&place.entry),
            Self::Raise { entry, .. } | Self::Extend { entry, .. } | Self::Repair { entry, .. } => {
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
