//! What a quorum has by a name.

use std::sync::Arc;

use crate::{Mutex, Quorum, Quota, RateLimiter, ReentrantMutex, RwLock, Semaphore};

/// Each of these is made at once, and asks no node. Its name, 1 to 512 bytes of free text, is checked when it is used.
impl Quorum {
    /// The mutex with this name: 1 to 512 bytes of free text, checked when the mutex is locked.
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex::new(self.engine.clone(), name.into().into(), self.limits.max_ttl)
    }

    /// The mutexes with these names, 1 to 64 of them, as one: all are locked, or none. It and [`mutex`](Self::mutex) of any
    /// of the names exclude each other. A name that is there twice counts once, and the order does not matter: whoever
    /// names them, and in whatever order, two sets that overlap do not wait for each other for ever.
    ///
    /// Each node takes all of them by one script. The lease has one token, newer than the last one of each name, and so one
    /// for the stores behind all of them. [`Lease::name`](crate::Lease::name) is the sorted names with commas between them.
    ///
    /// It has no place in any line. While it waits it holds nothing, asks again from time to time (after 100 ms at the
    /// latest), and lets all pass that wait in line for one of its names. So it may wait for long beside a name that is
    /// always taken, the longer the more names it has: [guarantees](crate::docs::guarantees) has measurements.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let quorum = quorate::Quorum::in_memory(3);
    /// let both = quorum.mutex_all(["account:7", "account:12"]);
    /// let lease = both.lock().await?;
    /// assert!(quorum.mutex("account:12").try_lock().await?.is_none());
    /// lease.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn mutex_all<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> Mutex {
        let names = names.into_iter().map(|name| name.into().into());
        Mutex::of_several(self.engine.clone(), names.collect(), self.limits.max_ttl)
    }

    /// The read-write lock with this name: many may read, or one write. Its name is its own: a mutex of the same name is
    /// another thing.
    pub fn rwlock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(self.engine.clone(), name.into().into(), self.limits.max_ttl)
    }

    /// The mutex with this name, as one that its holder may lock again: with an explicit [`Owner`](crate::Owner). It and
    /// [`mutex`](Self::mutex) of the same name exclude each other.
    pub fn reentrant_mutex(&self, name: impl Into<String>) -> ReentrantMutex {
        let name: Arc<str> = name.into().into();
        ReentrantMutex::new(self.mutex(&*name), name)
    }

    /// The semaphore with this name and so many slots (1 to 65,536): at most that many leases at a time. Its name is its
    /// own: a mutex of the same name is another thing.
    pub fn semaphore(&self, name: impl Into<String>, limit: u32) -> Semaphore {
        let max_ttl = self.limits.max_ttl;
        Semaphore::new(self.engine.clone(), name.into().into(), limit, max_ttl)
    }

    /// The rate limiter with this name and quota: at most so many units in any interval. Clones share what they know. Its
    /// name is its own, and so is each quota: with another one it counts anew.
    pub fn rate_limiter(&self, name: impl Into<String>, quota: Quota) -> RateLimiter {
        let masters = self.limits.masters;
        RateLimiter::new(self.engine.clone(), name.into().into(), quota, masters)
    }
}
