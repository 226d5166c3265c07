//! The promises of the library, in a folder for each group of them. All files are one program, because each further
//! program takes seconds to link. `cargo test --all-features --test promises lock::queue::` runs the tests of one file.
//! The simulation is a program of its own.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

// Tools.
#[macro_use]
#[path = "support/exclusive.rs"]
mod exclusive;
mod support;
#[path = "support/workers.rs"]
mod workers;

#[cfg(feature = "consul")]
mod consul;
mod fence;
mod integrations;
mod lock;
mod meta;
mod operators;
mod rate;
mod rwlock;
mod semaphore;
