//! What is asked for a place in the line of a mutex.

use std::sync::Arc;

use super::Ask;
use crate::{
    base::name::Name,
    node::{Operation, mutex},
};

pub(crate) use mutex::Place;

/// Takes a lock where it is free and nobody stands before us, or takes or keeps this place in line. `only_last`: a new place
/// only behind all others.
pub(crate) fn join(name: &Name, place: Place, only_last: bool, ask: Ask) -> Arc<Operation> {
    Operation::new(mutex::Command::Join {
        name: name.clone(),
        place,
        only_last,
        ttl: ask.ttl,
        floor: ask.floor,
    })
}

/// Gives back a grant of a lock, and keeps the place in line. `floor`: p, as in [`Undo`](super::Undo).
pub(crate) fn give_way(name: &Name, place: Place, floor: u64) -> Arc<Operation> {
    Operation::new(mutex::Command::Yield {
        name: name.clone(),
        place,
        floor,
    })
}
