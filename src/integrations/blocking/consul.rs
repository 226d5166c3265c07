//! Locks and semaphores of Consul whose calls block: [`quorate::consul`](crate::consul) for threads.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Lease, LeaseWatch,
    builder::setters,
    lock::{mutex, settings, verbs},
    permits::semaphore,
    root::Root,
};
use crate::{Error, Renewal, integrations::consul};

/// A Consul cluster, reached through one agent: [`quorate::consul::Consul`](consul::Consul) for threads.
///
/// It is cheap to clone, and clones share sessions, connections and one thread.
///
/// ```no_run
/// # fn main() -> Result<(), quorate::Error> {
/// use quorate::blocking::consul::Consul;
///
/// let consul = Consul::connect("http://127.0.0.1:8500")?; // or Consul::from_env()
/// let lease = consul.mutex("jobs/nightly").lock()?;
/// println!("write with token {}", lease.token());
/// lease.release()?;
/// consul.shutdown()?; // the last line of main: destroys the sessions
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Consul {
    consul: consul::Consul,
    root: Arc<Root>,
}

impl Consul {
    /// Connects to the agent at this address, with default settings.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder().url(url).connect()
    }

    /// Returns a builder, to change settings before connecting.
    pub fn builder() -> Builder {
        consul::Consul::builder().into()
    }

    /// Connects with the variables of Consul's own tools, as
    /// [`quorate::consul::Consul::from_env`](consul::Consul::from_env).
    ///
    /// # Errors
    /// As for [`quorate::consul::Consul::from_env`](consul::Consul::from_env), `Invalid` in async code, and `System` if
    /// no thread can be started.
    pub fn from_env() -> Result<Self, Error> {
        let root = Root::start()?;
        let consul = root.wait(consul::Consul::from_env())??;
        Ok(Self::new(root, consul))
    }

    fn new(root: Arc<Root>, consul: consul::Consul) -> Self {
        let last = consul.clone();
        root.at_the_end(move || {
            let end = last.shutdown();
            async move { drop(end.await) }
        });
        Self { consul, root }
    }

    /// The lock with this name, as [`quorate::consul::Consul::mutex`](consul::Consul::mutex).
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex::new(self.consul.mutex(name), &self.root)
    }

    /// The semaphore with this name and `limit` permits, as
    /// [`quorate::consul::Consul::semaphore`](consul::Consul::semaphore).
    pub fn semaphore(&self, name: impl Into<String>, limit: u32) -> Semaphore {
        Semaphore::new(self.consul.semaphore(name, limit), &self.root)
    }

    /// Checks that the agent answers, as [`quorate::consul::Consul::ready`](consul::Consul::ready).
    ///
    /// # Errors
    /// As there, and `Invalid` in async code.
    pub fn ready(&self) -> Result<(), Error> {
        self.root.wait(self.consul.ready())?
    }

    /// Waits until [`shutdown`](Self::shutdown) begins, as
    /// [`quorate::consul::Consul::closing`](consul::Consul::closing). For a thread that then lets others drop what they hold.
    /// It needs a handle of its own, so while it waits, only `shutdown` ends the background work.
    ///
    /// # Errors
    /// `Invalid` in async code.
    pub fn closing(&self) -> Result<(), Error> {
        self.root.wait(self.consul.closing())
    }

    /// Ends the connection for all clones, and waits until all sessions are destroyed, as
    /// [`quorate::consul::Consul::shutdown`](consul::Consul::shutdown).
    ///
    /// # Errors
    /// `Invalid` in async code: then nothing has ended.
    pub fn shutdown(&self) -> Result<Vec<String>, Error> {
        self.root.wait(async { self.consul.shutdown().await })
    }
}

impl fmt::Debug for Consul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.consul.fmt(f)
    }
}

/// Builds a [`Consul`]. Every setting means the same as in [`quorate::consul::Builder`](consul::Builder), which can be
/// turned into this builder.
#[must_use = "a builder does nothing until it connects"]
pub struct Builder(consul::Builder);

impl Builder {
    setters! { "crate::integrations::consul::Builder":
        url(url: impl Into<String>);
        token(token: impl Into<String>);
        namespace(namespace: impl Into<String>);
        datacenter(datacenter: impl Into<String>);
        prefix(prefix: impl Into<String>);
        tls(tls: consul::Tls);
        label(label: impl Into<String>);
        request_timeout(d: Duration);
        shutdown_timeout(d: Duration);
    }

    /// Connects to the agent, as [`quorate::consul::Builder::connect`](consul::Builder::connect).
    ///
    /// # Errors
    /// - As there.
    /// - `Invalid` in async code.
    /// - `System` if no thread can be started.
    pub fn connect(self) -> Result<Consul, Error> {
        let root = Root::start()?;
        let consul = root.wait(self.0.connect())??;
        Ok(Consul::new(root, consul))
    }

    /// Checks the settings and asks no agent yet, as
    /// [`quorate::consul::Builder::connect_lazy`](consul::Builder::connect_lazy).
    ///
    /// # Errors
    /// - `Invalid` if a setting is not valid, and in async code.
    /// - `System` if no thread can be started.
    pub fn connect_lazy(self) -> Result<Consul, Error> {
        let root = Root::start()?;
        let consul = root.within(|| self.0.connect_lazy())?;
        Ok(Consul::new(root, consul))
    }
}

impl From<consul::Builder> for Builder {
    fn from(builder: consul::Builder) -> Self {
        Self(builder)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

mutex! {
    /// A lock of Consul whose calls block: [`quorate::consul::Mutex`](crate::consul::Mutex) for threads.
    consul::Mutex, "crate::integrations::consul::Mutex"
}

semaphore! {
    /// A semaphore of Consul whose calls block: [`quorate::consul::Semaphore`](crate::consul::Semaphore) for threads.
    consul::Semaphore, "crate::integrations::consul::Semaphore"
}
