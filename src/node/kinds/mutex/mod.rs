//! A lock that one holds at a time, and its counter (protocol §3).

mod command;

pub use command::{Command, Reply};
