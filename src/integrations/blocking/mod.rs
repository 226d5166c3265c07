//! Every primitive without async, for programs of threads.
//!
//! The verbs, the settings and the promises are those of the primitives at the [root of this crate](crate), except that
//! a verb blocks its thread until it is done.
//!
//! ```
//! # fn main() -> Result<(), quorate::Error> {
//! use quorate::blocking::Quorum;
//!
//! let quorum = Quorum::in_memory(3)?; // in production: Quorum::connect(["redis://…", …])?
//! let lease = quorum.mutex("invoice:42").lock()?; // waits in the queue; renewed while it is held
//! println!("write with token {}", lease.token());
//! lease.release()?; // or drop it: the release then runs in the background
//! quorum.shutdown()?; // the last line of main: waits for the releases, 5 s at most
//! # Ok(()) }
//! ```
//!
//! # Where it may be called
//! It may be called from any thread, by many at once: a [`Quorum`], its primitives and a [`Lease`] are `Send + Sync`.
//! Connections, renewal and all other background work live on one thread of their own, named `quorate`, with its own
//! runtime. When the last handle and the last lease are gone, that thread releases what is left, and ends. It also ends
//! with the process: without [`Quorum::shutdown`] a lease that is dropped just before `main` returns may stay for its
//! ttl.
//!
//! A program that forks or daemonizes has to connect after that, because a fork does not copy the thread.
//!
//! **Do not call it in async code.** There a call that blocks would stop all other tasks of that thread, so each call
//! returns [`Error::Invalid`](crate::Error::Invalid) at once. Use the async primitives there, or call this module in
//! tokio's `spawn_blocking` or `block_in_place`. Dropping a lease never blocks, so that is allowed anywhere.
//!
//! Tokio's tasks are recognised; other executors are not. Tokio does not count the steps of a task under
//! `tokio::task::unconstrained`, nor those of a future that a runtime drops at its end. There tokio itself refuses by a
//! panic. The panic is printed, and caught unless panics abort the program.
//!
//! # What is different
//! - A waiting thread cannot be cancelled. Give it a `wait_timeout`. [`Quorum::shutdown`] by another thread ends all
//!   waits with `Closed`.
//! - [`run`](Mutex::run) runs the work on the calling thread, and nothing can stop the work when the lease is lost. So
//!   let the work look at [`is_valid`](LeaseWatch::is_valid) before each step, and write with the
//!   [`token`](LeaseWatch::token).
//! - [`Lease::on_lost`] tells when a lease is lost. There is no `guard`, and no `node_changes`: look at
//!   [`nodes`](Quorum::nodes).
//! - [`Quorum::in_memory`] can fail, because it starts a thread.
//!
//! If you come from a `std` mutex, a file lock or `SET NX PX`: [integrations](crate::docs::integrations#threads).

mod builder;
#[cfg(feature = "consul")]
pub mod consul;
mod lease;
mod lock;
mod permits;
mod quorum;
mod rate_limiter;
mod reentrant;
mod root;
mod rwlock;

pub use self::{
    builder::Builder,
    lease::{Lease, LeaseWatch},
    lock::Mutex,
    permits::Semaphore,
    quorum::Quorum,
    rate_limiter::RateLimiter,
    reentrant::ReentrantMutex,
    rwlock::RwLock,
};
