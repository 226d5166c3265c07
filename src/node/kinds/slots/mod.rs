//! The slots of a semaphore, and their counters (protocol §6).

mod apply;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod cases;
mod command;
mod kept;
mod line;
mod wire;

pub use self::command::{Command, Family, Mode, Place, Pool};
pub(crate) use self::{apply::Memory, wire::SCRIPTS};
