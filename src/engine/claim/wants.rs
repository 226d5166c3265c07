//! What somebody wants.

use std::sync::Arc;

use super::{Claim, Lock, Pool, Side};
use crate::base::{limit::Agreed, name::Name};

/// What somebody wants.
#[derive(Clone, Debug)]
pub(crate) enum Wants {
    /// A lock.
    Lock(Lock),
    /// One of the slots of a semaphore. Most who wait want a lock, and have no room for this.
    Slot(Box<Slot>),
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

/// Of those who want the same only so many ask at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    name: Name,
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    Mutex,
    Several,
    Readers,
    Writers,
}

impl Wants {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Lock(lock) => lock.name(),
            Self::Slot(slot) => &slot.pool.name,
        }
    }

    /// As what a read-write lock is wanted.
    pub(crate) fn side(&self) -> Option<Side> {
        match self {
            Self::Lock(lock) => lock.side(),
            Self::Slot(_) => None,
        }
    }

    /// What it claims. None: of a semaphore the nodes' answers say which slot.
    pub(crate) fn claim(&self) -> Option<Claim> {
        match self {
            Self::Lock(lock) => Some(Claim::Lock(lock.clone())),
            Self::Slot(_) => None,
        }
    }

    /// With whom it asks in turn. None: who wants a slot asks at once.
    pub(crate) fn queue(&self) -> Option<Queue> {
        match self {
            Self::Lock(lock) => Some(lock.queue()),
            Self::Slot(_) => None,
        }
    }
}

impl Lock {
    /// With whom who wants it asks in turn.
    pub(crate) fn queue(&self) -> Queue {
        let of = match self {
            Self::Mutex(_) => Of::Mutex,
            Self::Several(_) => Of::Several,
            Self::Rwlock(_, Side::Reader) => Of::Readers,
            Self::Rwlock(_, Side::Writer) => Of::Writers,
        };
        Queue {
            name: self.name().clone(),
            of,
        }
    }
}

impl Queue {
    /// At most this many of it ask or rest at a time. Readers do not stand in each other's way.
    pub(crate) fn most_asking(&self) -> usize {
        match self.of {
            Of::Readers => 256,
            Of::Mutex | Of::Several | Of::Writers => 16,
        }
    }

    #[cfg(test)]
    pub(crate) fn of_mutex(name: Name) -> Self {
        Lock::Mutex(name).queue()
    }
}
