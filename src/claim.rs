//! What is claimed: the operations that a round puts to the nodes, and what their answers say, for each
//! kind of thing that can be held. Above `node/` they are known here alone.

pub(crate) mod units;

use std::{sync::Arc, time::Duration};

use crate::{
    Error,
    ballot::answers::Said,
    limit::{Agreed, Limit},
    name::Name,
    node::{Operation, Reply, mutex, slots},
    owner::Entry,
};

pub(crate) use mutex::Place;
pub(crate) use slots::{Family, Inspected, Mode, Place as Seated, Pool};

/// What somebody wants.
#[derive(Clone, Debug)]
pub(crate) enum Wants {
    /// A lock that one holds at a time.
    Mutex(Name),
    /// One of the slots of a semaphore.
    Slot(Slot),
}

/// One slot of a semaphore, whichever.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) pool: Pool,
    /// What is known of its limit.
    pub(crate) agreed: Arc<Agreed>,
    /// So many are wanted together: with a smaller limit it is in vain.
    pub(crate) of: u32,
}

/// What is held.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// A lock that one holds at a time.
    Mutex(Name),
    /// This slot of a semaphore.
    Slot(Pool, u32),
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

impl Wants {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Mutex(name) => name,
            Self::Slot(slot) => &slot.pool.name,
        }
    }
}

/// So many slots can never be held together.
pub(crate) fn too_many(of: u32, limit: u32) -> Error {
    Error::Invalid(format!(
        "{of} of {limit} slots cannot be taken: ask for 1 to {limit}"
    ))
}

/// Takes a lock where it is free.
pub(crate) fn acquire(name: &Name, entry: &Entry, ask: Ask) -> Arc<Operation> {
    Operation::new(mutex::Command::Acquire {
        name: name.clone(),
        entry: entry.clone(),
        ttl: ask.ttl,
        floor: ask.floor,
        max_ttl: ask.max_ttl,
    })
}

/// Takes a lock where it is free and nobody stands before us, or takes or keeps this place in line.
pub(crate) fn join(name: &Name, place: Place, ask: Ask) -> Arc<Operation> {
    Operation::new(mutex::Command::Join {
        name: name.clone(),
        place,
        ttl: ask.ttl,
        floor: ask.floor,
        max_ttl: ask.max_ttl,
    })
}

/// Gives back a grant of a lock, and keeps the place in line. `floor`: as in [`release`](Claim::release).
pub(crate) fn give_way(name: &Name, place: Place, floor: u64, max_ttl: Duration) -> Arc<Operation> {
    Operation::new(mutex::Command::Yield {
        name: name.clone(),
        place,
        floor,
        max_ttl,
    })
}

/// Takes a slot of a semaphore, or takes or keeps this place in line.
pub(crate) fn take(
    pool: &Pool,
    place: Seated,
    limit: Limit,
    (mode, want): (Mode, Option<u32>),
    ask: Ask,
) -> Arc<Operation> {
    Operation::new(slots::Command::Take {
        pool: pool.clone(),
        place,
        limit,
        mode,
        want,
        ttl: ask.ttl,
        floor: ask.floor,
        max_ttl: pool.family.longest(ask.max_ttl),
    })
}

/// Gives back what is ours of a semaphore, and keeps the place in line.
pub(crate) fn give_back(pool: &Pool, place: Seated, max_ttl: Duration) -> Arc<Operation> {
    Operation::new(slots::Command::Yield {
        pool: pool.clone(),
        place,
        max_ttl: pool.family.longest(max_ttl),
    })
}

/// Frees what is ours of a semaphore but for this slot, and leaves its line.
pub(crate) fn leave(
    pool: &Pool,
    entry: &Entry,
    keep: Option<u32>,
    max_ttl: Duration,
) -> Arc<Operation> {
    Operation::new(slots::Command::Release {
        pool: pool.clone(),
        entry: entry.clone(),
        keep,
        max_ttl: pool.family.longest(max_ttl),
    })
}

/// Changes the limit of a semaphore, where this one is the newer.
pub(crate) fn resize(pool: &Pool, limit: Limit, max_ttl: Duration) -> Arc<Operation> {
    Operation::new(slots::Command::Resize {
        pool: pool.clone(),
        limit,
        max_ttl: pool.family.longest(max_ttl),
    })
}

/// Reads who holds what of a semaphore.
pub(crate) fn look(pool: &Pool) -> Arc<Operation> {
    Operation::new(slots::Command::Inspect { pool: pool.clone() })
}

impl Claim {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Mutex(name) => name,
            Self::Slot(pool, _) => &pool.name,
        }
    }

    /// The slot, of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Mutex(_) => None,
            Self::Slot(_, slot) => Some(*slot),
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
            Self::Slot(pool, slot) => Operation::new(slots::Command::Raise {
                pool: pool.clone(),
                entry: entry.clone(),
                slot: *slot,
                token,
                max_ttl: pool.family.longest(max_ttl),
            }),
        }
    }

    /// Prolongs it where it is ours.
    pub(crate) fn extend(&self, entry: &Entry, ttl: Duration, max_ttl: Duration) -> Arc<Operation> {
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Extend {
                name: name.clone(),
                entry: entry.clone(),
                ttl,
            }),
            Self::Slot(pool, slot) => Operation::new(slots::Command::Extend {
                pool: pool.clone(),
                entry: entry.clone(),
                slot: *slot,
                ttl,
                max_ttl: pool.family.longest(max_ttl),
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
            Self::Slot(pool, slot) => Operation::new(slots::Command::Repair {
                pool: pool.clone(),
                entry: entry.clone(),
                slot: *slot,
                ttl,
                token,
                max_ttl: pool.family.longest(max_ttl),
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
            Self::Slot(pool, _) => leave(pool, entry, None, max_ttl),
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
    match reply {
        Reply::Mutex(reply) => vote_on_a_mutex(reply),
        Reply::Slots(reply) => vote_on_slots(reply),
        Reply::Admission(_) | Reply::Server(_) | Reply::Rate(_) => Said::Else,
    }
}

fn vote_on_slots(reply: slots::Reply) -> Said {
    match reply {
        slots::Reply::Slots {
            mine,
            taken,
            version,
            may_take,
            ticket,
            next_free,
        } => Said::Slots {
            mine,
            taken,
            version,
            may_take,
            ticket,
            next_free,
        },
        slots::Reply::Conflict(limit) => Said::Conflict(limit),
        slots::Reply::Limit(limit) => Said::Limit(limit),
        slots::Reply::Yielded => Said::Yielded,
        slots::Reply::Raised(counter) => Said::Raised(counter),
        slots::Reply::Extended => Said::Extended,
        slots::Reply::Lost => Said::Lost,
        slots::Reply::Repaired(stands) => Said::Repaired(stands),
        slots::Reply::Released(freed) => Said::Released(freed),
        slots::Reply::ReleasedUnadmitted | slots::Reply::Inspected(_) => Said::Else,
    }
}

fn vote_on_a_mutex(reply: mutex::Reply) -> Said {
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

/// A node's answer to [`look`].
pub(crate) fn looked(reply: Reply) -> Option<Inspected> {
    match reply {
        Reply::Slots(slots::Reply::Inspected(inspected)) => Some(inspected),
        _ => None,
    }
}
