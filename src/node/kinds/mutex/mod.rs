//! A lock that one holds at a time, and its counter (protocol §3).

mod apply;
pub(crate) mod batch;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod cases;
mod command;
mod lines;
mod wire;

pub use self::command::{Command, Place};
pub(super) use self::wire::our_holder;
pub(crate) use self::{apply::Memory, wire::SCRIPTS};
