//! What may be asked of a node about a lock, and what it may answer.

use std::{sync::Arc, time::Duration};

use crate::{
    FencingToken,
    base::{name::Name, owner::Entry},
    node::{fault::Fault, kinds::Guarded},
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
        /// Which of its grants, where it came through the line; 0 for any.
        seq: u64,
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
    /// Frees the lock, if it is ours, and leaves the line. A node that may not vote obeys it too, and says so. One
    /// that may hands a free lock to the head of the line.
    Release {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// p, for who gets the lock next.
        floor: u64,
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
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
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
    },
    /// Gives back this grant of ours, and keeps the place in line: for whoever waits before us.
    Yield {
        /// The lock.
        name: Name,
        /// The place; its `seq` is that of the grant.
        place: Place,
        /// p, for who gets the lock next.
        floor: u64,
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
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
        /// The fleet's: no lease is longer.
        max_ttl: Duration,
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
        /// The last ticket of the line, or the holder's; 0 if nobody waits and it did not wait.
        ticket: u64,
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
    /// To a JOIN: it is ours.
    Taken {
        /// The counter.
        counter: u64,
        /// By which request we came to it: of a hand-over it is that of an earlier one.
        seq: u64,
    },
    /// To a JOIN: it is another's, and we stand in line.
    InLine {
        /// How many stand before us.
        rank: u64,
        /// Whose it is.
        ahead: Ahead,
    },
    /// To a YIELD.
    Yielded,
    /// To an inspection.
    Inspected {
        /// The holder's entry, and its remaining time.
        holder: Option<(String, Option<Duration>)>,
        /// The counter: the newest token that was given out here; 0 if none.
        counter: u64,
        /// Those who wait, in order, as far as they are told: entry, and for how long they have waited.
        line: Vec<(String, Duration)>,
        /// How many wait.
        waiting: u64,
    },
    /// To an eviction.
    Evicted {
        /// Whether anybody held it.
        held: bool,
        /// The holder's entry; none where what stood there is not one.
        holder: Option<Arc<str>>,
    },
}

/// Whose a lock is that one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// For how much longer; none: without an end.
    pub remaining: Option<Duration>,
    /// The ticket that it came with; 0: it did not wait in line.
    pub ticket: u64,
    /// Its entry; none where what stands there is not one.
    pub holder: Option<Arc<str>>,
    /// It is free, and kept for one who was called.
    pub is_reserved: bool,
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

impl Reply {
    /// What is no ticket counts as none: else what somebody wrote there would travel from client to client.
    fn credible_ticket(mut self) -> Self {
        match &mut self {
            Self::Held { ticket, .. }
            | Self::InLine {
                ahead: Ahead { ticket, .. },
                ..
            } if *ticket > FencingToken::MAX => *ticket = 0,
            _ => {}
        }
        self
    }

    pub(crate) fn credible(self) -> Result<Self, Fault> {
        let damaged = |counter: u64| counter > FencingToken::MAX;
        match self.credible_ticket() {
            Self::Granted(counter) | Self::Raised(counter) if damaged(counter) => {
                Err(Fault::Error(format!(
                    "its counter for this name is damaged: {counter} is not below 2^53"
                )))
            }
            Self::Held {
                remaining,
                counter,
                holder,
                ticket,
            } if damaged(counter) => Ok(Self::Held {
                remaining,
                counter: 0,
                holder,
                ticket,
            }),
            Self::Taken { counter, .. } if damaged(counter) => Err(Fault::Error(format!(
                "its counter for this name is damaged: {counter} is not below 2^53"
            ))),
            Self::Inspected {
                holder,
                counter,
                line,
                waiting,
            } if damaged(counter) => Ok(Self::Inspected {
                holder,
                counter: 0,
                line,
                waiting,
            }),
            reply => Ok(reply),
        }
    }
}
