//! The wish of an acquisition.

use std::sync::Arc;

use crate::{
    Error,
    base::{limit::Agreed, name::Name},
    node::request::{Pool, Side, Target},
};

/// The wish of an acquisition.
#[derive(Clone, Debug)]
pub(crate) enum Wants {
    /// This mutex, or this side of a read-write lock.
    Lock(Target),
    /// One of the slots of a semaphore. Most wishes are for a lock, so this takes no room in them.
    Slot(Box<Slot>),
}

/// One slot of a semaphore, whichever.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) pool: Pool,
    /// Its limit, if it is known.
    pub(crate) agreed: Arc<Agreed>,
    /// The number of slots that are wanted together. With a smaller limit they cannot be had.
    pub(crate) of: u32,
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

    /// The target of its requests, by which wishes take turns. `None`: a slot, which is asked for at once, and the nodes' answers say
    /// which it is.
    pub(crate) fn target(&self) -> Option<&Target> {
        match self {
            Self::Lock(lock) => Some(lock),
            Self::Slot(_) => None,
        }
    }

    /// The mutex in whose line those stand who wait for it: itself, or the turn of a read-write lock's writers. None: nodes
    /// keep no line of them.
    pub(crate) fn line(&self) -> Option<Name> {
        match self.target()? {
            Target::Mutex(names) => names.one().cloned(),
            Target::Rwlock(name, Side::Writer) => Some(name.of_turn()),
            Target::Rwlock(_, Side::Reader) | Target::Slot(..) => None,
        }
    }
}

/// The error for more slots than can ever be held together.
pub(crate) fn too_many(of: u32, limit: u32) -> Error {
    Error::Invalid(format!(
        "{of} of {limit} slots cannot be taken: ask for 1 to {limit}"
    ))
}
