//! The answers of a node. Scripts decode to them. Ballots read them as they are. The engine turns them into the input
//! of queues, slot searches and rates.

use std::{sync::Arc, time::Duration};

use super::{
    fault::Fault,
    kinds::{admission, server},
};
use crate::{
    FencingToken,
    base::{limit::Limit, name::Name, quota::Stamp, taken::Taken},
};

/// The answer to one command, or the reason why there is none.
pub type Answered = Result<Answer, Fault>;

/// A node's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To an acquisition: this client has it, and this is the counter now. If it has several names, all of their
    /// counters are this.
    Granted(u64),
    /// To an acquisition: another client has it, or waits for it and comes first.
    Held {
        /// The name that is held for longest, if the request had several.
        which: Option<Name>,
        /// For how much longer. `None` if it has no end.
        remaining: Option<Duration>,
        /// The counter. With several names, the greatest.
        counter: u64,
        /// The holder's entry. `None` if the stored text is not an entry.
        holder: Option<Arc<str>>,
        /// The last ticket of the queue, or the holder's. 0 if nobody waits and the holder did not wait.
        ticket: u64,
    },
    /// To a JOIN: this client has it.
    Taken {
        /// The counter.
        counter: u64,
        /// The number of the request by which it was granted. After a hand-over that is an earlier request.
        seq: u64,
    },
    /// To a JOIN: another client has it, and this one waits in the queue.
    InLine {
        /// The number of waiters ahead.
        rank: u64,
        /// The holder.
        ahead: Ahead,
    },
    /// To a TAKE of a slot.
    Slots(Slots),
    /// To a TAKE of a slot: the node has another limit, and did nothing.
    Conflict(Limit),
    /// To a RESIZE: the limit that the node has now.
    Limit(Limit),
    /// To a YIELD.
    Yielded,
    /// To a RAISE: the counter now. With several names, the least.
    Raised(u64),
    /// To an EXTEND: it was extended.
    Extended,
    /// To a RAISE or an EXTEND: this client does not have it.
    Lost,
    /// To a REPAIR: true if the lease stands there now. It does not if another client has it, if it was evicted, or if
    /// the slot is beyond the limit.
    Repaired(bool),
    /// To a RELEASE: true if this client had any of it.
    Released(bool),
    /// To a RELEASE: the entry does not stand there any more. The memory is not admitted, so this is not a vote.
    ReleasedUnadmitted,
    /// To an EVICT.
    Evicted {
        /// True if there was a holder.
        held: bool,
        /// The holders' entries that are known.
        holders: Vec<Arc<str>>,
    },
    /// To an INSPECT of a mutex.
    InspectedMutex(Box<MutexInspection>),
    /// To an INSPECT of a read-write lock.
    InspectedRwlock(Box<RwlockInspection>),
    /// To an INSPECT of a semaphore.
    InspectedPool(Box<PoolInspection>),
    /// To a SPEND: the units are taken.
    Spent {
        /// The number of units left, by interval.
        rooms: Box<[u32]>,
        /// Where they were counted, by interval.
        stamps: Box<[Stamp]>,
    },
    /// To a SPEND: there are not enough units, and none were taken.
    Full {
        /// The number of units left, by interval.
        rooms: Box<[u32]>,
        /// The time until there are enough, unless other clients take them. `None` if there never are.
        wait: Option<Duration>,
    },
    /// To a REFUND: the number of intervals in which units were given back.
    Refunded(u32),
    /// To a LOOK, by interval: the units that are taken, in the order in which they will be free.
    Metered(Box<[Box<[TakenUnits]>]>),
    /// To an admission command.
    Admission(admission::Reply),
    /// To a command about the server itself.
    Server(server::Reply),
}

/// The slots of a semaphore on one node, as a client that asks for one sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The slot that this client has there now, and its counter.
    pub mine: Option<(u32, u64)>,
    /// The slots that are taken, including this client's.
    pub taken: Taken,
    /// The version of the limit. Its number of slots is the one in the request.
    pub version: u64,
    /// This client is far enough ahead to take a free slot.
    pub may_take: bool,
    /// The place in the queue, or the ticket with which the slot was taken. 0 for none.
    pub ticket: u64,
    /// The time until the first of the taken slots is free, unless it is renewed.
    pub next_free: Option<Duration>,
}

/// The holder for which a waiter waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// For how much longer. `None` if it has no end.
    pub remaining: Option<Duration>,
    /// The ticket with which it came. 0 if it did not wait in the queue.
    pub ticket: u64,
    /// Its entry. `None` if the stored text is not an entry.
    pub holder: Option<Arc<str>>,
    /// The lock is free, and kept for a waiter that was called.
    pub is_reserved: bool,
}

/// The holder of a mutex, and its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MutexInspection {
    /// The holder's entry, and its remaining time. `None` inside if it has no end.
    pub holder: Option<(String, Option<Duration>)>,
    /// The newest token that was given out here. 0 if none was.
    pub counter: u64,
    /// The waiters that the node lists, in order: entry, and how long each has waited.
    pub line: Vec<(String, Duration)>,
    /// The number of all waiters.
    pub waiting: u64,
}

/// The holders of a read-write lock, and the writers that wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RwlockInspection {
    /// The writer's entry, and its remaining time. `None` inside if it has no end.
    pub writer: Option<(String, Option<Duration>)>,
    /// The readers that the node lists, the longest remaining time first: entry, and remaining time.
    pub readers: Vec<(String, Duration)>,
    /// The number of all readers.
    pub reading: u64,
    /// The waiting writers that the node lists: entry, and for how much longer each is kept without another request.
    pub waiters: Vec<(String, Duration)>,
    /// The number of all waiting writers.
    pub waiting: u64,
    /// The newest token that was given out here. 0 if none was.
    pub counter: u64,
}

/// The holders of a semaphore's slots, and its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolInspection {
    /// The limit. `None` if the semaphore has not been used for long.
    pub limit: Option<Limit>,
    /// The slots that are taken.
    pub taken: Taken,
    /// The first of the taken slots in their order, at most 100.
    pub holders: Vec<TakenSlot>,
    /// The waiters in order, at most 100: entry, and how long it has waited.
    pub line: Vec<(String, Duration)>,
    /// The number of all waiters.
    pub waiting: u64,
}

/// One slot that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenSlot {
    /// Its number.
    pub slot: u32,
    /// The holder's entry.
    pub holder: String,
    /// For how much longer it is held.
    pub remaining: Duration,
    /// The newest token that was given out for the slot here. 0 if none was.
    pub counter: u64,
}

/// Units of a rate limit that still count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenUnits {
    /// For how much longer they count.
    pub left: Duration,
    /// Their number.
    pub units: u32,
}

impl Answer {
    /// The inspection of a pool.
    pub(crate) fn into_pool(self) -> Option<PoolInspection> {
        match self {
            Self::InspectedPool(inspection) => Some(*inspection),
            _ => None,
        }
    }

    /// Returns true if it was done on a memory that is not admitted.
    pub(crate) fn is_unadmitted(&self) -> bool {
        *self == Self::ReleasedUnadmitted
    }

    /// Refuses a token of 2^53 or more, because a damaged counter must not travel to other nodes. A ticket of that size
    /// counts as 0. Otherwise a text that anybody wrote on the server would travel from client to client.
    pub(crate) fn credible(mut self) -> Answered {
        let damaged = |counter: u64| counter > FencingToken::MAX;
        let clear = |number: &mut u64| {
            if damaged(*number) {
                *number = 0;
            }
        };
        let token = match &mut self {
            Self::Granted(counter) | Self::Raised(counter) | Self::Taken { counter, .. } => {
                *counter
            }
            Self::Slots(Slots { mine, ticket, .. }) => {
                clear(ticket);
                mine.map_or(0, |(_, counter)| counter)
            }
            Self::Held {
                counter, ticket, ..
            } => {
                clear(counter);
                clear(ticket);
                0
            }
            Self::InLine { ahead, .. } => {
                clear(&mut ahead.ticket);
                0
            }
            Self::InspectedMutex(inspection) => {
                clear(&mut inspection.counter);
                0
            }
            Self::InspectedRwlock(inspection) => {
                clear(&mut inspection.counter);
                0
            }
            Self::InspectedPool(inspection) => {
                inspection
                    .holders
                    .iter_mut()
                    .for_each(|held| clear(&mut held.counter));
                0
            }
            _ => 0,
        };
        match damaged(token) {
            true => Err(Fault::Error(format!(
                "a counter there is damaged: {token} is not below 2^53"
            ))),
            false => Ok(self),
        }
    }
}
