//! What may be asked of a node about the slots of a semaphore, and what it may answer.

use std::{sync::Arc, time::Duration};

use crate::{
    FencingToken,
    base::{limit::Limit, name::Name, owner::Entry, taken::Taken},
    node::{fault::Fault, kinds::Guarded},
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
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
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
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
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
        /// The fleet's: what is known of a semaphore lives for four of these.
        max_ttl: Duration,
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
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
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
        /// The fleet's: what is known of a semaphore lives for four of these.
        max_ttl: Duration,
    },
    /// Frees what is ours, and keeps the place in line. Nobody is told.
    Yield {
        /// The semaphore.
        pool: Pool,
        /// Who gives it back.
        place: Place,
        /// The fleet's: what is known of a semaphore lives for four of these.
        max_ttl: Duration,
    },
    /// Changes the limit, where this one beats it.
    Resize {
        /// The semaphore.
        pool: Pool,
        /// The new one.
        limit: Limit,
        /// The fleet's: what is known of a semaphore lives for four of these.
        max_ttl: Duration,
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

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a TAKE.
    Slots {
        /// The slot that is ours now, and its counter.
        mine: Option<(u32, u64)>,
        /// Which are taken, ours too.
        taken: Taken,
        /// The version of the limit; its slots are as many as were asked with.
        version: u64,
        /// We stand so far in front that we may take what is free.
        may_take: bool,
        /// Our place in line, or with which we took the slot; 0 for none.
        ticket: u64,
        /// When the first of those that are taken is free unless it is renewed.
        next_free: Option<Duration>,
    },
    /// To a TAKE: another limit stands here, and nothing was done.
    Conflict(Limit),
    /// Raised; the counter is now this.
    Raised(u64),
    /// Extended.
    Extended,
    /// The slot is not ours: to a raise or an extension.
    Lost,
    /// To a repair: whether it stands there now. If not, somebody else has it, or it is beyond the limit.
    Repaired(bool),
    /// To a release: whether anything was ours and is free now.
    Released(bool),
    /// To a release: it stands there no more, but this memory is not admitted.
    ReleasedUnadmitted,
    /// To a YIELD.
    Yielded,
    /// To a resize: the limit that stands now.
    Limit(Limit),
    /// To an inspection.
    Inspected(Inspected),
}

/// What an inspection finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// The limit; none where nobody has used the semaphore for long.
    pub limit: Option<Limit>,
    /// Which slots are taken.
    pub taken: Taken,
    /// The first of these, in their order, up to 100.
    pub holders: Vec<Held>,
    /// Those who wait, in order, up to 100: entry, and for how long they have waited.
    pub line: Vec<(String, Duration)>,
    /// How many wait.
    pub waiting: u64,
}

/// One slot that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which.
    pub slot: u32,
    /// By whose entry.
    pub holder: String,
    /// For how much longer.
    pub remaining: Duration,
    /// The newest token that was given out for it there; 0 if none.
    pub counter: u64,
}

impl Family {
    /// The fleet's longest ttl, or what is longer here: what is known of the slots has to live for as long as they are taken.
    pub(crate) fn longest(self, max_ttl: Duration) -> Duration {
        match self {
            Self::Permits | Self::Gatherers => max_ttl,
            Self::Units { kept, .. } => max_ttl.max(kept),
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

    /// The fleet's; an inspection needs none.
    pub(super) fn max_ttl(&self) -> Duration {
        match self {
            Self::Take { max_ttl, .. }
            | Self::Raise { max_ttl, .. }
            | Self::Extend { max_ttl, .. }
            | Self::Repair { max_ttl, .. }
            | Self::Release { max_ttl, .. }
            | Self::Yield { max_ttl, .. }
            | Self::Resize { max_ttl, .. } => *max_ttl,
            Self::Inspect { .. } => Duration::ZERO,
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

impl Reply {
    pub(crate) fn credible(mut self) -> Result<Self, Fault> {
        let counter = match &mut self {
            Self::Slots { mine, ticket, .. } => {
                // What is no ticket counts as none: else what somebody wrote there would travel from client to client.
                if *ticket > FencingToken::MAX {
                    *ticket = 0;
                }
                mine.map_or(0, |(_, counter)| counter)
            }
            Self::Raised(counter) => *counter,
            Self::Inspected(inspected) => {
                for held in &mut inspected.holders {
                    if held.counter > FencingToken::MAX {
                        held.counter = 0;
                    }
                }
                0
            }
            _ => 0,
        };
        match counter > FencingToken::MAX {
            true => Err(Fault::Error(format!(
                "its counter for this slot is damaged: {counter} is not below 2^53"
            ))),
            false => Ok(self),
        }
    }
}
