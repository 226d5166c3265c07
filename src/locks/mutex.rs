//! The mutex: at most one holder per name, with a token that only grows.

use std::{
    fmt,
    future::Future,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures::FutureExt as _;

use crate::{
    Error, Lease,
    base::name::{Name, Names, show},
    engine::{AcquireRequest, Engine, Wait, wants::Wants},
    locks::{
        acquire::Acquire,
        handle::{runs, setters},
        options::LeaseOptions,
    },
    node::request::Target,
};

/// A distributed mutex on one name: one holder at a time, with a fencing token that only grows.
///
/// It is cheap to clone, and its settings are chained. Other primitives fit other needs:
/// - If work may lock again what it holds, use a [`ReentrantMutex`](crate::ReentrantMutex). A mutex does not know who
///   asks: a second [`lock`](Self::lock) waits until the first lease has ended, also in the same task. After a ttl the
///   [log](crate::docs::logs) has a WARN.
/// - For many readers and one writer, use a [`RwLock`](crate::RwLock).
/// - To allow several holders, use a [`Semaphore`](crate::Semaphore).
/// - To lock several names at once, use [`Quorum::mutex_all`](crate::Quorum::mutex_all).
///
/// No two leases of one name are valid at once, each by its own holder's clock, as long as clocks slew by at most 0.5 %
/// and nodes' clocks are not stepped. Every lease's [token](Lease::token) is greater than all before. A holder that was
/// paused past its validity may still write, so let the store check the token. [guarantees](crate::docs::guarantees)
/// has all promises and assumptions.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// use std::time::Duration;
/// let quorum = quorate::Quorum::in_memory(3);
/// let mutex = quorum.mutex("nightly").ttl(Duration::from_secs(5));
/// let lease = mutex.lock().await?;
/// assert!(mutex.try_lock().await?.is_none(), "it is held");
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex {
    engine: Engine,
    names: Asked,
    pub(super) options: LeaseOptions,
    seen: Arc<AtomicU64>,
}

/// The names to lock, unchecked.
#[derive(Clone)]
enum Asked {
    One(Arc<str>),
    Several(Arc<[Arc<str>]>),
}

impl Mutex {
    pub(crate) fn new(engine: Engine, name: Arc<str>, max_ttl: Duration) -> Self {
        Self::of(engine, Asked::One(name), max_ttl)
    }

    /// Locks all of these names at once, or none.
    pub(crate) fn of_several(engine: Engine, names: Arc<[Arc<str>]>, max_ttl: Duration) -> Self {
        Self::of(engine, Asked::Several(names), max_ttl)
    }

    fn of(engine: Engine, names: Asked, max_ttl: Duration) -> Self {
        Self {
            engine,
            names,
            options: LeaseOptions::new(max_ttl),
            seen: Arc::new(AtomicU64::new(0)),
        }
    }

    setters! {
        options;
        /// How long a grant lasts unless it is renewed. Default: 10 s, or the deployment's `max_ttl` if that is
        /// smaller. At least 100 ms; with the lock-delay at most `max_ttl`.
        ttl;
        /// How long [`lock`](Self::lock) waits, time in the queue included, counted from its first poll. Default:
        /// without a limit.
        ///
        /// At the end of this time `lock` answers with what the nodes have said so far. So a wait that is shorter than
        /// a round trip to a majority cannot succeed. Zero means one attempt, for as long as that takes, as
        /// [`try_lock`](Self::try_lock) makes.
        wait_timeout;
        /// How a lease is renewed, and for how long. Default: [`Renewal::auto`](crate::Renewal::auto).
        renewal;
        /// How much longer the nodes keep the lock than its holder believes, for resources that cannot check tokens
        /// (Chubby's lock-delay). Default: 0. It matters for holders that vanish: a release or a drop frees the lock
        /// at once.
        lock_delay;
        /// The name of the holder, as operators and other clients see it: its address, for example. It may be any
        /// [`Builder::label`](crate::Builder::label). Default: the quorum's label.
        label;
    }

    /// Waits in the queue for the lock: first come, first served, across all processes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let quorum = quorate::Quorum::in_memory(3);
    /// let mutex = quorum.mutex("nightly");
    /// let first = mutex.lock().await?;
    /// let second = tokio::spawn(mutex.lock()); // queues
    /// first.release().await?; // hands over
    /// let second = second.await.expect("it does not panic")?;
    /// # drop(second); Ok(()) }
    /// ```
    ///
    /// - **Order.** If a waiter is already registered on a majority of nodes, every later call comes after it, in
    ///   whatever process. Of two calls at about the same time, either may be first.
    /// - **Cost.** A free lock for which nobody waits takes one round trip. Otherwise it takes one more to join the
    ///   queue, and the nodes then tell the waiter that it has its turn. A waiter asks every node once every third of
    ///   `max_ttl`. The first in the queue asks more often: at first every 250 ms (a quarter of the *first term*, which
    ///   is max(1 s, 20 round trips)).
    /// - **Bounds.** A waiter in front that crashed costs nothing. One whose machine vanished costs the first term and
    ///   its lock-delay, and at most its ttl. A holder that died costs its ttl and its lock-delay.
    /// - **Validity.** A lease that came through the queue is valid for the first term until a majority has confirmed
    ///   the whole ttl, one round trip later. With [`Renewal::off`](crate::Renewal::off) this call returns only after
    ///   that.
    ///
    /// [guarantees](crate::docs::guarantees) says what else affects the order, and what is not promised.
    ///
    /// # Errors
    /// - `Held` when `wait_timeout` is over; it names the holder.
    /// - `NoQuorum` if no majority answers. At first this comes after at most the node timeout. If a majority was there
    ///   before, it comes after `wait_timeout`. (Without a `wait_timeout` it comes `max_ttl` after the call has noticed
    ///   that the majority is gone, which takes up to the node timeout and half a second.)
    /// - `NoQuorum` also if `wait_timeout` was over before a majority had answered the first attempt. If a later
    ///   attempt is cut short, you get the error of the attempt before it.
    /// - `Quarantined` if a quarantine outlasts `wait_timeout` (without one: one whole quarantine).
    /// - `TooSlow` if the nodes granted it too late to be of use.
    /// - `Invalid` if a name or a setting is not valid.
    /// - `System` if the operating system has no random bits.
    /// - `Closed`.
    ///
    /// `wait_timeout`, unless it is zero, ends on time: an attempt under way is cut short then, and taken back in the
    /// background. The other bounds may be exceeded by a node timeout, or by two if tokens had to be raised. A loop
    /// that tries again should wait for [`retry_after`](Error::retry_after) first.
    ///
    /// # Cancel safety
    /// May be dropped at any time. Its place in the queue is given up, and what nodes granted is taken back, so that
    /// the next waiter gets it. This goes on in the background for at most one ttl (`max_ttl` for a place in the
    /// queue).
    ///
    /// Another call takes a new place, at the end. So in a `select!` in a loop, keep the future instead of making a new
    /// one each time.
    pub fn lock(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let lease = self.acquire(Wait::For(self.options.wait_timeout));
        // A wait ends with a lease or with an error.
        lease.map(|lease| lease?.ok_or(Error::Closed))
    }

    /// Takes the lock if it is free and nobody waits for it, in one attempt. Returns `None` if a majority answered and
    /// the lock cannot be won.
    ///
    /// It never overtakes a living waiter, and takes no place in the queue itself. Waiters that are gone do not hold it
    /// up. (A waiter whose machine vanished counts as living until its turn has come and gone.)
    ///
    /// # Errors
    /// - `NoQuorum` or `Quarantined` if it could not be decided; [`retry_after`](Error::retry_after) says how long to
    ///   wait.
    /// - `TooSlow`, `Invalid`, `System`, `Closed` as for [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub fn try_lock(
        &self,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        self.acquire(Wait::Never)
    }

    runs! {
        /// Locks, runs the work under [`Lease::guard`], and waits for the release.
        ///
        /// The work gets a [`LeaseWatch`](crate::LeaseWatch). With [`Renewal::heartbeat`](crate::Renewal::heartbeat) it
        /// calls [`beat`](crate::LeaseWatch::beat) on it.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
        /// let quorum = quorate::Quorum::in_memory(3);
        /// let token = quorum.mutex("report").run(|watch| async move { watch.token() }).await?;
        /// # let _ = token; Ok(()) }
        /// ```
        ///
        /// The work is `'static`: it owns what it uses, so that the future can be spawned. If the work has to borrow,
        /// lock and use [`Lease::guard`]:
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
        /// # let quorum = quorate::Quorum::in_memory(3);
        /// let mut lines = vec!["one"];
        /// let lease = quorum.mutex("report").lock().await?;
        /// lease.guard(async { lines.push("two") }).await?;
        /// lease.release().await?;
        /// # assert_eq!(lines.len(), 2); Ok(()) }
        /// ```
        run => lock;
        try_run => try_lock;
    }

    /// The engine of its quorum.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How long [`lock`](Self::lock) waits, if that has an end.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.options.wait_timeout
    }

    fn acquire(
        &self,
        wait: Wait,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        Acquire::new(&self.engine, self.request(wait))
    }

    /// Checks the name and the settings without asking any node, for programs that report bad settings when they start.
    ///
    /// # Errors
    /// `Invalid`, as for [`lock`](Self::lock).
    pub fn validate(&self) -> Result<(), Error> {
        self.request(Wait::Never).map(drop)
    }

    fn request(&self, wait: Wait) -> Result<AcquireRequest, Error> {
        let names = match &self.names {
            Asked::One(name) => Name::new(Arc::clone(name))?.into(),
            Asked::Several(names) => Names::new(names)?,
        };
        let wants = Wants::Lock(Target::Mutex(names));
        self.options.request(wants, wait, &self.seen)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.names {
            Asked::One(name) => name.to_string(),
            Asked::Several(names) => show(names),
        };
        f.debug_struct("Mutex")
            .field("name", &name)
            .finish_non_exhaustive()
    }
}
