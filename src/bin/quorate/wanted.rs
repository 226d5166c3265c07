//! What is wanted: a lock, or a slot of a semaphore; on the masters, or in Consul.

use std::time::Duration;

use quorate::{
    Error, Lease, Mutex, Quorum, Renewal, Semaphore,
    consul::{self, Consul},
};

/// One of them, with its settings.
pub(crate) enum Wanted {
    Mutex(Mutex),
    Semaphore(Semaphore),
    ConsulMutex(consul::Mutex),
    ConsulSemaphore(consul::Semaphore),
}

/// The same settings for a handle of any kind.
macro_rules! set {
    ($handle:expr, $ttl:expr, $wait:expr, $renewal:expr) => {{
        let handle = $handle.ttl($ttl).renewal($renewal);
        match $wait {
            Some(wait) => handle.wait_timeout(wait),
            None => handle,
        }
    }};
}

/// The same for each of them.
macro_rules! each {
    ($self:expr, $mutex:ident => $locks:expr, $semaphore:ident => $acquires:expr) => {
        match $self {
            Self::Mutex($mutex) => $locks,
            Self::ConsulMutex($mutex) => $locks,
            Self::Semaphore($semaphore) => $acquires,
            Self::ConsulSemaphore($semaphore) => $acquires,
        }
    };
}

impl Wanted {
    /// On the masters. `limit`: of a semaphore. `wait`: for how long at most.
    pub(crate) fn new(
        quorum: &Quorum,
        (name, limit): (&str, Option<u32>),
        ttl: Duration,
        wait: Option<Duration>,
        renewal: Renewal,
    ) -> Self {
        match limit {
            None => Self::Mutex(set!(quorum.mutex(name), ttl, wait, renewal)),
            Some(limit) => Self::Semaphore(set!(quorum.semaphore(name, limit), ttl, wait, renewal)),
        }
    }

    /// The same in Consul.
    pub(crate) fn in_consul(
        consul: &Consul,
        (name, limit): (&str, Option<u32>),
        ttl: Duration,
        wait: Option<Duration>,
        renewal: Renewal,
    ) -> Self {
        match limit {
            None => Self::ConsulMutex(set!(consul.mutex(name), ttl, wait, renewal)),
            Some(limit) => {
                Self::ConsulSemaphore(set!(consul.semaphore(name, limit), ttl, wait, renewal))
            }
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        each!(self, mutex => mutex.validate(), semaphore => semaphore.validate())
    }

    /// None if others have it.
    pub(crate) async fn try_take(&self) -> Result<Option<Lease>, Error> {
        each!(self, mutex => mutex.try_lock().await, semaphore => semaphore.try_acquire().await)
    }

    /// One attempt too, which says who has it: `Held`.
    pub(crate) async fn take_now(&self) -> Result<Lease, Error> {
        let now = Duration::ZERO;
        each!(self, mutex => mutex.clone().wait_timeout(now).lock().await,
            semaphore => semaphore.clone().wait_timeout(now).acquire().await)
    }

    /// Waits for it.
    pub(crate) async fn take(&self) -> Result<Lease, Error> {
        each!(self, mutex => mutex.lock().await, semaphore => semaphore.acquire().await)
    }
}
