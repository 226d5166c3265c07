//! The lock on a Consul session.

use std::{fmt, future::Future, time::Duration};

use super::asks::Asks;
use crate::{Error, Lease, LeaseWatch, Renewal, locks::mutex};

/// A lock in Consul: at most one holder per name. Cheap to clone; settings are chained.
///
/// It is the lock of `consul lock NAME`: the two exclude each other. The [module](crate::consul) says what is promised.
///
/// ```no_run
/// # async fn example() -> Result<(), quorate::Error> {
/// use quorate::consul::Consul;
/// let consul = Consul::connect("http://127.0.0.1:8500").await?;
/// let lease = consul.mutex("jobs/nightly").lock().await?;
/// println!("write with token {}", lease.token());
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex(pub(super) Asks);

impl Mutex {
    /// The TTL of the session: how long it lasts unless it is renewed. Default: 10 s, which is Consul's least. Consul
    /// frees what a dead holder had after one to two TTL.
    pub fn ttl(mut self, d: Duration) -> Self {
        self.0.hold.ttl = Some(d);
        self
    }

    /// How long [`lock`](Self::lock) waits, counted from its first poll. Default: without a limit. Zero is one attempt,
    /// as [`try_lock`](Self::try_lock) makes.
    pub fn wait_timeout(mut self, d: Duration) -> Self {
        self.0.hold.wait_timeout = Some(d);
        self
    }

    /// Whether and for how long a lease is renewed. Default: [`Renewal::auto`].
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.0.hold.renewal = renewal;
        self
    }

    /// The session's lock-delay: for so long Consul gives the lock to nobody after it has ended the holder's session,
    /// at most 60 s. Default: 0 (Consul's own is 15 s). A release or a drop frees it at once.
    pub fn lock_delay(mut self, d: Duration) -> Self {
        self.0.hold.lock_delay = d;
        self
    }

    /// Waits for the lock. It is told of changes by a blocking query, and does not poll.
    ///
    /// Those who wait with this library are served in the order in which they asked, as far as each takes its turn within
    /// a second. `consul lock` keeps no order: it may come in between.
    ///
    /// # Errors
    /// - `Held` when `wait_timeout` is over: its text says who holds and by which session.
    /// - `NoQuorum` when Consul does not answer, has no leader or refuses the token; it says what Consul said. At once
    ///   where it has not answered before, else after `wait_timeout`, or 30 s where there is none.
    /// - `TooSlow` when it answered so late that no validity was left.
    /// - `Invalid` for a bad name or setting, and where something else than a lock stands under the name.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped at any time: its session is destroyed in the background, or what it had taken is given back.
    pub fn lock(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let lease = self.0.ask(1, true);
        // A wait ends with a lease or with an error.
        async move { lease.await?.ok_or(Error::Closed) }
    }

    /// Takes the lock if it is free and nobody waits for it: one attempt. `None` where that is not so, and while a
    /// lock-delay lasts.
    ///
    /// # Errors
    /// `NoQuorum`, `TooSlow`, `Invalid`, `Closed` as for [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub fn try_lock(
        &self,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        self.0.ask(1, false)
    }

    /// Locks, runs the work under [`Lease::guard`], and waits for the release, as [`Mutex::run`](crate::Mutex::run) does.
    /// The work is `'static`; to borrow, use [`Lease::guard`].
    ///
    /// # Errors
    /// - As for [`lock`](Self::lock).
    /// - `Lost` when the lease was lost before the work was done: the work was dropped then.
    ///
    /// # Cancel safety
    /// Dropping it drops the work and frees the lock in the background.
    pub fn run<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let lease = self.lock();
        async move { mutex::run(lease.await?, work).await }
    }

    /// Does what [`run`](Self::run) does if the lock is free; otherwise returns `None`.
    ///
    /// # Errors
    /// - As for [`try_lock`](Self::try_lock).
    /// - `Lost` as for [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    pub fn try_run<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<Option<T>, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        mutex::try_run(self.try_lock(), work)
    }

    /// Checks the name and the settings, without asking Consul: for programs that report bad settings when they start.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.0.check().map(drop)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.0.name)
            .finish_non_exhaustive()
    }
}
