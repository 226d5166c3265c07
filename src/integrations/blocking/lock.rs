//! The settings and verbs of all handles of leases whose calls block, and mutexes. One macro makes the mutex of a
//! quorum and that of Consul.

use std::{fmt, sync::Arc, time::Duration};

use super::{Lease, LeaseWatch, root::Root};
use crate::{Error, Renewal};

/// The settings of a handle of leases.
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

        #[doc = concat!("As [`label`](", $shown, "::label) of the async one.")]
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.inner = self.inner.label(label);
            self
        }

        /// Checks the name and the settings without asking any server, for programs that report bad settings when they
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

/// The verbs of a handle of leases: wait, try, and both with work on this thread. All may have an argument.
macro_rules! verbs {
    (
        $shown:literal;
        $(#[$doc:meta])*
        $lock:ident;
        $(#[$try_doc:meta])*
        $try_lock:ident;
        $run:ident, $try_run:ident;
        $($owner:ident: $Owner:ty;)?
    ) => {
        $(#[$doc])*
        ///
        /// # Errors
        #[doc = concat!("As for [`", stringify!($lock), "`](", $shown, "::", stringify!($lock), ") of the async one, and `Invalid` in async code.")]
        pub fn $lock(&self $(, $owner: $Owner)?) -> Result<Lease, Error> {
            let lease = self.root.wait(self.inner.$lock($($owner)?))?;
            lease.map(|lease| Lease::new(lease, &self.root))
        }

        $(#[$try_doc])*
        ///
        /// # Errors
        #[doc = concat!("As for [`", stringify!($try_lock), "`](", $shown, "::", stringify!($try_lock), ") of the async one, and `Invalid` in async code.")]
        pub fn $try_lock(&self $(, $owner: $Owner)?) -> Result<Option<Lease>, Error> {
            let lease = self.root.wait(self.inner.$try_lock($($owner)?))??;
            Ok(lease.map(|lease| Lease::new(lease, &self.root)))
        }

        #[doc = concat!("Waits as [`", stringify!($lock), "`](Self::", stringify!($lock), ") does, does the work on this thread, releases, and waits until that is confirmed.")]
        ///
        /// Nothing stops the work if the lease is lost meanwhile, so let the work look at the watch. If the work
        /// panics, the lease is released.
        ///
        /// # Errors
        #[doc = concat!("- As for [`", stringify!($lock), "`](Self::", stringify!($lock), ").")]
        /// - `Lost` if the lease was lost before the work was done. The result of the work is dropped.
        ///
        /// It is not an error if the release cannot be confirmed.
        pub fn $run<T>(
            &self,
            $($owner: $Owner,)?
            work: impl FnOnce(LeaseWatch) -> T,
        ) -> Result<T, Error> {
            self.$lock($($owner)?)?.run(work)
        }

        #[doc = concat!("Does what [`", stringify!($run), "`](Self::", stringify!($run), ") does if [`", stringify!($try_lock), "`](Self::", stringify!($try_lock), ") wins. Otherwise it returns `None`.")]
        ///
        /// # Errors
        #[doc = concat!("- As for [`", stringify!($try_lock), "`](Self::", stringify!($try_lock), ").")]
        #[doc = concat!("- `Lost` as for [`", stringify!($run), "`](Self::", stringify!($run), ").")]
        pub fn $try_run<T>(
            &self,
            $($owner: $Owner,)?
            work: impl FnOnce(LeaseWatch) -> T,
        ) -> Result<Option<T>, Error> {
            let lease = self.$try_lock($($owner)?)?;
            lease.map(|lease| lease.run(work)).transpose()
        }
    };
}
pub(super) use verbs;

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

            verbs! {
                $shown;
                #[doc = concat!("Waits for the lock in the queue, as [`lock`](", $shown, "::lock) of the async one does.")]
                lock;
                /// Takes the lock if it is free and nobody waits for it, in one attempt. Returns `None` if it cannot be
                /// won.
                try_lock;
                run, try_run;
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
    /// A distributed mutex whose calls block: [`quorate::Mutex`](crate::Mutex) for threads.
    ///
    /// It is cheap to clone, and its settings are chained.
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
    ///             break; // lost: `run` returns that as an error
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
