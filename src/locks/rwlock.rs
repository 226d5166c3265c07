//! The read-write lock: many readers or one writer per name, with a token that only grows.

use std::{
    fmt,
    future::Future,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures::FutureExt as _;

use crate::{
    Error, Lease,
    base::name::Name,
    engine::{AcquireRequest, Engine, Wait, wants::Wants},
    locks::{
        acquire::Acquire,
        handle::{runs, setters},
        options::LeaseOptions,
    },
    node::request::{Side, Target},
};

/// A distributed read-write lock on one name: any number of readers, or one writer.
///
/// It is cheap to clone, and its settings are chained. If every holder writes, use a [`Mutex`](crate::Mutex), which
/// promises a stricter order. A mutex of the same name is another lock.
///
/// While a writer's lease is valid, no other lease of the name is, under the same assumptions as for a
/// [`Mutex`](crate::Mutex). [guarantees](crate::docs::guarantees) has all promises and assumptions.
///
/// A writer's [token](Lease::token) is greater than all before. A reader's token is an **epoch**: the token of the last
/// writer, or a greater one that no writer has, and smaller than that of the next writer. It says how new the data is
/// that was read. Do not write with it: readers between the same two writers may have the same epoch.
///
/// - **Each reader has its own ttl.** A reader that dies is gone after its own ttl, whatever the others do.
/// - **A writer that waits keeps new readers out**, so readers that come and go cannot keep it waiting for ever. When a
///   writer frees the lock, readers that it kept out are let in first, for five round trips (5 ms at least, 1 s at
///   most).
/// - **Writers queue**, first come, first served, across all processes. A new writer may come between them if it finds
///   the lock free.
/// - **Readers have no order.** Waiting readers ask again when a node says that the lock was freed, and from time to
///   time (after 100 ms at the latest).
/// - **A reader cannot become a writer.** It must release its lease and call [`write`](Self::write). A writer can
///   become a reader: [`Lease::downgrade`].
/// - **A task must not ask again for what it holds**, not even to read twice: it would wait for itself, or for a writer
///   that waits for it. After a ttl the [log](crate::docs::logs) has a WARN.
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
    options: LeaseOptions,
    seen: Arc<AtomicU64>,
}

impl RwLock {
    pub(crate) fn new(engine: Engine, name: Arc<str>, max_ttl: Duration) -> Self {
        Self {
            engine,
            name,
            options: LeaseOptions::new(max_ttl),
            seen: Arc::new(AtomicU64::new(0)),
        }
    }

    setters! {
        options;
        /// How long a grant lasts unless it is renewed. Default: 10 s, or the deployment's `max_ttl` if that is
        /// smaller. At least 100 ms; with the lock-delay at most `max_ttl`.
        ttl;
        /// How long [`read`](Self::read) and [`write`](Self::write) wait, counted from their first poll. Default:
        /// without a limit. Zero means one attempt, as for [`Mutex::wait_timeout`](crate::Mutex::wait_timeout).
        wait_timeout;
        /// How a lease is renewed, and for how long. Default: [`Renewal::auto`](crate::Renewal::auto).
        renewal;
        /// How much longer the nodes keep the lock than its holder believes, as for
        /// [`Mutex::lock_delay`](crate::Mutex::lock_delay). Default: 0.
        lock_delay;
        /// The name of the holder, as [`Mutex::label`](crate::Mutex::label). Default: the quorum's label.
        label;
    }

    /// Waits until it may read beside other readers: until no writer holds the lock or waits for it.
    ///
    /// It takes one round trip if no writer holds the lock or waits.
    ///
    /// # Errors
    /// As for [`Mutex::lock`](crate::Mutex::lock). `Held` may also name a writer that waits.
    ///
    /// # Cancel safety
    /// May be dropped at any time: what nodes granted is taken back in the background, for at most one ttl.
    pub fn read(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        self.wait(Side::Reader)
    }

    /// Waits until it may write alone: until no other lease of the name is left.
    ///
    /// While it waits, new readers stay out, except those that an earlier writer has kept out. Writers that wait queue,
    /// first come, first served.
    ///
    /// It takes one round trip if nobody holds the lock.
    ///
    /// # Errors
    /// As for [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any time: what nodes granted is taken back in the background, for at most one ttl, and readers
    /// come in again.
    ///
    /// If the process is killed while it waits, readers stay out for about 2 s more (three times the sum of the node
    /// timeout and 100 ms). If it was the first in the queue, the other writers wait for a third of that.
    pub fn write(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        self.wait(Side::Writer)
    }

    /// Reads if no writer holds the lock or waits for it, in one attempt. Returns `None` if a majority answered and the
    /// lock cannot be won.
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

    /// Writes if nobody holds the lock, in one attempt. Returns `None` if a majority answered and the lock cannot be
    /// won.
    ///
    /// It keeps no reader out, and does not queue behind writers that wait.
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

    runs! {
        /// Reads under [`Lease::guard`] and waits for the release, as [`Mutex::run`](crate::Mutex::run) does.
        run_read => read;
        try_run_read => try_read;
    }

    runs! {
        /// Writes under [`Lease::guard`] and waits for the release, as [`Mutex::run`](crate::Mutex::run) does.
        run_write => write;
        try_run_write => try_write;
    }

    /// Checks the name and the settings without asking any node, for programs that report bad settings when they start.
    ///
    /// # Errors
    /// `Invalid`, as for [`read`](Self::read) and [`write`](Self::write).
    pub fn validate(&self) -> Result<(), Error> {
        self.request(Side::Reader, Wait::Never).map(drop)
    }

    fn wait(
        &self,
        side: Side,
    ) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let lease = self.acquire(side, Wait::For(self.options.wait_timeout));
        // A wait ends with a lease or with an error.
        lease.map(|lease| lease?.ok_or(Error::Closed))
    }

    fn acquire(
        &self,
        side: Side,
        wait: Wait,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        Acquire::new(&self.engine, self.request(side, wait))
    }

    fn request(&self, side: Side, wait: Wait) -> Result<AcquireRequest, Error> {
        let name = Name::new(Arc::clone(&self.name))?;
        let wants = Wants::Lock(Target::Rwlock(name, side));
        self.options.request(wants, wait, &self.seen)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
