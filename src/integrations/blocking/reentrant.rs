//! A mutex that its holder may lock again, whose calls block.

use std::{fmt, sync::Arc, time::Duration};

use super::{Lease, LeaseWatch, lock::settings, root::Root};
use crate::{Error, Owner, Renewal};

/// A distributed mutex that its holder may lock again, whose calls block:
/// [`quorate::ReentrantMutex`](crate::ReentrantMutex) for threads. Cheap to clone; settings are chained.
///
/// The owner is the [`Owner`] that you pass, and not the thread: a thread that is to lock again has it with it, and may hand
/// it to others.
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

    /// Locks for this owner: at once if it holds the lock, otherwise it waits in line, as
    /// [`lock`](crate::ReentrantMutex::lock) of the async one does.
    ///
    /// # Errors
    /// As there, and `Invalid` in async code.
    pub fn lock(&self, owner: &Owner) -> Result<Lease, Error> {
        let lease = self.root.wait(self.inner.lock(owner))?;
        lease.map(|lease| Lease::new(lease, &self.root))
    }

    /// Locks for this owner if it holds the lock or if the lock is free. `None` when it cannot be won.
    ///
    /// # Errors
    /// As for [`try_lock`](crate::ReentrantMutex::try_lock) of the async one, and `Invalid` in async code.
    pub fn try_lock(&self, owner: &Owner) -> Result<Option<Lease>, Error> {
        let lease = self.root.wait(self.inner.try_lock(owner))??;
        Ok(lease.map(|lease| Lease::new(lease, &self.root)))
    }

    /// Locks for this owner, does the work on this thread, and releases this share, as [`Mutex::run`](super::Mutex::run)
    /// does.
    ///
    /// # Errors
    /// - As for [`lock`](Self::lock).
    /// - `Lost` when the lock was lost before the work was done, whatever the work returned.
    pub fn run<T>(&self, owner: &Owner, work: impl FnOnce(LeaseWatch) -> T) -> Result<T, Error> {
        self.lock(owner)?.run(work)
    }

    /// Does what [`run`](Self::run) does if this owner holds the lock or if it is free; otherwise returns `None`.
    ///
    /// # Errors
    /// - As for [`try_lock`](Self::try_lock).
    /// - `Lost` as for [`run`](Self::run).
    pub fn try_run<T>(
        &self,
        owner: &Owner,
        work: impl FnOnce(LeaseWatch) -> T,
    ) -> Result<Option<T>, Error> {
        match self.try_lock(owner)? {
            Some(lease) => lease.run(work).map(Some),
            None => Ok(None),
        }
    }
}

impl fmt::Debug for ReentrantMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
