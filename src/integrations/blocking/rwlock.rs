//! A read-write lock whose calls block.

use std::{fmt, sync::Arc, time::Duration};

use super::{Lease, LeaseWatch, lock::settings, root::Root};
use crate::{Error, Renewal};

/// A distributed read-write lock whose calls block: [`quorate::RwLock`](crate::RwLock) for threads. Cheap to clone; settings
/// are chained.
///
/// ```
/// # fn main() -> Result<(), quorate::Error> {
/// let quorum = quorate::blocking::Quorum::in_memory(3)?;
/// let index = quorum.rwlock("index");
/// let (one, other) = (index.read()?, index.read()?);
/// assert!(index.try_write()?.is_none(), "it is being read");
/// one.release()?;
/// other.release()?;
/// let rebuilt = index.write()?;
/// rebuilt.downgrade()?; // others may read beside it now
/// assert!(index.try_read()?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a lock does nothing until it is locked"]
pub struct RwLock {
    inner: crate::RwLock,
    root: Arc<Root>,
}

impl RwLock {
    settings!(crate::RwLock, "crate::RwLock");

    /// Waits until it may read beside other readers, as [`read`](crate::RwLock::read) of the async one does.
    ///
    /// # Errors
    /// As there, and `Invalid` in async code.
    pub fn read(&self) -> Result<Lease, Error> {
        let lease = self.root.wait(self.inner.read())?;
        lease.map(|lease| Lease::new(lease, &self.root))
    }

    /// Waits until it may write alone, as [`write`](crate::RwLock::write) of the async one does. While it waits no new reader
    /// comes in.
    ///
    /// # Errors
    /// As there, and `Invalid` in async code.
    pub fn write(&self) -> Result<Lease, Error> {
        let lease = self.root.wait(self.inner.write())?;
        lease.map(|lease| Lease::new(lease, &self.root))
    }

    /// Reads if no writer has the lock or waits for it: one attempt. `None` when it cannot be won.
    ///
    /// # Errors
    /// As for [`try_read`](crate::RwLock::try_read) of the async one, and `Invalid` in async code.
    pub fn try_read(&self) -> Result<Option<Lease>, Error> {
        let lease = self.root.wait(self.inner.try_read())??;
        Ok(lease.map(|lease| Lease::new(lease, &self.root)))
    }

    /// Writes if nobody has the lock: one attempt. `None` when it cannot be won.
    ///
    /// # Errors
    /// As for [`try_write`](crate::RwLock::try_write) of the async one, and `Invalid` in async code.
    pub fn try_write(&self) -> Result<Option<Lease>, Error> {
        let lease = self.root.wait(self.inner.try_write())??;
        Ok(lease.map(|lease| Lease::new(lease, &self.root)))
    }

    /// Locks for reading, does the work on this thread, releases, and waits until that is confirmed, as
    /// [`Mutex::run`](super::Mutex::run) does.
    ///
    /// # Errors
    /// - As for [`read`](Self::read).
    /// - `Lost` when the lease was lost before the work was done, whatever the work returned.
    pub fn run_read<T>(&self, work: impl FnOnce(LeaseWatch) -> T) -> Result<T, Error> {
        self.read()?.run(work)
    }

    /// Locks for writing, and does what [`run_read`](Self::run_read) does.
    ///
    /// # Errors
    /// - As for [`write`](Self::write).
    /// - `Lost` as for [`run_read`](Self::run_read).
    pub fn run_write<T>(&self, work: impl FnOnce(LeaseWatch) -> T) -> Result<T, Error> {
        self.write()?.run(work)
    }

    /// Does what [`run_read`](Self::run_read) does if [`try_read`](Self::try_read) wins; otherwise returns `None`.
    ///
    /// # Errors
    /// - As for [`try_read`](Self::try_read).
    /// - `Lost` as for [`run_read`](Self::run_read).
    pub fn try_run_read<T>(&self, work: impl FnOnce(LeaseWatch) -> T) -> Result<Option<T>, Error> {
        let lease = self.try_read()?;
        lease.map(|lease| lease.run(work)).transpose()
    }

    /// Does what [`run_write`](Self::run_write) does if [`try_write`](Self::try_write) wins; otherwise returns `None`.
    ///
    /// # Errors
    /// - As for [`try_write`](Self::try_write).
    /// - `Lost` as for [`run_read`](Self::run_read).
    pub fn try_run_write<T>(&self, work: impl FnOnce(LeaseWatch) -> T) -> Result<Option<T>, Error> {
        let lease = self.try_write()?;
        lease.map(|lease| lease.run(work)).transpose()
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
