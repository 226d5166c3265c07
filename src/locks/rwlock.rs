//! The read-write lock: many readers or one writer per name, with a token that only grows.

use std::{
    fmt,
    future::Future,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures::FutureExt as _;

use crate::{
    Error, Lease, LeaseWatch, Renewal,
    base::name::Name,
    engine::{Engine, Wait, wants::Wants},
    locks::{
        acquire::{Acquire, Asks},
        mutex::{run, try_run},
        options::Hold,
    },
    node::request::{Side, Target},
};

/// A distributed read-write lock on one name: any number of readers, or one writer. Cheap to clone; settings are chained.
///
/// It promises that while a writer's lease is valid no other lease of the name is, under the same assumptions as a
/// [`Mutex`](crate::Mutex). Its name is its own: a mutex of the same name is another thing.
///
/// A writer's [token](Lease::token) is greater than all before. A reader's is an **epoch**: the token of the last writer, or
/// a greater one that no writer has, and smaller than that of the next. It says how new what was read is. It must not be
/// used to write: all readers of an epoch have the same.
///
/// - **Each reader has its own ttl.** One that dies is gone after its own, whatever the others do.
/// - **A writer that waits keeps new readers out**, so that readers who come and go cannot keep it waiting for ever. When a
///   writer frees the lock, readers that it kept out are let in first, for five round trips (5 ms at least, 1 s at most).
/// - **Writers queue**, first come, first served, across all processes. A writer that has just called may come between them, if it finds the lock free.
/// - **The order of readers is not promised**: waiting readers ask again when a node says that the lock was freed, and
///   from time to time (after 100 ms at the latest).
/// - **A reader cannot become a writer**: it must release its lease and call [`write`](Self::write). A writer can
///   become a reader: [`Lease::downgrade`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// let quorum = quorate::Quorum::in_memory(3);
/// let index = quorum.rwlock("index");
/// let (one, other) = (index.read().await?, index.read().await?);
/// assert!(index.try_write().await?.is_none(), "it is being read");
/// one.release().await?;
/// other.release().await?;
/// let rebuilt = index.write().await?;
/// rebuilt.downgrade().await?; // others may read beside it now
/// assert!(index.try_read().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a lock does nothing until it is locked"]
pub struct RwLock {
    engine: Engine,
    name: Arc<str>,
    hold: Hold,
    seen: Arc<AtomicU64>,
}

impl RwLock {
    pub(crate) fn new(engine: Engine, name: Arc<str>, max_ttl: Duration) -> Self {
        Self {
            engine,
            name,
            hold: Hold::new(max_ttl),
            seen: Arc::new(AtomicU64::new(0)),
        }
    }

    /// How long a grant lasts unless it is renewed. Default: 10 s, or the deployment's `max_ttl` if that is
    /// smaller. At least 100 ms; with the lock-delay at most `max_ttl`.
    pub fn ttl(mut self, d: Duration) -> Self {
        self.hold.ttl = Some(d);
        self
    }

    /// How long [`read`](Self::read) and [`write`](Self::write) wait, counted from their first poll. Default: without a
    /// limit. As for [`Mutex::wait_timeout`](crate::Mutex::wait_timeout), zero is one attempt.
    pub fn wait_timeout(mut self, d: Duration) -> Self {
        self.hold.wait_timeout = Some(d);
        self
    }

    /// Whether and for how long a lease is renewed. Default: [`Renewal::auto`].
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.hold.renewal = renewal;
        self
    }

    /// How much longer the nodes keep the lock than its holder believes: as for
    /// [`Mutex::lock_delay`](crate::Mutex::lock_delay). Default: 0.
    pub fn lock_delay(mut self, d: Duration) -> Self {
        self.hold.lock_delay = d;
        self
    }

    /// Waits until it may read beside other readers: until no writer has the lock, and none waits for it.
    ///
    /// A lock that nobody writes or waits to write takes one round trip.
    ///
    /// # Errors
    /// As for [`Mutex::lock`](crate::Mutex::lock). `Held` names a writer that waits too.
    ///
    /// # Cancel safety
    /// May be dropped at any time: what nodes granted is taken back in the background, for at most one ttl.
    pub fn read(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        self.wait(Side::Reader)
    }

    /// Waits until it may write alone: until no other lease of the name is there. While it waits no new reader comes in, but
    /// for those that a writer before it has kept out. Writers that wait queue, first come, first served.
    ///
    /// A lock that nobody has takes one round trip.
    ///
    /// # Errors
    /// As for [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any time: what nodes granted is taken back in the background, for at most one ttl, and readers come
    /// in again. A process that is killed keeps them out for some 2 s more (three times the node timeout and 100 ms), and if it was
    /// the first in line, the other writers for a third of that.
    pub fn write(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        self.wait(Side::Writer)
    }

    /// Reads if no writer has the lock or waits for it: one attempt. `None` when a majority answered and it cannot be won.
    ///
    /// # Errors
    /// As for [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// As for [`read`](Self::read).
    pub fn try_read(
        &self,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        self.acquire(Side::Reader, Wait::Never)
    }

    /// Writes if nobody has the lock: one attempt. `None` when a majority answered and it cannot be won. It keeps no reader
    /// out, and does not stand behind writers that wait.
    ///
    /// # Errors
    /// As for [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// As for [`write`](Self::write).
    pub fn try_write(
        &self,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        self.acquire(Side::Writer, Wait::Never)
    }

    /// Reads under [`Lease::guard`], and waits for the release: as [`Mutex::run`](crate::Mutex::run) does.
    ///
    /// # Errors
    /// - As for [`read`](Self::read).
    /// - `Lost` when the lease was lost before the work was done: the work was dropped then.
    ///
    /// # Cancel safety
    /// Dropping it drops the work and frees the lock in the background.
    pub fn run_read<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let lease = self.read();
        async move { run(lease.await?, work).await }
    }

    /// Writes under [`Lease::guard`], and waits for the release: as [`Mutex::run`](crate::Mutex::run) does.
    ///
    /// # Errors
    /// - As for [`write`](Self::write).
    /// - `Lost` as for [`run_read`](Self::run_read).
    ///
    /// # Cancel safety
    /// As for [`run_read`](Self::run_read).
    pub fn run_write<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let lease = self.write();
        async move { run(lease.await?, work).await }
    }

    /// Does what [`run_read`](Self::run_read) does if [`try_read`](Self::try_read) wins; otherwise returns `None`.
    ///
    /// # Errors
    /// - As for [`try_read`](Self::try_read).
    /// - `Lost` as for [`run_read`](Self::run_read).
    ///
    /// # Cancel safety
    /// As for [`run_read`](Self::run_read).
    pub fn try_run_read<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<Option<T>, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        try_run(self.try_read(), work)
    }

    /// Does what [`run_write`](Self::run_write) does if [`try_write`](Self::try_write) wins; otherwise returns `None`.
    ///
    /// # Errors
    /// - As for [`try_write`](Self::try_write).
    /// - `Lost` as for [`run_read`](Self::run_read).
    ///
    /// # Cancel safety
    /// As for [`run_read`](Self::run_read).
    pub fn try_run_write<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<Option<T>, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        try_run(self.try_write(), work)
    }

    /// Checks the name and the settings as [`read`](Self::read) and [`write`](Self::write) do, without asking any node.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.check().map(drop)
    }

    fn wait(
        &self,
        side: Side,
    ) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let lease = self.acquire(side, Wait::For(self.hold.wait_timeout));
        // A wait ends with a lease or with an error.
        lease.map(|lease| lease?.ok_or(Error::Closed))
    }

    fn acquire(
        &self,
        side: Side,
        wait: Wait,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        match self.check() {
            Ok((name, ttl)) => Acquire::new(Asks {
                engine: self.engine.clone(),
                wants: Wants::Lock(Target::Rwlock(name, side)),
                ttl,
                lock_delay: self.hold.lock_delay,
                renewal: self.hold.renewal,
                wait,
                seen: Arc::clone(&self.seen),
            }),
            Err(error) => Acquire::Invalid(error),
        }
    }

    fn check(&self) -> Result<(Name, Duration), Error> {
        let name = Name::new(Arc::clone(&self.name))?;
        Ok((name, self.hold.check()?))
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
