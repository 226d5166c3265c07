//! A lock that many read or one writes, and its counter (protocol §4).

mod apply;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod cases;
mod command;
mod wire;

pub use self::command::{Command, Side, Wait};
pub(crate) use self::{apply::Memory, wire::SCRIPTS};
