//! The front door for programs of threads.

use std::{fmt, sync::Arc, time::Duration};

use super::{Mutex, RateLimiter, ReentrantMutex, RwLock, Semaphore, root::Root};
use crate::{Error, Health, Inspection, NodeStatus, Quota};

/// A client of N independent masters whose calls block: [`quorate::Quorum`](crate::Quorum) for threads.
///
/// It is cheap to clone, and clones share one set of connections and one thread.
///
/// Each call that waits returns `Invalid` in async code.
#[derive(Clone)]
pub struct Quorum {
    quorum: crate::Quorum,
    root: Arc<Root>,
}

impl Quorum {
    pub(super) fn new(root: Arc<Root>, quorum: crate::Quorum) -> Self {
        let last = quorum.clone();
        root.at_the_end(move || {
            let end = last.shutdown();
            async move { drop(end.await) }
        });
        Self { quorum, root }
    }

    /// Makes a quorum of `n` masters inside this process (at least 1), which vote at once: for demos and tests.
    ///
    /// # Errors
    /// - `Invalid` in async code.
    /// - `System` if no thread can be started.
    pub fn in_memory(n: usize) -> Result<Self, Error> {
        let root = Root::start()?;
        let quorum = root.within(|| crate::Quorum::in_memory(n));
        Ok(Self::new(root, quorum))
    }

    /// The mutex with this name, as [`quorate::Quorum::mutex`](crate::Quorum::mutex).
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex::new(self.quorum.mutex(name), &self.root)
    }

    /// One mutex over several names (1 to 64), as [`quorate::Quorum::mutex_all`](crate::Quorum::mutex_all): all of them
    /// are locked, or none.
    pub fn mutex_all<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> Mutex {
        Mutex::new(self.quorum.mutex_all(names), &self.root)
    }

    /// The read-write lock with this name, as [`quorate::Quorum::rwlock`](crate::Quorum::rwlock).
    pub fn rwlock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(self.quorum.rwlock(name), &self.root)
    }

    /// The mutex with this name as one that its holder may lock again, as
    /// [`quorate::Quorum::reentrant_mutex`](crate::Quorum::reentrant_mutex).
    pub fn reentrant_mutex(&self, name: impl Into<String>) -> ReentrantMutex {
        ReentrantMutex::new(self.quorum.reentrant_mutex(name), &self.root)
    }

    /// The semaphore with this name and `limit` slots, as [`quorate::Quorum::semaphore`](crate::Quorum::semaphore).
    pub fn semaphore(&self, name: impl Into<String>, limit: u32) -> Semaphore {
        Semaphore::new(self.quorum.semaphore(name, limit), &self.root)
    }

    /// The rate limiter with this name and quota, as [`quorate::Quorum::rate_limiter`](crate::Quorum::rate_limiter).
    pub fn rate_limiter(&self, name: impl Into<String>, quota: Quota) -> RateLimiter {
        RateLimiter::new(self.quorum.rate_limiter(name, quota), &self.root)
    }

    /// Asks every node about a name, as [`quorate::Quorum::inspect`](crate::Quorum::inspect).
    ///
    /// # Errors
    /// As there.
    pub fn inspect(&self, name: impl Into<String>) -> Result<Inspection, Error> {
        self.root.wait(self.quorum.inspect(name))?
    }

    /// Frees the mutex and the read-write lock of a name on every voting node, as
    /// [`quorate::Quorum::evict`](crate::Quorum::evict). Returns true if one of them was held.
    ///
    /// # Errors
    /// As there.
    pub fn evict(&self, name: impl Into<String>) -> Result<bool, Error> {
        self.root.wait(self.quorum.evict(name))?
    }

    /// Waits until a majority of nodes answers, as [`quorate::Quorum::ready`](crate::Quorum::ready).
    ///
    /// # Errors
    /// As there.
    pub fn ready(&self) -> Result<(), Error> {
        self.root.wait(self.quorum.ready())?
    }

    /// Waits until a majority of nodes votes, as [`quorate::Quorum::voting`](crate::Quorum::voting).
    ///
    /// # Errors
    /// As there.
    pub fn voting(&self, within: Duration) -> Result<(), Error> {
        self.root.wait(self.quorum.voting(within))?
    }

    /// Admits brand-new masters, as [`quorate::Quorum::bootstrap`](crate::Quorum::bootstrap). Read there when it may be
    /// called.
    ///
    /// # Errors
    /// As there.
    pub fn bootstrap(&self) -> Result<(), Error> {
        self.root.wait(self.quorum.bootstrap())?
    }

    /// As [`quorate::Quorum::bootstrap_forced`](crate::Quorum::bootstrap_forced). Read there when it is safe.
    ///
    /// # Errors
    /// As there.
    pub fn bootstrap_forced(&self) -> Result<(), Error> {
        self.root.wait(self.quorum.bootstrap_forced())?
    }

    /// Raises the fleet's `max_ttl` and restart margin, as
    /// [`quorate::Quorum::raise_terms`](crate::Quorum::raise_terms).
    ///
    /// # Errors
    /// As there.
    pub fn raise_terms(&self) -> Result<(), Error> {
        self.root.wait(self.quorum.raise_terms())?
    }

    /// Returns the state of every node, in the order in which they were given. It does not wait.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.quorum.nodes()
    }

    /// Returns how many nodes vote and how many are needed, for a probe. It does not wait.
    pub fn health(&self) -> Health {
        self.quorum.health()
    }

    /// The word that all clients of these masters have to share. It does not wait.
    pub fn fleet(&self) -> &str {
        self.quorum.fleet()
    }

    /// Waits until [`shutdown`](Self::shutdown) begins, as
    /// [`quorate::Quorum::closing`](crate::Quorum::closing). For a thread that then lets others drop what they hold.
    /// It needs a handle of its own, so while it waits, only `shutdown` ends the background work.
    ///
    /// # Errors
    /// `Invalid` in async code.
    pub fn closing(&self) -> Result<(), Error> {
        self.root.wait(self.quorum.closing())
    }

    /// Ends this quorum for all clones, and waits until its leases are released. Make it the last line of `main`.
    ///
    /// It returns the names that are still held after the `shutdown_timeout`, as
    /// [`quorate::Quorum::shutdown`](crate::Quorum::shutdown) does. Threads that wait get `Closed`.
    ///
    /// # Errors
    /// `Invalid` in async code: then nothing has ended.
    pub fn shutdown(&self) -> Result<Vec<String>, Error> {
        self.root.wait(async { self.quorum.shutdown().await })
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.quorum.fmt(f)
    }
}
