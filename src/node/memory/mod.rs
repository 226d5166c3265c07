//! The in-process node.

pub(crate) mod store;
