//! Handles of what the user wants: a lock, a side of a read-write lock, or a slot of a semaphore; on the masters, or in
//! Consul.

use std::time::Duration;

#[cfg(feature = "consul")]
use quorate::consul::{self, Consul};
use quorate::{Error, Lease, Mutex, Quorum, Renewal, RwLock, Semaphore};

use crate::args::Asked;

/// A handle of one of these, with its settings.
#[derive(Clone)]
pub(crate) enum Wanted {
    /// A lock of one name, or of several.
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Semaphore(Semaphore),
    #[cfg(feature = "consul")]
    ConsulMutex(consul::Mutex),
    #[cfg(feature = "consul")]
    ConsulSemaphore(consul::Semaphore),
}

/// How to take it, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    /// The longest time to wait for it.
    pub(crate) wait: Option<Duration>,
    pub(crate) renewal: Renewal,
}

/// Applies these settings to a handle of any kind.
macro_rules! set {
    ($handle:expr, $terms:expr) => {{
        let handle = $handle.ttl($terms.ttl).renewal($terms.renewal);
        match $terms.wait {
            Some(wait) => handle.wait_timeout(wait),
            None => handle,
        }
    }};
}

/// Calls the fitting method for each kind of handle.
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
    /// A handle on the masters. With a `limit` it is a semaphore's.
    pub(crate) fn new(quorum: &Quorum, name: &str, limit: Option<u32>, terms: Terms) -> Self {
        match limit {
            None => Self::Mutex(set!(quorum.mutex(name), terms)),
            Some(limit) => Self::Semaphore(set!(quorum.semaphore(name, limit), terms)),
        }
    }

    /// The handle for what the command line asks for, on the masters.
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

    /// A handle in Consul, otherwise as `new`.
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

    /// Tries once. Returns `None` if others have it.
    pub(crate) async fn try_take(&self) -> Result<Option<Lease>, Error> {
        each!(self, mutex => mutex.try_lock().await, semaphore => semaphore.try_acquire().await,
            rwlock => rwlock.try_read().await, rwlock.try_write().await)
    }

    /// Tries once, and names the holder if others have it: `Held`.
    pub(crate) async fn take_now(&self) -> Result<Lease, Error> {
        let now = Duration::ZERO;
        each!(self, mutex => mutex.clone().wait_timeout(now).lock().await,
            semaphore => semaphore.clone().wait_timeout(now).acquire().await,
            rwlock => rwlock.clone().wait_timeout(now).read().await,
            rwlock.clone().wait_timeout(now).write().await)
    }

    /// Waits until it is granted.
    pub(crate) async fn take(&self) -> Result<Lease, Error> {
        each!(self, mutex => mutex.lock().await, semaphore => semaphore.acquire().await,
            rwlock => rwlock.read().await, rwlock.write().await)
    }
}
