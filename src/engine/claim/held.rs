//! What is held, and what is asked for it until its end.

use std::{sync::Arc, time::Duration};

use super::{Lock, Pool, Undo, leave};
use crate::{
    base::{name::Name, owner::Entry},
    node::{Operation, slots},
};

/// What is held.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// A lock.
    Lock(Lock),
    /// This slot of a semaphore.
    Slot(Pool, u32),
}

impl Claim {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Lock(lock) => lock.name(),
            Self::Slot(pool, _) => &pool.name,
        }
    }

    /// The slot, of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Lock(_) => None,
            Self::Slot(_, slot) => Some(*slot),
        }
    }

    /// Raises the counter to the token where it is ours. `seq`: by which request it came to us, or 0.
    pub(crate) fn raise(&self, entry: &Entry, seq: u64, token: u64) -> Arc<Operation> {
        match self {
            Self::Lock(lock) => lock.raise(entry, seq, token),
            Self::Slot(pool, slot) => Operation::new(slots::Command::Raise {
                pool: pool.clone(),
                entry: entry.clone(),
                slot: *slot,
                token,
            }),
        }
    }

    /// Prolongs it where it is ours. `window`: as in [`Undo`].
    pub(crate) fn extend(&self, entry: &Entry, ttl: Duration, window: Duration) -> Arc<Operation> {
        match self {
            Self::Lock(lock) => lock.extend(entry, ttl, window),
            Self::Slot(pool, slot) => Operation::new(slots::Command::Extend {
                pool: pool.clone(),
                entry: entry.clone(),
                slot: *slot,
                ttl,
            }),
        }
    }

    /// Puts it back for its holder where nobody else has it, and brings the counter up to the token.
    pub(crate) fn repair(&self, entry: &Entry, ttl: Duration, token: u64) -> Arc<Operation> {
        match self {
            Self::Lock(lock) => lock.repair(entry, ttl, token),
            Self::Slot(pool, slot) => Operation::new(slots::Command::Repair {
                pool: pool.clone(),
                entry: entry.clone(),
                slot: *slot,
                ttl,
                token,
            }),
        }
    }

    /// Frees it where it is ours, and leaves its line.
    pub(crate) fn release(&self, entry: &Entry, undo: Undo<'_>) -> Arc<Operation> {
        match self {
            Self::Lock(lock) => lock.release(entry, undo),
            Self::Slot(pool, _) => leave(pool, entry, None),
        }
    }
}
