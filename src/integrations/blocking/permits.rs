//! Semaphores whose calls block. One macro makes the semaphore of a quorum and that of Consul.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Lease, LeaseWatch,
    lock::{settings, verbs},
    root::Root,
};
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

            verbs! {
                $shown;
                #[doc = concat!("Waits for a permit in the queue, as [`acquire`](", $shown, "::acquire) of the async one does.")]
                acquire;
                /// Takes a permit if one is free and nobody waits. Returns `None` if no permit can be had.
                try_acquire;
                run, try_run;
            }

            #[doc = concat!("Waits for `n` permits, all or none, as [`acquire_many`](", $shown, "::acquire_many) of the async one does.")]
            ///
            /// # Errors
            /// As there, and `Invalid` in async code.
            pub fn acquire_many(&self, n: u32) -> Result<Lease, Error> {
                let lease = self.root.wait(self.inner.acquire_many(n))?;
                lease.map(|lease| Lease::new(lease, &self.root))
            }

            /// Returns how many permits are free. It is a snapshot, and may be outdated when you read it.
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
    /// A distributed counting semaphore whose calls block: [`quorate::Semaphore`](crate::Semaphore) for threads.
    ///
    /// It is cheap to clone, and its settings are chained.
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
    /// Returns the semaphore for one key, as [`quorate::Semaphore::keyed`](crate::Semaphore::keyed).
    pub fn keyed(&self, key: impl AsRef<str>) -> Self {
        Self::new(self.inner.keyed(key), &self.root)
    }

    /// The limit that this handle knows. It does not wait.
    pub fn limit(&self) -> u32 {
        self.inner.limit()
    }

    /// Frees a slot on every voting node, whoever holds it, as [`quorate::Semaphore::evict`](crate::Semaphore::evict).
    ///
    /// # Errors
    /// As there, and `Invalid` in async code.
    pub fn evict(&self, slot: u32) -> Result<bool, Error> {
        self.root.wait(self.inner.evict(slot))?
    }
}
