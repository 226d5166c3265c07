//! Locks and semaphores on a Consul cluster, for fleets that already run one.
//!
//! They have the same verbs, settings and [`Lease`](crate::Lease) as those of a [`Quorum`](crate::Quorum), and share no
//! server with them. A lock of Consul and one of Redis do not know of each other, and their tokens must not be
//! compared.
//!
//! ```no_run
//! # async fn example() -> Result<(), quorate::Error> {
//! use quorate::consul::Consul;
//!
//! let consul = Consul::connect("http://127.0.0.1:8500").await?; // or Consul::from_env()
//! let lease = consul.mutex("jobs/nightly").lock().await?;
//! println!("write with token {}", lease.token());
//! lease.release().await?;
//!
//! consul.shutdown().await; // the last line of main: destroys the sessions
//! # Ok(()) }
//! ```
//!
//! [The guide](crate::docs::consul) says when to choose which, what is promised, and what is stored in Consul.

mod address;
mod agent;
mod agreed;
mod asks;
mod builder;
mod environment;
mod fault;
mod held;
mod http;
mod keeping;
mod life;
mod mutex;
mod place;
mod record;
mod root;
mod semaphore;
mod sessions;
mod standing;
mod take;
mod tls;
mod wire;
mod wish;

use std::{fmt, future::Future, sync::Arc};

pub use self::{builder::Builder, mutex::Mutex, semaphore::Semaphore, tls::Tls};

use self::{agreed::Agreed, asks::Asks, record::Form, root::Root};
use crate::{Error, locks::options::LeaseOptions};

/// A Consul cluster, reached through one agent. Locks and semaphores are made from it.
///
/// It is cheap to clone, and clones share sessions and connections. End it with [`shutdown`](Self::shutdown).
///
/// The background work runs on the tokio runtime that connected. When that runtime is gone, every call answers
/// [`Error::RuntimeGone`] at once.
#[derive(Clone)]
pub struct Consul(Arc<Root>);

impl Consul {
    /// Connects to the agent at this address, with default settings.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder().url(url).connect().await
    }

    /// Returns a builder, to change settings before connecting.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns the lock with this name, which is that of `consul lock NAME`.
    ///
    /// A name is a path of Consul's keys, and is checked when the lock is taken. A semaphore may not have the same
    /// name.
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex(self.asks(name.into(), Form::Lock, 1))
    }

    /// Returns the semaphore with this name and `limit` permits (1 to 8,000), which is that of
    /// `consul lock -n LIMIT NAME`.
    ///
    /// With `-n 1`, `consul lock` takes a lock: see [`mutex`](Self::mutex).
    pub fn semaphore(&self, name: impl Into<String>, limit: u32) -> Semaphore {
        Semaphore(self.asks(name.into(), Form::Semaphore, limit))
    }

    /// Checks that the agent answers, has a leader and accepts the token, the datacenter and the namespace, as
    /// [`Builder::connect`] does.
    ///
    /// # Errors
    /// `NoQuorum` with Consul's answer, or the reason why it cannot be reached.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn ready(&self) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let agent = Arc::clone(&self.0.agent);
        async move {
            let looked = agent.http.look().await;
            looked.map_err(|fault| fault.error("connect", &agent.http.node))
        }
    }

    /// Waits until [`shutdown`](Self::shutdown) begins, called by any clone. For code that holds a lease for as long as
    /// the program runs: [shutdown](crate::docs::shutdown#a-lease-for-the-life-of-the-program). If the runtime that connected
    /// ends without `shutdown`, it ends only with the last clone and lease.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.0.agent.closing()
    }

    /// Ends the connection for all clones, and waits until all leases are released and all sessions are destroyed. Make
    /// it the last line of `main`.
    ///
    /// New calls and waiters get `Closed`. Held leases are renewed until they are dropped: first drop what you hold, or
    /// let it be dropped when [`closing`](Self::closing) ends. It waits for at most the
    /// [shutdown timeout](Builder::shutdown_timeout). It returns the names that are still held then, which are left to
    /// their TTL.
    ///
    /// # Cancel safety
    /// May be dropped; the end has begun then.
    pub fn shutdown(&self) -> impl Future<Output = Vec<String>> + Send + 'static + use<> {
        let agent = Arc::clone(&self.0.agent);
        agent.close();
        async move { agent.ended().await }
    }

    fn asks(&self, name: String, form: Form, limit: u32) -> Asks {
        Asks {
            root: Arc::clone(&self.0),
            name: name.into(),
            form,
            limit: Arc::new(Agreed::new(limit)),
            options: LeaseOptions::new(asks::LONGEST),
        }
    }
}

impl fmt::Debug for Consul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Consul").field(&self.0.agent).finish()
    }
}
