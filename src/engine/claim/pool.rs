//! What is asked of a semaphore.

use std::sync::Arc;

use super::Ask;
use crate::{
    Error,
    base::{limit::Limit, owner::Entry},
    node::{
        Operation,
        answer::{Answer, PoolInspection},
        slots,
    },
};

pub(crate) use slots::{Family, Mode, Place as Seated, Pool};

/// So many slots can never be held together.
pub(crate) fn too_many(of: u32, limit: u32) -> Error {
    Error::Invalid(format!(
        "{of} of {limit} slots cannot be taken: ask for 1 to {limit}"
    ))
}

/// The slot that a search asks for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) mode: Mode,
    /// None: any.
    pub(crate) slot: Option<u32>,
    pub(crate) limit: Limit,
}

/// Takes a slot of a semaphore, or takes or keeps this place in line.
pub(crate) fn take(pool: &Pool, place: Seated, wanted: Wanted, ask: Ask) -> Arc<Operation> {
    Operation::new(slots::Command::Take {
        pool: pool.clone(),
        place,
        limit: wanted.limit,
        mode: wanted.mode,
        want: wanted.slot,
        ttl: ask.ttl,
        floor: ask.floor,
    })
}

/// Gives back what is ours of a semaphore, and keeps the place in line.
pub(crate) fn give_back(pool: &Pool, place: Seated) -> Arc<Operation> {
    Operation::new(slots::Command::Yield {
        pool: pool.clone(),
        place,
    })
}

/// Frees what is ours of a semaphore but for this slot, and leaves its line.
pub(crate) fn leave(pool: &Pool, entry: &Entry, keep: Option<u32>) -> Arc<Operation> {
    Operation::new(slots::Command::Release {
        pool: pool.clone(),
        entry: entry.clone(),
        keep,
    })
}

/// Changes the limit of a semaphore, where this one is the newer.
pub(crate) fn resize(pool: &Pool, limit: Limit) -> Arc<Operation> {
    Operation::new(slots::Command::Resize {
        pool: pool.clone(),
        limit,
    })
}

/// Reads who holds what of a semaphore.
pub(crate) fn look(pool: &Pool) -> Arc<Operation> {
    Operation::new(slots::Command::Inspect { pool: pool.clone() })
}

/// A node's answer to [`look`].
pub(crate) fn looked(answer: Answer) -> Option<PoolInspection> {
    match answer {
        Answer::InspectedPool(inspection) => Some(*inspection),
        _ => None,
    }
}
