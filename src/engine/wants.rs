//! The goal of an acquisition.

use std::{slice, sync::Arc};

use crate::{
    Error,
    base::{limit::Agreed, name::Name},
    node::request::{Family, Pool, Side, Target},
};

#[derive(Clone, Debug)]
pub(crate) enum Wants {
    /// This mutex, or this side of a read-write lock.
    Lock(Target),
    /// One of the slots of a semaphore. It is boxed because most acquisitions are for a lock.
    Slot(Box<Slot>),
}

/// Any one slot of a semaphore.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) pool: Pool,
    /// The semaphore's limit, if it is known.
    pub(crate) agreed: Arc<Agreed>,
    /// The number of slots that the caller wants together. It cannot have them if the limit is smaller.
    pub(crate) of: u32,
}

impl Wants {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Lock(lock) => lock.name(),
            Self::Slot(slot) => &slot.pool.name,
        }
    }

    /// The side of the read-write lock that is wanted. `None` for anything else.
    pub(crate) fn side(&self) -> Option<Side> {
        match self {
            Self::Lock(lock) => lock.side(),
            Self::Slot(_) => None,
        }
    }

    /// The target of its requests. Acquisitions with the same target take turns. `None` for a slot: it is asked for at
    /// once, and the nodes' answers say which slot it is.
    pub(crate) fn target(&self) -> Option<&Target> {
        match self {
            Self::Lock(lock) => Some(lock),
            Self::Slot(_) => None,
        }
    }

    /// The mutex in whose queue the waiters stand: the mutex itself, or the turn of a read-write lock's writers. `None`
    /// if the nodes keep no queue for it.
    pub(crate) fn line(&self) -> Option<Name> {
        match self.target()? {
            Target::Mutex(names) => names.one().cloned(),
            Target::Rwlock(name, Side::Writer) => Some(name.of_turn()),
            Target::Rwlock(_, Side::Reader) | Target::Slot(..) => None,
        }
    }
}

/// Things that are held are told apart by this and their name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Mutex,
    Rwlock,
    Semaphore,
}

/// The names that a lease of this target holds. The library's own names, and pools of other slots, are not told.
pub(super) fn names_of(target: &Target) -> (Kind, &[Name]) {
    match target {
        Target::Mutex(names) => (Kind::Mutex, names.all()),
        Target::Rwlock(name, _) => (Kind::Rwlock, slice::from_ref(name)),
        Target::Slot(pool, _) => (Kind::Semaphore, permits(pool)),
    }
}

/// The names for which a call waits. Of a semaphore only if it has one slot: of others another holder may give one back.
pub(super) fn waits_for(wants: &Wants) -> (Kind, &[Name]) {
    match wants {
        Wants::Lock(target) => names_of(target),
        Wants::Slot(slot) if slot.agreed.slots() == 1 => (Kind::Semaphore, permits(&slot.pool)),
        Wants::Slot(_) => (Kind::Semaphore, &[]),
    }
}

fn permits(pool: &Pool) -> &[Name] {
    match pool.family {
        Family::Permits => slice::from_ref(&pool.name),
        _ => &[],
    }
}

/// The error for more slots than can ever be held together.
pub(crate) fn too_many(of: u32, limit: u32) -> Error {
    Error::Invalid(format!(
        "cannot acquire {of} permits at once: ask for 1 to {limit}"
    ))
}
