//! A read-write lock whose calls block.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Lease, LeaseWatch,
    lock::{settings, verbs},
    root::Root,
};
use crate::{Error, Renewal};

/// A distributed read-write lock whose calls block: [`quorate::RwLock`](crate::RwLock) for threads.
///
/// It is cheap to clone, and its settings are chained.
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

    verbs! {
        "crate::RwLock";
        /// Waits until it may read beside other readers, as [`read`](crate::RwLock::read) of the async one does.
        read;
        /// Reads if no writer holds the lock or waits for it, in one attempt. Returns `None` if it cannot be won.
        try_read;
        run_read, try_run_read;
    }

    verbs! {
        "crate::RwLock";
        /// Waits until it may write alone, as [`write`](crate::RwLock::write) of the async one does. While it waits,
        /// new readers stay out.
        write;
        /// Writes if nobody holds the lock, in one attempt. Returns `None` if it cannot be won.
        try_write;
        run_write, try_run_write;
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
