//! The in-process node.

pub(crate) mod server;
pub(crate) mod store;
