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

/// How it is taken and held.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    /// The longest wait for it.
    pub(crate) wait: Option<Duration>,
    pub(crate) renewal: Renewal,
}

/// The same settings for a handle of any kind.
macro_rules! set {
    ($handle:expr, $terms:expr) => {{
        let handle = $handle.ttl($terms.ttl).renewal($terms.renewal);
        match $terms.wait {
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
    /// On the masters. `limit`: of a semaphore.
    pub(crate) fn new(quorum: &Quorum, name: &str, limit: Option<u32>, terms: Terms) -> Self {
        match limit {
            None => Self::Mutex(set!(quorum.mutex(name), terms)),
            Some(limit) => Self::Semaphore(set!(quorum.semaphore(name, limit), terms)),
        }
    }

    /// What was asked for on the command line, on the masters.
    pub(crate) fn of(quorum: &Quorum, asked: &Asked, terms: Terms) -> Self {
        let rwlock = |name: &str| set!(quorum.rwlock(name), terms);
        match asked {
            Asked::Mutex(name) => Self::new(quorum, name, None, terms),
            Asked::Slot { name, limit } => Self::new(quorum, name, Some(*limit), terms),
            Asked::Several(names) => Self::Mutex(set!(quorum.mutex_all(names), terms)),
            Asked::Read(name) => Self::Read(rwlock(name)),
            Asked::Write(name) => Self::Write(rwlock(name)),
        }
    }

    /// The same in Consul.
    #[cfg(feature = "consul")]
    pub(crate) fn in_consul(consul: &Consul, name: &str, limit: Option<u32>, terms: Terms) -> Self {
        match limit {
            None => Self::ConsulMutex(set!(consul.mutex(name), terms)),
            Some(limit) => Self::ConsulSemaphore(set!(consul.semaphore(name, limit), terms)),
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
