//! The server itself: the connections that it keeps, and the scripts that it knows.

mod apply;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod cases;
mod command;
mod wire;

pub(crate) use self::apply::apply;
pub use self::command::{Command, Reply};
