//! Several locks of [`mutex`](super::mutex) at once: all, or none (protocol §8).

mod apply;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod cases;
mod command;
mod wire;

pub use self::command::Command;
pub(crate) use self::{apply::apply, wire::SCRIPTS};
