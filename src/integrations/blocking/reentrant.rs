//! A mutex that its holder may lock again, whose calls block.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Lease, LeaseWatch,
    lock::{settings, verbs},
    root::Root,
};
use crate::{Error, Owner, Renewal};

/// A distributed mutex that its holder may lock again, whose calls block:
/// [`quorate::ReentrantMutex`](crate::ReentrantMutex) for threads.
///
/// It is cheap to clone, and its settings are chained. A lease is one share of the lock, as for the [async
/// one](crate::ReentrantMutex). [`run`](Self::run) releases its own share.
///
/// The holder is the [`Owner`] that you pass, and not the thread. A thread that locks again needs the owner, and may
/// hand it to other threads.
///
/// ```
/// # fn main() -> Result<(), quorate::Error> {
/// let mutex = quorate::blocking::Quorum::in_memory(3)?.reentrant_mutex("account:7");
/// let owner = quorate::Owner::new();
/// let outer = mutex.lock(&owner)?;
/// let inner = mutex.lock(&owner)?; // at once
/// assert_eq!(outer.token(), inner.token());
/// outer.release()?;
/// inner.release()?; // frees it
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct ReentrantMutex {
    inner: crate::ReentrantMutex,
    root: Arc<Root>,
}

impl ReentrantMutex {
    settings!(crate::ReentrantMutex, "crate::ReentrantMutex");

    verbs! {
        "crate::ReentrantMutex";
        /// Locks for this owner, as [`lock`](crate::ReentrantMutex::lock) of the async one does. If the owner holds the
        /// lock, it returns at once; otherwise it queues.
        lock;
        /// Locks for this owner if it holds the lock or if the lock is free. Returns `None` if it cannot be won.
        try_lock;
        run, try_run;
        owner: &Owner;
    }
}

impl fmt::Debug for ReentrantMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
