//! A lock that one holds at a time, and its counter (protocol §3).

mod command;
mod wire;

pub use command::{Command, Reply};
pub(crate) use wire::SCRIPTS;
