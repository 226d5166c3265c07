//! Mutexes whose calls block: one text for that of a quorum and that of Consul.

use std::{fmt, sync::Arc, time::Duration};

use super::{Lease, LeaseWatch, root::Root};
use crate::{Error, Renewal};

/// The settings of a handle that holds.
macro_rules! settings {
    ($of:path, $shown:literal) => {
        #[doc = concat!("As [`ttl`](", $shown, "::ttl) of the async one.")]
        pub fn ttl(mut self, d: Duration) -> Self {
            self.inner = self.inner.ttl(d);
            self
        }

        #[doc = concat!("As [`wait_timeout`](", $shown, "::wait_timeout) of the async one: how long a thread waits. Default: without a limit.")]
        pub fn wait_timeout(mut self, d: Duration) -> Self {
            self.inner = self.inner.wait_timeout(d);
            self
        }

        #[doc = concat!("As [`renewal`](", $shown, "::renewal) of the async one.")]
        pub fn renewal(mut self, renewal: Renewal) -> Self {
            self.inner = self.inner.renewal(renewal);
            self
        }

        #[doc = concat!("As [`lock_delay`](", $shown, "::lock_delay) of the async one.")]
        pub fn lock_delay(mut self, d: Duration) -> Self {
            self.inner = self.inner.lock_delay(d);
            self
        }

        /// Checks the name and the settings, without asking any server: for programs that report bad settings when they
        /// start. It does not wait.
        ///
        /// # Errors
        /// `Invalid`.
        pub fn validate(&self) -> Result<(), Error> {
            self.inner.validate()
        }

        pub(super) fn new(inner: $of, root: &Arc<Root>) -> Self {
            Self {
                inner,
                root: Arc::clone(root),
            }
        }
    };
}
pub(super) use settings;

/// A mutex whose calls block.
macro_rules! mutex {
    ($(#[$doc:meta])* $of:path, $shown:literal) => {
        $(#[$doc])*
        #[derive(Clone)]
        #[must_use = "a mutex does nothing until it is locked"]
        pub struct Mutex {
            inner: $of,
            root: Arc<Root>,
        }

        impl Mutex {
            settings!($of, $shown);

            #[doc = concat!("Waits for the lock, in line, as [`lock`](", $shown, "::lock) of the async one does.")]
            ///
            /// # Errors
            /// As there, and `Invalid` in async code.
            pub fn lock(&self) -> Result<Lease, Error> {
                let lease = self.root.wait(self.inner.lock())?;
                lease.map(|lease| Lease::new(lease, &self.root))
            }

            /// Takes the lock if it is free and nobody waits for it: one attempt. `None` when it cannot be won.
            ///
            /// # Errors
            #[doc = concat!("As for [`try_lock`](", $shown, "::try_lock) of the async one, and `Invalid` in async code.")]
            pub fn try_lock(&self) -> Result<Option<Lease>, Error> {
                let lease = self.root.wait(self.inner.try_lock())??;
                Ok(lease.map(|lease| Lease::new(lease, &self.root)))
            }

            /// Locks, does the work on this thread, releases, and waits until that is confirmed.
            ///
            /// Nothing stops the work when the lease is lost meanwhile: it looks at the watch. If it panics, the lock is
            /// released.
            ///
            /// # Errors
            /// - As for [`lock`](Self::lock).
            /// - `Lost` when the lease was lost before the work was done, whatever the work returned.
            ///
            /// A release that could not be confirmed is not an error of the work.
            pub fn run<T>(&self, work: impl FnOnce(LeaseWatch) -> T) -> Result<T, Error> {
                self.lock()?.run(work)
            }

            /// Does what [`run`](Self::run) does if the lock is free; otherwise returns `None`.
            ///
            /// # Errors
            /// - As for [`try_lock`](Self::try_lock).
            /// - `Lost` as for [`run`](Self::run).
            pub fn try_run<T>(&self, work: impl FnOnce(LeaseWatch) -> T) -> Result<Option<T>, Error> {
                match self.try_lock()? {
                    Some(lease) => lease.run(work).map(Some),
                    None => Ok(None),
                }
            }
        }

        impl fmt::Debug for Mutex {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.inner.fmt(f)
            }
        }
    };
}
#[cfg(feature = "consul")]
pub(super) use mutex;

mutex! {
    /// A distributed mutex whose calls block: [`quorate::Mutex`](crate::Mutex) for threads. Cheap to clone; settings are
    /// chained.
    ///
    /// ```
    /// # fn main() -> Result<(), quorate::Error> {
    /// use std::time::Duration;
    /// let quorum = quorate::blocking::Quorum::in_memory(3)?;
    /// let mutex = quorum.mutex("nightly").wait_timeout(Duration::from_secs(30));
    /// let rows = mutex.run(|watch| {
    ///     let mut rows = 0;
    ///     for _page in 0..3 {
    ///         if !watch.is_valid() {
    ///             break; // lost: `run` says so
    ///         }
    ///         rows += 100; // … import a page, with watch.token()
    ///     }
    ///     rows
    /// })?;
    /// assert_eq!(rows, 300);
    /// # Ok(()) }
    /// ```
    crate::Mutex, "crate::Mutex"
}
