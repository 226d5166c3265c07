//! Semaphores whose calls block: one text for that of a quorum and that of Consul.

use std::{fmt, sync::Arc, time::Duration};

use super::{Lease, LeaseWatch, lock::settings, root::Root};
use crate::{Error, Renewal};

/// A semaphore whose calls block.
macro_rules! semaphore {
    ($(#[$doc:meta])* $of:path, $shown:literal) => {
        $(#[$doc])*
        #[derive(Clone)]
        #[must_use = "a semaphore does nothing until it is acquired"]
        pub struct Semaphore {
            inner: $of,
            root: Arc<Root>,
        }

        impl Semaphore {
            settings!($of, $shown);

            #[doc = concat!("Waits for a permit, in line, as [`acquire`](", $shown, "::acquire) of the async one does.")]
            ///
            /// # Errors
            /// As there, and `Invalid` in async code.
            pub fn acquire(&self) -> Result<Lease, Error> {
                let lease = self.root.wait(self.inner.acquire())?;
                lease.map(|lease| Lease::new(lease, &self.root))
            }

            /// Takes a permit if one is free and nobody waits. `None` when none can be had.
            ///
            /// # Errors
            #[doc = concat!("As for [`try_acquire`](", $shown, "::try_acquire) of the async one, and `Invalid` in async code.")]
            pub fn try_acquire(&self) -> Result<Option<Lease>, Error> {
                let lease = self.root.wait(self.inner.try_acquire())??;
                Ok(lease.map(|lease| Lease::new(lease, &self.root)))
            }

            #[doc = concat!("Waits for `n` permits, all or none, as [`acquire_many`](", $shown, "::acquire_many) of the async one does.")]
            ///
            /// # Errors
            /// As there, and `Invalid` in async code.
            pub fn acquire_many(&self, n: u32) -> Result<Lease, Error> {
                let lease = self.root.wait(self.inner.acquire_many(n))?;
                lease.map(|lease| Lease::new(lease, &self.root))
            }

            /// How many permits are free: a snapshot, which may be over when you read it.
            ///
            /// # Errors
            #[doc = concat!("As for [`available`](", $shown, "::available) of the async one, and `Invalid` in async code.")]
            pub fn available(&self) -> Result<u32, Error> {
                self.root.wait(self.inner.available())?
            }

            #[doc = concat!("Changes the limit, for all clients, as [`resize`](", $shown, "::resize) of the async one does.")]
            ///
            /// # Errors
            /// As there, and `Invalid` in async code.
            pub fn resize(&self, limit: u32) -> Result<(), Error> {
                self.root.wait(self.inner.resize(limit))?
            }

            /// Acquires, does the work on this thread, releases, and waits until that is confirmed.
            ///
            /// Nothing stops the work when the lease is lost meanwhile: it looks at the watch. If it panics, the permit is
            /// released.
            ///
            /// # Errors
            /// - As for [`acquire`](Self::acquire).
            /// - `Lost` when the lease was lost before the work was done, whatever the work returned.
            ///
            /// A release that could not be confirmed is not an error of the work.
            pub fn run<T>(&self, work: impl FnOnce(LeaseWatch) -> T) -> Result<T, Error> {
                self.acquire()?.run(work)
            }

            /// Does what [`run`](Self::run) does if a permit is free; otherwise returns `None`.
            ///
            /// # Errors
            /// - As for [`try_acquire`](Self::try_acquire).
            /// - `Lost` as for [`run`](Self::run).
            pub fn try_run<T>(&self, work: impl FnOnce(LeaseWatch) -> T) -> Result<Option<T>, Error> {
                match self.try_acquire()? {
                    Some(lease) => lease.run(work).map(Some),
                    None => Ok(None),
                }
            }
        }

        impl fmt::Debug for Semaphore {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.inner.fmt(f)
            }
        }
    };
}
#[cfg(feature = "consul")]
pub(super) use semaphore;

semaphore! {
    /// A distributed counting semaphore whose calls block: [`quorate::Semaphore`](crate::Semaphore) for threads. Cheap to
    /// clone; settings are chained.
    ///
    /// ```
    /// # fn main() -> Result<(), quorate::Error> {
    /// let quorum = quorate::blocking::Quorum::in_memory(3)?;
    /// let workers = quorum.semaphore("thumbnails", 2);
    /// let (one, two) = (workers.acquire()?, workers.acquire()?);
    /// assert_ne!(one.slot(), two.slot());
    /// assert!(workers.try_acquire()?.is_none(), "both slots are taken");
    /// one.release()?;
    /// assert_eq!(workers.available()?, 1);
    /// # Ok(()) }
    /// ```
    crate::Semaphore, "crate::Semaphore"
}

impl Semaphore {
    /// The same semaphore for one of many, as [`quorate::Semaphore::keyed`](crate::Semaphore::keyed).
    pub fn keyed(&self, key: impl AsRef<str>) -> Self {
        Self::new(self.inner.keyed(key), &self.root)
    }

    /// The limit, as far as this handle knows. It does not wait.
    pub fn limit(&self) -> u32 {
        self.inner.limit()
    }

    /// Frees a slot on every voting node, no matter who holds it, as
    /// [`quorate::Semaphore::evict`](crate::Semaphore::evict).
    ///
    /// # Errors
    /// As there, and `Invalid` in async code.
    pub fn evict(&self, slot: u32) -> Result<bool, Error> {
        self.root.wait(self.inner.evict(slot))?
    }
}
