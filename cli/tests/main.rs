//! The promises of the `quorate` command, tested on real servers. All files are one program, because each further
//! program takes seconds to link.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

// Tools.
mod command;
mod pty;
#[path = "../../tests/support/mod.rs"]
mod support;

mod lock;
mod operators;
#[cfg(feature = "test-util")]
mod torture;
