//! Why nothing is answered any more.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use crate::Error;

/// Shared by background work and all that ask it.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    shut_down: AtomicBool,
}

impl Ending {
    /// The program ends the work itself.
    pub(crate) fn shut_down(&self) {
        self.shut_down.store(true, Release);
    }

    /// The error of a call that nothing will answer.
    pub(crate) fn error(&self) -> Error {
        match self.shut_down.load(Acquire) {
            true => Error::Closed,
            false => Error::RuntimeGone,
        }
    }
}
