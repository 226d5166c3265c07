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
//! let lease = quorum.mutex("invoice:42").lock()?; // waits in line; renewed while it is held
//! println!("write with token {}", lease.token());
//! lease.release()?; // or drop it: released in the background
//! quorum.shutdown()?; // the last line of main: waits until every release is confirmed
//! # Ok(()) }
//! ```
//!
//! # Where it may be called
//! From any thread, by many at once: a [`Quorum`], what is made of it and a [`Lease`] are `Send + Sync`. Connections,
//! renewal and what goes on in the background live on one thread of their own, named `quorate`, with a runtime of its
//! own. When the last handle and the last lease are gone, it releases what is left, and ends. But it ends with the
//! process too: without [`Quorum::shutdown`] a lease that is dropped just before `main` returns may stay for its ttl.
//!
//! A program that forks or daemonizes connects after that: the thread does not come along.
//!
//! **Not in async code**: there a call that blocks would stop all other tasks of that thread, so each one returns
//! [`Error::Invalid`](crate::Error::Invalid) at once. Use the async primitives there, or tokio's `spawn_blocking` and
//! `block_in_place`, in which it may be called. (Tokio's tasks are recognised; other executors are not. Where tokio does not
//! count what a task does, under `tokio::task::unconstrained` and in what a runtime drops at its end, it is tokio that
//! refuses, by a panic, which is printed, and caught unless panics abort the program.) Dropping a lease never blocks, so that is allowed anywhere.
//!
//! # What is different
//! - A thread that waits cannot be cancelled. Give it a `wait_timeout`; [`Quorum::shutdown`] by another thread ends all waits
//!   with `Closed`.
//! - [`run`](Mutex::run) runs the work on the calling thread. Nothing can stop that when the lease is lost: the work looks at
//!   [`is_valid`](LeaseWatch::is_valid) before each step, and what it writes carries the [`token`](LeaseWatch::token).
//! - [`Lease::on_lost`] says when a lease is lost. There is no `guard`, and no `node_changes`: look at
//!   [`nodes`](Quorum::nodes).
//! - [`Quorum::in_memory`] can fail, as a thread is started.
//!
//! Coming from a `std` mutex, a file lock or `SET NX PX`: [faces](crate::docs::faces#threads).

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
