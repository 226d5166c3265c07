//! Leases and their watches, for threads.

use std::{fmt, sync::Arc, time::Duration};

use super::root::Root;
use crate::{Error, FencingToken, LossReason, locks::handle};

/// A held lock or permit: [`quorate::Lease`](crate::Lease) for threads.
///
/// Dropping it releases it in the background, from any thread, also in async code, without blocking. It has no `guard`:
/// [`on_lost`](Self::on_lost) tells of a loss.
///
/// ```
/// # fn main() -> Result<(), quorate::Error> {
/// let quorum = quorate::blocking::Quorum::in_memory(3)?;
/// let lease = quorum.mutex("import").lock()?;
/// lease.on_lost(|reason| eprintln!("the import has to stop: {reason}"));
/// assert!(lease.is_valid());
/// lease.release()?;
/// # Ok(()) }
/// ```
#[must_use = "a lease that is dropped is released at once"]
pub struct Lease {
    // Dropped before `root`, so that the thread that releases it has not ended.
    lease: crate::Lease,
    root: Arc<Root>,
}

/// A view of a [`Lease`] that other threads may keep: [`quorate::LeaseWatch`](crate::LeaseWatch) for threads. It does
/// not keep the lease.
#[derive(Clone)]
pub struct LeaseWatch {
    watch: crate::LeaseWatch,
    root: Arc<Root>,
}

/// The methods that a lease and its watch share.
macro_rules! tells {
    ($field:ident) => {
        /// The lock's name.
        pub fn name(&self) -> &str {
            self.$field.name()
        }

        /// The fencing token. The store refuses an older one.
        pub fn token(&self) -> FencingToken {
            self.$field.token()
        }

        /// The time that is left, by this process's own clock. Zero once the lease is over.
        pub fn validity(&self) -> Duration {
            self.$field.validity()
        }

        /// Returns true while any validity is left. Once false, it stays false.
        pub fn is_valid(&self) -> bool {
            self.$field.is_valid()
        }

        /// Tells a lease with [`Renewal::heartbeat`](crate::Renewal::heartbeat) that the work goes on. It costs one
        /// atomic store.
        pub fn beat(&self) {
            self.$field.beat();
        }

        /// Waits until the lease is lost. A watch waits until the lease is over.
        ///
        /// # Errors
        /// `Invalid` in async code.
        pub fn lost(&self) -> Result<LossReason, Error> {
            self.root.wait(self.$field.lost())
        }
    };
}

impl Lease {
    pub(super) fn new(lease: crate::Lease, root: &Arc<Root>) -> Self {
        let root = Arc::clone(root);
        Self { lease, root }
    }

    tells!(lease);

    /// The slot of a semaphore that it holds, as [`quorate::Lease::slot`](crate::Lease::slot).
    pub fn slot(&self) -> Option<u32> {
        self.lease.slot()
    }

    /// The slots of a semaphore that it holds, as [`quorate::Lease::slots`](crate::Lease::slots).
    pub fn slots(&self) -> &[u32] {
        self.lease.slots()
    }

    /// The token of each slot, as [`quorate::Lease::tokens`](crate::Lease::tokens).
    pub fn tokens(&self) -> Vec<FencingToken> {
        self.lease.tokens()
    }

    /// How long the lease has been held, as [`quorate::Lease::held_for`](crate::Lease::held_for).
    pub fn held_for(&self) -> Duration {
        self.lease.held_for()
    }

    /// Extends the lease to its full ttl, now, on a majority, as [`quorate::Lease::extend`](crate::Lease::extend).
    ///
    /// # Errors
    /// As there, and `Invalid` in async code.
    pub fn extend(&self) -> Result<(), Error> {
        self.root.wait(self.lease.extend())?
    }

    /// Makes a reader of a lease of [`RwLock::write`](super::RwLock::write), as
    /// [`quorate::Lease::downgrade`](crate::Lease::downgrade).
    ///
    /// # Errors
    /// As there. In async code `Invalid`: then it stays a writer's.
    pub fn downgrade(&self) -> Result<(), Error> {
        // The call alone would make a reader of it, even if this thread may not wait.
        self.root.wait(async { self.lease.downgrade().await })?
    }

    /// Calls `f` on another thread when the lease is lost. `f` may block, and may call this module. Several callbacks
    /// may be set.
    ///
    /// A loss is announced max(20 ms, ttl / 20) before the validity ends, or at once if the nodes say that the lease is
    /// lost. `f` is not called if you release, drop or abandon the lease first.
    ///
    /// - `f` has to end at some time: no more than 512 callbacks run at once.
    /// - `f` must not own the lease, which would then never be dropped. Give it a [`watch`](Self::watch).
    /// - If `f` is not called, its values are dropped on the thread of the connections. So dropping them must not
    ///   block.
    pub fn on_lost(&self, f: impl FnOnce(LossReason) + Send + 'static) {
        let watch = self.lease.watch();
        let lost = async move {
            let reason = watch.lost().await;
            (reason != LossReason::Released).then_some(reason)
        };
        self.root.call_after(lost, f);
    }

    /// Returns a view of this lease for other threads. The view does not keep the lease.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch {
            watch: self.lease.watch(),
            root: Arc::clone(&self.root),
        }
    }

    /// Frees the lock and waits until a majority confirms, as [`quorate::Lease::release`](crate::Lease::release).
    ///
    /// # Errors
    /// As there. In async code `Invalid`: then it is released in the background.
    pub fn release(self) -> Result<(), Error> {
        let Self { lease, root } = self;
        root.wait(lease.release())?
    }

    /// Stops renewing, and leaves the lock to its ttl. Nobody else gets the lock before the ttl is over.
    pub fn abandon(self) {
        self.lease.abandon();
    }

    /// Does the work, releases the lease, and waits for the release.
    pub(super) fn run<T>(self, work: impl FnOnce(LeaseWatch) -> T) -> Result<T, Error> {
        let Self { lease, root } = self;
        let watch = LeaseWatch {
            watch: lease.watch(),
            root: Arc::clone(&root),
        };
        // If the work panics, the lease is dropped.
        let done = work(watch);
        root.wait(handle::run(lease, |_| async move { done }))?
    }
}

impl LeaseWatch {
    tells!(watch);
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watch.fmt(f)
    }
}
