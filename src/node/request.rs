//! Requests to a node about names. (Those about its admission are in `kinds/admission`.)

use std::{sync::Arc, time::Duration};

use crate::base::{
    limit::Limit,
    name::{Name, Names},
    owner::Entry,
    quota::{Stamp, Window},
};

/// A request of one entry about one thing that can be held.
///
/// Every pair of target and verb means something. A [`Yield`](Verb::Yield) without a place to keep is a RELEASE. So is an
/// [`Acquire`](Verb::Acquire) of a slot without a [`Seat`]: nothing is taken, and nothing is left behind. A slot without a number is
/// lost for all who would raise or extend it, and is not repaired.
#[derive(Clone, Debug)]
pub struct Request {
    /// The thing.
    pub target: Target,
    /// The holder, or the one that wants to be.
    pub entry: Entry,
    /// The deed.
    pub verb: Verb,
}

/// A thing that can be held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The lock of this name, which one holds at a time; or the locks of all these names, all or none.
    Mutex(Names),
    /// One side of a read-write lock.
    Rwlock(Name, Side),
    /// A slot of a semaphore. `None`: no slot is wanted, only a place in the queue; or it is not known which one is meant.
    Slot(Pool, Option<u32>),
}

/// The deeds that a target knows.
#[derive(Clone, Debug)]
pub enum Verb {
    /// Takes it if it is free. Otherwise the entry waits, if it says how.
    Acquire {
        /// For how long, lock-delay included.
        ttl: Duration,
        /// p: where the counter of a grant should at least be, in µs of the wall clock. For a reader only a new counter begins there.
        floor: u64,
        /// How the entry waits if it is refused.
        wait: Waiting,
    },
    /// Gives back a grant, and keeps the place in the queue.
    Yield {
        /// p, for who gets it next.
        floor: u64,
        /// The place that is kept. The `seq` of a [`Place`] is that of the grant.
        wait: Waiting,
    },
    /// Raises the counter to the token, if the entry holds the target.
    Raise {
        /// The grant that is meant, if a mutex was handed over in its queue. 0: any.
        seq: u64,
        /// The token.
        token: u64,
    },
    /// Prolongs what the entry holds. Never shortens, never creates. A reader's makes a share of a lock that the entry holds alone.
    Extend {
        /// From now, lock-delay included.
        ttl: Duration,
        /// For how long a read-write lock is kept for readers, if it becomes shared and some were refused.
        window: Duration,
    },
    /// Puts a lease back that a majority still has, if nobody stands against it here, and brings the counter up to the token.
    Repair {
        /// From now, lock-delay included.
        ttl: Duration,
        /// The token of the lease.
        token: u64,
    },
    /// Frees all that the entry has of the lock or the semaphore, on whichever side and in whichever slot, and leaves its queue. A node
    /// that may not vote obeys too, and says so. One that may vote hands a free mutex to the head of its queue, and tells others who wait.
    Release(Release),
}

/// The details of a RELEASE.
#[derive(Clone, Debug, Default)]
pub struct Release {
    /// p, for who gets a mutex next.
    pub floor: u64,
    /// For how long a read-write lock is kept for readers, if a writer frees it and some were refused.
    pub window: Duration,
    /// The waiter for a read-write lock that waits no more. `None`: it goes on, or nobody waited.
    pub waited: Option<Entry>,
    /// The slot that is not freed.
    pub keep: Option<u32>,
}

/// How an entry waits that is refused.
#[derive(Clone, Debug)]
pub enum Waiting {
    /// It does not.
    No,
    /// In the queue of a mutex. (Several names have no queue.)
    Queue(Place),
    /// It is told when a read-write lock becomes free.
    Told(Waiter),
    /// For a slot.
    Slot(Seat),
}

/// A place in the queue of a mutex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1, 2, … for each request of this wait. With the entry it names one grant.
    pub seq: u64,
    /// The order of the queue, the same on every node.
    pub ticket: u64,
    /// Takes a new place only behind everybody who is there; otherwise the answer is that of an ACQUIRE.
    pub only_last: bool,
    /// S: for how long a hand-over is good until it is confirmed.
    pub term: Duration,
    /// How much longer than that the node keeps it.
    pub lock_delay: Duration,
    /// An entry that is silent for this long waits no more.
    pub life: Duration,
    /// For how long a free lock is kept for an entry that was called.
    pub claim: Duration,
    /// Where the entry hears that it is its turn. Empty: it asks from time to time.
    pub channel: Arc<str>,
}

/// A waiter for a read-write lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The waiter. It lives for one wait, over all attempts.
    pub entry: Entry,
    /// A waiter that does not ask again for this long waits no more.
    pub life: Duration,
    /// Where it hears that the lock was freed. Empty: nowhere.
    pub channel: Arc<str>,
}

/// How an entry asks for a slot, and its place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The number of slots that the client knows of.
    pub limit: Limit,
    /// How the slot is chosen.
    pub mode: Mode,
    /// The order of the queue.
    pub ticket: u64,
    /// S: an entry that was called and does not ask for this long is out of the queue.
    pub term: Duration,
    /// An entry that is silent for this long waits no more. Zero: it takes no place in the queue.
    pub life: Duration,
    /// Where it hears that a slot is free. Empty: it asks from time to time.
    pub channel: Arc<str>,
}

/// How a slot is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For the first time. The target's number is step · limit + slot: that slot, or if it is taken another free one. Those that lie
    /// whole steps of 1 + step behind it come first. A new entry stands behind everybody in the queue.
    Pick,
    /// The slot of that number, in place of what the entry has; otherwise it keeps what it has.
    Move,
}

/// As what somebody holds a read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Beside other readers.
    Reader,
    /// Alone.
    Writer,
}

/// The slots of one name that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool {
    /// The semaphore.
    pub name: Name,
    /// Which of its slots.
    pub family: Family,
}

/// The kinds of slots that a name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// The permits.
    Permits,
    /// The single slot that callers take before they take several permits at once.
    Gatherers,
    /// The units of a rate limit that has fewer of them than there are masters. One that was used is left until it ends.
    Units {
        /// For how long a slot is taken, which may be longer than any lease of the fleet.
        kept: Duration,
        /// For how long a memory must have been watched before it counts.
        history: Duration,
    },
}

/// A request about a name as a whole, by nobody that holds it.
#[derive(Clone, Debug)]
pub enum Question {
    /// Reads who holds the mutex, and who waits.
    InspectMutex(Name),
    /// Reads who has the read-write lock, and who waits.
    InspectRwlock(Name),
    /// Reads who has which slot, who waits, and the limit.
    InspectPool(Pool),
    /// Frees the mutex, no matter who holds it. For a while no lease of it is repaired.
    EvictMutex(Name),
    /// The same of the read-write lock. It also forgets who waits.
    EvictRwlock(Name),
    /// Changes the limit, if this one beats it.
    Resize(Pool, Limit),
}

/// A limit, as one node counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    /// The limit's name.
    pub name: Name,
    /// N: how many masters share the limit.
    pub masters: u32,
    /// Each interval, and this node's share of its limit. At least one.
    pub windows: Arc<[(Window, u32)]>,
}

/// A request about the units of a rate limit.
#[derive(Clone, Debug)]
pub enum Units {
    /// Takes units of every interval, or of none.
    Spend {
        /// The limit.
        meter: Meter,
        /// k: how many.
        units: u32,
        /// e: how long from now they may be used, at most E of each interval.
        age: Duration,
    },
    /// Gives back units that nobody will use, where what was counted then counts still.
    Refund {
        /// The limit.
        meter: Meter,
        /// How many.
        units: u32,
        /// Where they were counted, as the spending was told.
        stamps: Box<[Stamp]>,
    },
    /// Reads what is taken, and when it is free again.
    Look {
        /// The limit.
        meter: Meter,
    },
}

/// The use of the guard, by which `<prefix>:open` must say what the client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// Nothing: none is sent.
    Nothing,
    /// It decides the answer. The deed is done in any case.
    Answer,
    /// It decides if anything is done at all.
    Deed,
}

impl Request {
    /// The use of the guard.
    pub(crate) fn guarded(&self) -> Guarded {
        match self.frees() {
            true => Guarded::Answer,
            false => Guarded::Deed,
        }
    }

    /// Returns true if it may leave its entry on the node. It is sent once only, and what it leaves is taken back by the request that
    /// [`frees`](Self::frees) the same entry.
    pub(crate) fn takes(&self) -> bool {
        let takes = matches!(
            self.verb,
            Verb::Acquire { .. } | Verb::Yield { .. } | Verb::Repair { .. }
        );
        takes && !self.frees()
    }

    /// Returns true if no earlier request takes for its entry: if it never left, nothing stands there.
    pub(crate) fn begins(&self) -> bool {
        let acquires = matches!(self.verb, Verb::Acquire { .. });
        acquires && matches!(self.target, Target::Mutex(_)) && !self.keeps_a_place()
    }

    /// Returns true if it removes its entry, wherever that stands: a RELEASE, and a request that means one.
    pub(crate) fn frees(&self) -> bool {
        match (&self.verb, &self.target) {
            (Verb::Release(_), _) => true,
            (Verb::Yield { .. }, _) => !self.keeps_a_place(),
            (Verb::Acquire { wait, .. }, Target::Slot(..)) => wait.seat().is_none(),
            _ => false,
        }
    }

    /// Returns true if its answer says what its entry holds, and another request for the same entry gives that up.
    pub(crate) fn holds(&self) -> bool {
        let is_slot = matches!(self.target, Target::Slot(..));
        is_slot && !self.frees() && !matches!(self.verb, Verb::Yield { .. })
    }

    /// Returns true if it names a place in a queue.
    pub(crate) fn keeps_a_place(&self) -> bool {
        match (&self.target, &self.verb) {
            (Target::Mutex(names), Verb::Acquire { wait, .. } | Verb::Yield { wait, .. }) => {
                names.one().is_some() && wait.place().is_some()
            }
            (Target::Slot(..), Verb::Acquire { wait, .. } | Verb::Yield { wait, .. }) => {
                wait.seat().is_some()
            }
            _ => false,
        }
    }

    /// Returns true if it only prolongs what is held on a majority.
    pub(crate) fn extends(&self) -> bool {
        matches!(self.verb, Verb::Extend { .. } | Verb::Repair { .. })
    }
}

impl Target {
    /// The mutex of one name.
    pub(crate) fn mutex(name: Name) -> Self {
        Self::Mutex(name.into())
    }

    /// As users know it.
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Mutex(names) => names.shown(),
            Self::Rwlock(name, _) => name,
            Self::Slot(pool, _) => &pool.name,
        }
    }

    /// Which side of a read-write lock.
    pub(crate) fn side(&self) -> Option<Side> {
        match self {
            Self::Rwlock(_, side) => Some(*side),
            Self::Mutex(_) | Self::Slot(..) => None,
        }
    }

    /// Which slot of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Slot(_, slot) => *slot,
            Self::Mutex(_) | Self::Rwlock(..) => None,
        }
    }
}

impl Verb {
    /// Leaves the queue of a semaphore, and frees all that the entry has but this slot.
    pub(crate) fn leave_all_but(slot: u32) -> Self {
        Self::Release(Release {
            keep: Some(slot),
            ..Release::default()
        })
    }
}

impl Waiting {
    pub(crate) fn place(&self) -> Option<&Place> {
        match self {
            Self::Queue(place) => Some(place),
            _ => None,
        }
    }

    pub(crate) fn waiter(&self) -> Option<&Waiter> {
        match self {
            Self::Told(waiter) => Some(waiter),
            _ => None,
        }
    }

    pub(crate) fn seat(&self) -> Option<&Seat> {
        match self {
            Self::Slot(seat) => Some(seat),
            _ => None,
        }
    }
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

impl Units {
    /// The limit that it is about.
    pub(crate) fn meter(&self) -> &Meter {
        match self {
            Self::Spend { meter, .. } | Self::Refund { meter, .. } | Self::Look { meter } => meter,
        }
    }
}
