//! Requests to a node about names. (Requests about its admission are in `kinds/admission`.)

use std::{sync::Arc, time::Duration};

use crate::base::{
    limit::Limit,
    name::{Name, Names},
    owner::Entry,
    quota::{Stamp, Window},
};

/// A request of one entry about one target.
///
/// Every pair of target and verb has a meaning. A [`Yield`](Verb::Yield) without a place to keep is a RELEASE. An
/// [`Acquire`](Verb::Acquire) of a slot without a [`Seat`] is one too: nothing is taken, and nothing is left behind. A
/// RAISE or an EXTEND of a slot without a number is answered with LOST, and a REPAIR of it does nothing.
#[derive(Clone, Debug)]
pub struct Request {
    /// The thing that the request is about.
    pub target: Target,
    /// The holder, or the waiter that wants to hold it.
    pub entry: Entry,
    /// The action.
    pub verb: Verb,
}

/// Something that can be held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The lock of this name, which has one holder at a time; or the locks of all these names, all or none.
    Mutex(Names),
    /// One side of a read-write lock.
    Rwlock(Name, Side),
    /// A slot of a semaphore. `None` if no slot is wanted, but only a place in the queue, or if it is not known which
    /// slot is meant.
    Slot(Pool, Option<u32>),
}

/// The actions on a target.
#[derive(Clone, Debug)]
pub enum Verb {
    /// Takes it if it is free. Otherwise the entry waits, if it says how.
    Acquire {
        /// For how long, lock-delay included.
        ttl: Duration,
        /// p: the least value for the counter of a grant, in µs of the wall clock. For a reader it is used only where
        /// there is no counter yet.
        floor: u64,
        /// How the entry waits if it is refused.
        wait: Waiting,
    },
    /// Gives back a grant, and keeps the place in the queue.
    Yield {
        /// p, for the next holder.
        floor: u64,
        /// The place that is kept. The `seq` of a [`Place`] is that of the grant.
        wait: Waiting,
    },
    /// Raises the counter to the token, if the entry holds the target.
    Raise {
        /// The number of the grant that is meant, if a mutex was handed over in its queue. 0 means any.
        seq: u64,
        /// The token.
        token: u64,
    },
    /// Prolongs what the entry holds. It never shortens and never creates. For a reader it turns a lock that the entry
    /// holds as the writer into a reader's.
    Extend {
        /// From now, lock-delay included.
        ttl: Duration,
        /// For how long a read-write lock is kept for readers, if a writer becomes a reader by this and other readers
        /// were refused.
        window: Duration,
    },
    /// Puts back a lease that a majority still has, if no other entry stands against it here. It also brings the
    /// counter up to the token.
    Repair {
        /// From now, lock-delay included.
        ttl: Duration,
        /// The token of the lease.
        token: u64,
    },
    /// Frees all that the entry has of the lock or the semaphore, on either side and in any slot, and leaves its queue.
    /// A node that may not vote does so too, and says so. A node that may vote hands a free mutex to the first waiter,
    /// and notifies other waiters.
    Release(Release),
}

/// The details of a RELEASE.
#[derive(Clone, Debug, Default)]
pub struct Release {
    /// p, for the next holder of a mutex.
    pub floor: u64,
    /// For how long a read-write lock is kept for readers, if a writer frees it and readers were refused.
    pub window: Duration,
    /// The waiter for a read-write lock that no longer waits. `None` if it still waits, or if there was none.
    pub waited: Option<Entry>,
    /// The slot that is not freed.
    pub keep: Option<u32>,
}

/// How an entry waits if it is refused. For a slot this also says how the slot is asked for. Without it, an acquisition
/// of a slot is a release.
#[derive(Clone, Debug)]
pub enum Waiting {
    /// It does not wait.
    No,
    /// In the queue of a mutex. (Several names have no queue.)
    Queue(Place),
    /// It is told when a read-write lock becomes free.
    Told(Waiter),
    /// It asks for a slot, and waits for one if its life is not zero.
    Slot(Seat),
}

/// A place in the queue of a mutex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1, 2, … for each request of this wait. With the entry it names one grant.
    pub seq: u64,
    /// The order of the queue, the same on every node.
    pub ticket: u64,
    /// Takes a new place only behind all that are there. Otherwise the answer is that of an ACQUIRE.
    pub only_last: bool,
    /// S: how long a hand-over is good until it is confirmed.
    pub term: Duration,
    /// For how much longer the node keeps it.
    pub lock_delay: Duration,
    /// An entry that is silent for this long is dropped.
    pub life: Duration,
    /// For how long a free lock is kept for an entry that was called.
    pub claim: Duration,
    /// The channel on which the entry is told that it is its turn. If it is empty, the entry asks from time to time.
    pub channel: Arc<str>,
}

/// A waiter for a read-write lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The waiter's entry. It is the same for one wait, over all attempts.
    pub entry: Entry,
    /// A waiter that does not ask again for this long is dropped.
    pub life: Duration,
    /// The channel on which it is told that the lock was freed. If it is empty, it is not told.
    pub channel: Arc<str>,
}

/// How an entry asks for a slot, and its place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The limit that the client knows of.
    pub limit: Limit,
    /// How the slot is chosen.
    pub mode: Mode,
    /// The order of the queue.
    pub ticket: u64,
    /// S: an entry that was called and does not ask within this time is dropped from the queue.
    pub term: Duration,
    /// An entry that is silent for this long is dropped. Zero means that it takes no place in the queue.
    pub life: Duration,
    /// The channel on which it is told that a slot is free. If it is empty, the entry asks from time to time.
    pub channel: Arc<str>,
}

/// How a slot is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The first request. The target's number is step · limit + slot. It takes that slot, or if it is taken another
    /// free one. Slots that are whole steps of 1 + step further on come first. A new entry comes behind all others in
    /// the queue.
    Pick,
    /// Takes the slot with that number in place of the slot that the entry has. If it cannot, the entry keeps what it
    /// has.
    Move,
}

/// The role in which an entry holds a read-write lock.
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
    /// The kind of slots.
    pub family: Family,
}

/// The kinds of slots that a name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// The permits.
    Permits,
    /// The single slot that callers take before they take several permits at once.
    Gatherers,
    /// The units of a rate limit with at most 16 units, or with fewer units than masters. A unit that was used is left
    /// until it ends.
    Units {
        /// For how long a slot is taken, which may be longer than any lease of the fleet.
        kept: Duration,
        /// For how long a memory must have been watched before it counts.
        history: Duration,
    },
}

/// A request about a name as a whole, which no entry makes.
#[derive(Clone, Debug)]
pub enum Question {
    /// Reads the holder of the mutex, and its waiters.
    InspectMutex(Name),
    /// Reads the holders of the read-write lock, and its waiters.
    InspectRwlock(Name),
    /// Reads the holders of the slots, the waiters, and the limit.
    InspectPool(Pool),
    /// Frees the mutex from any holder. For a while no lease of it is repaired.
    EvictMutex(Name),
    /// The same for the read-write lock. It also drops the waiters.
    EvictRwlock(Name),
    /// Changes the limit, if this one beats it.
    Resize(Pool, Limit),
}

/// A limit, as one node counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    /// The limit's name.
    pub name: Name,
    /// N: the number of masters that share the limit.
    pub masters: u32,
    /// Each interval, and this node's share of its limit. There is at least one.
    pub windows: Arc<[(Window, u32)]>,
}

/// A request about the units of a rate limit.
#[derive(Clone, Debug)]
pub enum Units {
    /// Takes units in every interval, or in none.
    Spend {
        /// The limit.
        meter: Meter,
        /// k: the number of units.
        units: u32,
        /// e: for how long from now they may be used. It is at most E of each interval.
        age: Duration,
    },
    /// Gives back units that nobody will use, if the node still counts them as it did then.
    Refund {
        /// The limit.
        meter: Meter,
        /// The number of units.
        units: u32,
        /// Where they were counted, from the answer to the SPEND.
        stamps: Box<[Stamp]>,
    },
    /// Reads which units are taken, and when they become free.
    Look {
        /// The limit.
        meter: Meter,
    },
}

/// How a command uses the guard. The guard is what the client expects in `<prefix>:open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// The command has no guard.
    Nothing,
    /// The guard decides the answer. The command is carried out in any case.
    Answer,
    /// The guard decides if the command is carried out at all.
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

    /// Returns true if it may leave its entry on the node. It is sent only once, and what it leaves is taken back by a
    /// request that [`frees`](Self::frees) the same entry.
    pub(crate) fn takes(&self) -> bool {
        let takes = matches!(
            self.verb,
            Verb::Acquire { .. } | Verb::Yield { .. } | Verb::Repair { .. }
        );
        takes && !self.frees()
    }

    /// Returns true if no earlier request takes anything for its entry. If this request never left, nothing stands on
    /// the node.
    pub(crate) fn begins(&self) -> bool {
        let acquires = matches!(self.verb, Verb::Acquire { .. });
        acquires && matches!(self.target, Target::Mutex(_)) && !self.keeps_a_place()
    }

    /// Returns true if it removes its entry from wherever it stands: a RELEASE, or a request that means one.
    pub(crate) fn frees(&self) -> bool {
        match (&self.verb, &self.target) {
            (Verb::Release(_), _) => true,
            (Verb::Yield { .. }, _) => !self.keeps_a_place(),
            (Verb::Acquire { wait, .. }, Target::Slot(..)) => wait.seat().is_none(),
            _ => false,
        }
    }

    /// Returns true if its answer says what its entry holds, and another request for the same entry may give that up.
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

    /// Returns true if it only prolongs a lease that a majority has.
    pub(crate) fn extends(&self) -> bool {
        matches!(self.verb, Verb::Extend { .. } | Verb::Repair { .. })
    }
}

impl Target {
    /// The mutex of one name.
    pub(crate) fn mutex(name: Name) -> Self {
        Self::Mutex(name.into())
    }

    /// The name as users know it.
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Mutex(names) => names.shown(),
            Self::Rwlock(name, _) => name,
            Self::Slot(pool, _) => &pool.name,
        }
    }

    /// The side of a read-write lock.
    pub(crate) fn side(&self) -> Option<Side> {
        match self {
            Self::Rwlock(_, side) => Some(*side),
            Self::Mutex(_) | Self::Slot(..) => None,
        }
    }

    /// The slot of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Slot(_, slot) => *slot,
            Self::Mutex(_) | Self::Rwlock(..) => None,
        }
    }
}

impl Verb {
    /// Leaves the queue of a semaphore, and frees all slots of the entry except this one.
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
    /// For how long these slots are taken, if that may be longer than the fleet's `max_ttl`. Zero otherwise.
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
