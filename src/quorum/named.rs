//! The primitives of a quorum, each by its name.

use std::sync::Arc;

use crate::{Mutex, Quorum, Quota, RateLimiter, ReentrantMutex, RwLock, Semaphore};

/// Each of these calls returns at once and asks no node. Names have 1 to 512 bytes of free text, and are checked when
/// they are used.
impl Quorum {
    /// Returns the mutex with this name: one holder at a time.
    ///
    /// The name has 1 to 512 bytes of free text, and is checked when the mutex is locked.
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex::new(self.engine.clone(), name.into().into(), self.limits.max_ttl)
    }

    /// Returns one mutex over several names (1 to 64): all of them are locked, or none.
    ///
    /// It and [`mutex`](Self::mutex) of any of the names exclude each other. The order of the names does not matter,
    /// and a name that is given twice counts once. Two sets that overlap never wait for each other for ever.
    ///
    /// Each node takes all names in one script. The lease has one token, greater than the last token of each name, so
    /// the stores behind all of them can check it. [`Lease::name`](crate::Lease::name) is the sorted names, separated
    /// by commas.
    ///
    /// A set has no place in any queue. While it waits it holds nothing and asks again from time to time (after 100 ms
    /// at the latest). It lets all waiters pass that queue for one of its names. So it may wait long beside a name that
    /// is always taken, and the longer the more names it has: [guarantees](crate::docs::guarantees) has measurements.
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

    /// Returns the read-write lock with this name: many readers or one writer at a time.
    ///
    /// A mutex of the same name is another lock.
    pub fn rwlock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(self.engine.clone(), name.into().into(), self.limits.max_ttl)
    }

    /// Returns the mutex with this name as one that its holder may lock again. The holder is an explicit
    /// [`Owner`](crate::Owner).
    ///
    /// It and [`mutex`](Self::mutex) of the same name exclude each other.
    pub fn reentrant_mutex(&self, name: impl Into<String>) -> ReentrantMutex {
        let name: Arc<str> = name.into().into();
        ReentrantMutex::new(self.mutex(&*name), name)
    }

    /// Returns the semaphore with this name and `limit` slots (1 to 65,536): at most that many leases at a time.
    ///
    /// A mutex of the same name is another lock. All programs have to give the same limit.
    pub fn semaphore(&self, name: impl Into<String>, limit: u32) -> Semaphore {
        let max_ttl = self.limits.max_ttl;
        Semaphore::new(self.engine.clone(), name.into().into(), limit, max_ttl)
    }

    /// Returns the rate limiter with this name and quota: at most that many units in any interval.
    ///
    /// All limiters of a quorum with the same name and the same settings share what they know, and one queue, so one may
    /// be made for each request. Poll or drop the futures of their calls: one that is kept and not polled may hold up the
    /// others. Only a [block](RateLimiter::block) belongs to one limiter and its clones. The same name with another limit for the same interval shares the count, except for [small
    /// limits](crate::docs::rates#changing-a-limit).
    pub fn rate_limiter(&self, name: impl Into<String>, quota: Quota) -> RateLimiter {
        let (masters, limiters) = (self.limits.masters, Arc::clone(&self.limiters));
        RateLimiter::new(
            self.engine.clone(),
            name.into().into(),
            quota,
            masters,
            limiters,
        )
    }
}
