//! Test tools, outside semver: the requirements on every kind of node, and the simulation with its rule switches.

// This is a test tool. Its indices are its own numbers of clients, servers and connections, and a mistake in them
// should end the test.
#![allow(clippy::indexing_slicing, clippy::expect_used, clippy::panic)]

pub mod conformance;
#[cfg(any(test, feature = "test-util"))]
pub mod simulation;

#[cfg(any(test, feature = "test-util"))]
pub use crate::node::batch::without_batches;
