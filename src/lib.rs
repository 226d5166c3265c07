//! Distributed locks over independent Redis or Valkey masters, with fencing tokens that only grow.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod clock;
mod error;
mod name;
mod node;
mod owner;
mod report;
mod rules;
mod token;

pub use error::{Error, LossReason, Lost};
pub use redis;
pub use report::{NodeReport, Report, Silence, Vote};
pub use token::{FencingToken, NotAToken};
