//! One task per quorum that owns everything: connections, rounds, leases, timers.
//!
//! A request goes down as an [`Event`] through one queue ([`handle`]), and comes back through a oneshot
//! channel. [`core`] routes it to the room that decides, and is free of I/O and of tokio's timers, so that
//! the simulation runs it as it is; [`driver`] carries out what was decided. Rooms borrow the [`net`], and
//! return what follows. No background work hangs on a caller's future: one that is dropped leaves an event
//! behind, and the engine cleans up.

mod attempt;
mod bootstrap;
mod core;
mod driver;
mod early;
mod event;
mod grant;
mod handle;
mod holdings;
mod journal;
mod net;
mod patience;
mod pools;
mod questions;
mod rates;
mod ready;
mod remains;
mod rests;
mod rollback;
mod round;
mod shutdown;
mod status;
#[cfg(test)]
mod tests;
mod timers;
mod turns;
pub(crate) mod wants;
mod wishes;

pub use self::status::NodeChanges;
#[cfg(any(test, feature = "test-util"))]
pub(crate) use self::{bootstrap::patience, core::Core};
pub(crate) use self::{
    driver::Driver,
    event::{Event, Wait, Waits, Wish},
    handle::{Acquiring, Engine},
    remains::Task,
    status::Status,
};
