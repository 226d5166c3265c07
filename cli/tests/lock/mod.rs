//! Commands that run under a lock, a slot of a semaphore, or a rate limit.

mod basics;
#[cfg(feature = "consul")]
mod consul;
mod flock;
mod limit;
mod rwlock;
mod semaphore;
mod shutdown;
mod signals;
mod terminal;
