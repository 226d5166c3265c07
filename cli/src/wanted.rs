//! What is wanted: a lock, a side of a read-write lock, or a slot of a semaphore; on the masters, or in Consul.

use std::time::Duration;

#[cfg(feature = "consul")]
use quorate::consul::{self, Consul};
use quorate::{Error, Lease, Mutex, Quorum, Renewal, RwLock, Semaphore};

use crate::args::Asked;

/// One of them, with its settings.
#[derive(Clone)]
pub(crate) enum Wanted {
    /// Of one name, or of several.
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Semaphore(Semaphore),
    #[cfg(feature = "consul")]
    ConsulMutex(consul::Mutex),
    #[cfg(feature = "consul")]
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
    ($self:expr, $mutex:ident => $locks:expr, $semaphore:ident => $acquires:expr,
     $rwlock:ident => $reads:expr, $writes:expr) => {
        match $self {
            Self::Mutex($mutex) => $locks,
            #[cfg(feature = "consul")]
            Self::ConsulMutex($mutex) => $locks,
            Self::Semaphore($semaphore) => $acquires,
            #[cfg(feature = "consul")]
            Self::ConsulSemaphore($semaphore) => $acquires,
            Self::Read($rwlock) => $reads,
            Self::Write($rwlock) => $writes,
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

    /// What was asked for on the command line, on the masters.
    pub(crate) fn of(
        quorum: &Quorum,
        asked: &Asked,
        ttl: Duration,
        wait: Option<Duration>,
        renewal: Renewal,
    ) -> Self {
        let rwlock = |name: &str| set!(quorum.rwlock(name), ttl, wait, renewal);
        match asked {
            Asked::Mutex(name) => Self::new(quorum, (name, None), ttl, wait, renewal),
            Asked::Slot { name, limit } => {
                Self::new(quorum, (name, Some(*limit)), ttl, wait, renewal)
            }
            Asked::Several(names) => Self::Mutex(set!(quorum.mutex_all(names), ttl, wait, renewal)),
            Asked::Read(name) => Self::Read(rwlock(name)),
            Asked::Write(name) => Self::Write(rwlock(name)),
        }
    }

    /// The same in Consul.
    #[cfg(feature = "consul")]
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
        each!(self, mutex => mutex.validate(), semaphore => semaphore.validate(),
            rwlock => rwlock.validate(), rwlock.validate())
    }

    /// None if others have it.
    pub(crate) async fn try_take(&self) -> Result<Option<Lease>, Error> {
        each!(self, mutex => mutex.try_lock().await, semaphore => semaphore.try_acquire().await,
            rwlock => rwlock.try_read().await, rwlock.try_write().await)
    }

    /// One attempt too, which says who has it: `Held`.
    pub(crate) async fn take_now(&self) -> Result<Lease, Error> {
        let now = Duration::ZERO;
        each!(self, mutex => mutex.clone().wait_timeout(now).lock().await,
            semaphore => semaphore.clone().wait_timeout(now).acquire().await,
            rwlock => rwlock.clone().wait_timeout(now).read().await,
            rwlock.clone().wait_timeout(now).write().await)
    }

    /// Waits for it.
    pub(crate) async fn take(&self) -> Result<Lease, Error> {
        each!(self, mutex => mutex.lock().await, semaphore => semaphore.acquire().await,
            rwlock => rwlock.read().await, rwlock.write().await)
    }
}
