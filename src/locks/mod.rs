//! The handles that users hold, one file or folder for each primitive. A handle checks its settings, sends a request to
//! the engine and waits for the lease.

pub(crate) mod acquire;
pub(crate) mod handle;
pub(crate) mod mutex;
pub(crate) mod options;
pub(crate) mod rate_limiter;
pub(crate) mod reentrant;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
