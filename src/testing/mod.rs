//! For this crate's own tests, outside semver: the simulation and its rule switches.

// A test tool: its indices are its own numbers of clients, servers and connections, and a mistake
// in them should end the test.
#![allow(clippy::indexing_slicing, clippy::expect_used, clippy::panic)]

pub mod simulation;
