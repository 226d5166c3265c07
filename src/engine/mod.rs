//! The engine: one task per quorum, which owns the connections, the rounds, the leases and the timers.
//!
//! Callers send an [`Event`] through one queue ([`handle`]) and receive the answer on a oneshot channel. [`core`]
//! passes each event to the room that decides about it. A *room* is one part of the engine's state with its rules:
//! acquisitions, holdings, surveys, rates and a few small ones. The core does no I/O and uses no tokio timer, so the
//! simulation runs it unchanged. [`driver`] carries out what the core decides. Rooms borrow the [`cluster`] and return
//! what should happen next. No background work depends on a caller's future: a future that is dropped sends an event,
//! and the engine cleans up.

mod acquire;
mod after_runtime;
mod bootstrap;
mod cluster;
mod core;
mod driver;
mod event;
mod grant;
mod handle;
mod history;
mod holdings;
mod journal;
mod own_holder;
mod rates;
mod ready;
mod rollback;
mod round;
mod shutdown;
mod sleeps;
mod startup;
mod status;
mod survey;
#[cfg(test)]
mod tests;
mod timers;
pub(crate) mod wants;

pub use self::status::NodeChanges;
pub(crate) use self::{
    after_runtime::Task,
    driver::Driver,
    event::{AcquireRequest, Event, Wait, Waits},
    handle::{Acquiring, Engine},
    status::Status,
};
#[cfg(any(test, feature = "test-util"))]
pub(crate) use self::{bootstrap::patience, core::Core};
