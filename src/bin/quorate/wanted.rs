//! What is wanted: a lock, or a slot of a semaphore.

use std::time::Duration;

use quorate::{Error, Lease, Mutex, Quorum, Renewal, Semaphore};

/// One of the two, with its settings.
pub(crate) enum Wanted {
    Mutex(Mutex),
    Semaphore(Semaphore),
}

impl Wanted {
    /// `limit`: of a semaphore. `wait`: for how long at most.
    pub(crate) fn new(
        quorum: &Quorum,
        (name, limit): (&str, Option<u32>),
        ttl: Duration,
        wait: Option<Duration>,
        renewal: Renewal,
    ) -> Self {
        match limit {
            None => {
                let mutex = quorum.mutex(name).ttl(ttl).renewal(renewal);
                Self::Mutex(match wait {
                    Some(wait) => mutex.wait_timeout(wait),
                    None => mutex,
                })
            }
            Some(limit) => {
                let semaphore = quorum.semaphore(name, limit).ttl(ttl).renewal(renewal);
                Self::Semaphore(match wait {
                    Some(wait) => semaphore.wait_timeout(wait),
                    None => semaphore,
                })
            }
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        match self {
            Self::Mutex(mutex) => mutex.validate(),
            Self::Semaphore(semaphore) => semaphore.validate(),
        }
    }

    /// None if others have it.
    pub(crate) async fn try_take(&self) -> Result<Option<Lease>, Error> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock().await,
            Self::Semaphore(semaphore) => semaphore.try_acquire().await,
        }
    }

    /// Waits for it.
    pub(crate) async fn take(&self) -> Result<Lease, Error> {
        match self {
            Self::Mutex(mutex) => mutex.lock().await,
            Self::Semaphore(semaphore) => semaphore.acquire().await,
        }
    }
}
