//! The in-process node.
