//! What quorate promises: a file for each promise, with what it is shown on. They are one program, since each further
//! program takes longer to build than most of these files; `cargo test --all-features --test promises line::` runs those of
//! one file. The simulation is a program of its own.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

// Tools.
#[cfg(feature = "cli")]
#[path = "support/command.rs"]
mod command;
#[macro_use]
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
#[path = "support/exclusive.rs"]
mod exclusive;
#[cfg(feature = "cli")]
#[path = "support/pty.rs"]
mod pty;
mod support;
#[path = "support/workers.rs"]
mod workers;

mod admission;
mod basics;
#[cfg(all(feature = "blocking", feature = "consul"))]
mod blocking;
mod burst;
mod cancellation;
#[cfg(feature = "tls-rustls")]
mod certificates;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod cli_consul;
#[cfg(feature = "cli")]
mod cli_flock;
#[cfg(feature = "cli")]
mod cli_limit;
#[cfg(feature = "cli")]
mod cli_rwlock;
#[cfg(feature = "cli")]
mod cli_semaphore;
#[cfg(feature = "cli")]
mod cli_settings;
#[cfg(feature = "cli")]
mod cli_signals;
mod clocks;
#[cfg(feature = "test-util")]
mod conformance;
#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "consul")]
mod consul_agent;
mod contention;
mod damaged_counter;
mod end_of_main;
#[cfg(all(feature = "fence-redis", feature = "postgres"))]
mod examples;
mod faults;
#[cfg(feature = "postgres")]
mod fence_postgres;
#[cfg(feature = "fence-redis")]
mod fence_redis;
#[cfg(all(feature = "consul", feature = "fence-redis", feature = "postgres"))]
mod fencing;
mod flood;
mod from_env;
mod layers;
mod lease;
#[cfg(feature = "cli")]
mod line;
#[cfg(feature = "cli")]
mod line_inspect;
mod logs;
mod pages;
mod permits;
mod permits_dropped;
#[cfg(feature = "cli")]
mod quarantine;
mod rate;
mod rate_servers;
mod recipes;
mod reentrant;
mod refused;
#[cfg(feature = "cli")]
mod refused_writes;
mod repair;
mod rights;
mod rwlock;
#[cfg(feature = "cli")]
mod rwlock_inspect;
mod rwlock_servers;
mod secrets;
mod semaphore;
mod several;
mod several_servers;
mod shrunk;
mod shutdown;
#[cfg(feature = "cli")]
mod slots_inspect;
mod stalls;
mod stream;
mod support_selftest;
#[cfg(feature = "cli")]
mod terminal;
#[cfg(all(feature = "cli", feature = "test-util"))]
mod torture;
#[cfg(feature = "tower")]
mod tower;
#[cfg(feature = "tower")]
mod tower_servers;
mod waiting;
