//! The mutex: at most one holder per name, with a token that only grows.

use std::{
    fmt,
    future::Future,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures::FutureExt as _;

use crate::{
    Error, Lease, LeaseWatch, Renewal, Report,
    base::{
        logs,
        name::{Name, Names, show},
    },
    engine::{Engine, Wait, wants::Wants},
    locks::{
        acquire::{Acquire, Asks},
        options::Hold,
    },
    node::request::Target,
};

/// A distributed mutex on one name. Cheap to clone; settings are chained.
///
/// It promises that no two leases of one name are valid at once, by their own clocks, as long as
/// clocks slew by at most 0.5 % and nodes' clocks are not stepped, and that every lease's
/// [token](Lease::token) is greater than all before. It does not promise that a holder which was
/// paused past its validity stops writing: let the store check the token.
///
/// It does not know who asks: a second [`lock`](Self::lock) waits until the first lease has ended, also in the same
/// task. A [`ReentrantMutex`](crate::ReentrantMutex) lets its holder in again.
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
    hold: Hold,
    seen: Arc<AtomicU64>,
}

/// What it locks, unchecked.
#[derive(Clone)]
enum Asked {
    One(Arc<str>),
    Several(Arc<[Arc<str>]>),
}

impl Mutex {
    pub(crate) fn new(engine: Engine, name: Arc<str>, max_ttl: Duration) -> Self {
        Self::of(engine, Asked::One(name), max_ttl)
    }

    /// All of these names at once, or none.
    pub(crate) fn of_several(engine: Engine, names: Arc<[Arc<str>]>, max_ttl: Duration) -> Self {
        Self::of(engine, Asked::Several(names), max_ttl)
    }

    fn of(engine: Engine, names: Asked, max_ttl: Duration) -> Self {
        Self {
            engine,
            names,
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

    /// How long [`lock`](Self::lock) waits, in line too, counted from its first poll. Default: without a limit.
    ///
    /// It is answered at the end of this time by what the nodes had said until then, so a wait that is shorter than a
    /// round trip to a majority cannot be won. Zero is one attempt, for as long as that takes, as
    /// [`try_lock`](Self::try_lock) makes.
    pub fn wait_timeout(mut self, d: Duration) -> Self {
        self.hold.wait_timeout = Some(d);
        self
    }

    /// Whether and for how long a lease is renewed. Default: [`Renewal::auto`].
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.hold.renewal = renewal;
        self
    }

    /// How much longer the nodes keep the lock than its holder believes, for resources that cannot check tokens
    /// (Chubby's lock-delay). Default: 0. It matters for holders that vanish: a release or a drop frees the lock at
    /// once.
    pub fn lock_delay(mut self, d: Duration) -> Self {
        self.hold.lock_delay = d;
        self
    }

    /// Waits for the lock, in line: who asks first is served first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let quorum = quorate::Quorum::in_memory(3);
    /// let mutex = quorum.mutex("nightly");
    /// let first = mutex.lock().await?;
    /// let second = tokio::spawn(mutex.lock()); // stands in line
    /// first.release().await?; // hands over
    /// let second = second.await.expect("it does not panic")?;
    /// # drop(second); Ok(()) }
    /// ```
    ///
    /// - **Order.** Who calls it after another was registered on a majority of nodes comes after it, in whatever
    ///   process. Of two who call it at about the same time, either may be first.
    /// - **Cost.** A lock that is free, and for which nobody waits, takes one round trip. Else it takes one more to
    ///   stand in line, and the release in front of it is told to it by the nodes. While it waits it asks every
    ///   node every third of `max_ttl`, and as the first in line at first every 250 ms (a quarter of max(1 s, 20 round
    ///   trips)).
    /// - **Bounds.** A waiter in front that crashed costs nothing. One whose machine vanished costs max(1 s, 20
    ///   round trips) and its lock-delay, and at most its ttl. A holder that died costs its ttl and its lock-delay.
    /// - A lease that came through the line is worth that first term until a majority has confirmed the whole ttl,
    ///   one round trip later. With [`Renewal::off`] this returns only then.
    ///
    /// [guarantees](crate::docs::guarantees) says what else does something to the order, and what is not promised.
    ///
    /// # Errors
    /// - `Held` when `wait_timeout` is over; it says by whom.
    /// - `NoQuorum` when no majority answers: after at most the node timeout at first, after `wait_timeout`
    ///   when a majority was there before. (Without one: `max_ttl` after it has noticed that the majority is gone, which
    ///   takes up to the node timeout and half a second.) Also when `wait_timeout` was over before a
    ///   majority had answered the first attempt; if a later attempt is cut short, you get the error of the one before it.
    /// - `Quarantined` when a quarantine outlasts `wait_timeout` (without one: one whole quarantine).
    /// - `TooSlow` when the nodes granted it too late to be of use.
    /// - `Invalid` for a bad name or setting.
    /// - `System` when the operating system has no random bits.
    /// - `Closed`.
    ///
    /// `wait_timeout`, unless it is zero, ends on time: an attempt under way is cut short then, and taken back in the background. The
    /// other bounds may be exceeded by a node timeout, or two where tokens had to be raised. A loop that tries again
    /// waits for [`retry_after`](Error::retry_after) first.
    ///
    /// # Cancel safety
    /// May be dropped at any time. Its place in line is given up, and what nodes granted is taken back, in the
    /// background, for at most one ttl (`max_ttl` for a place in line): the next in line gets it. Calling it again takes a new place, at the end.
    /// So in a `select!` in a loop, keep the future instead of making a new one each time.
    pub fn lock(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let lease = self.acquire(Wait::For(self.hold.wait_timeout));
        // A wait ends with a lease or with an error.
        lease.map(|lease| lease?.ok_or(Error::Closed))
    }

    /// Takes the lock if it is free and nobody waits for it: one attempt. `None` when a majority answered and it
    /// cannot be won.
    ///
    /// It never overtakes somebody who lives and waits in line, and takes no place there itself. A line in which
    /// nobody lives does not hold it up. (A waiter whose machine vanished counts as living until its turn has come
    /// and gone.)
    ///
    /// # Errors
    /// - `NoQuorum` or `Quarantined` when it could not be decided: [`retry_after`](Error::retry_after) says how
    ///   long to wait.
    /// - `TooSlow`, `Invalid`, `System`, `Closed` as for [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub fn try_lock(
        &self,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        self.acquire(Wait::Never)
    }

    /// Locks, runs the work under [`Lease::guard`], and waits for the release. The work gets a
    /// [`LeaseWatch`]: with [`Renewal::heartbeat`] it calls [`beat`](LeaseWatch::beat) on it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let quorum = quorate::Quorum::in_memory(3);
    /// let token = quorum.mutex("report").run(|watch| async move { watch.token() }).await?;
    /// # let _ = token; Ok(()) }
    /// ```
    ///
    /// The work is `'static`: it owns what it uses, so that the future can be spawned. To borrow, lock and use
    /// [`Lease::guard`]:
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
    ///
    /// # Errors
    /// - As for [`lock`](Self::lock).
    /// - `Lost` when the lease was lost before the work was done: the work was dropped then.
    ///
    /// A release that could not be confirmed is not an error of the work.
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
        async move { run(lease.await?, work).await }
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
        try_run(self.try_lock(), work)
    }

    /// On which nodes it locks: those of its quorum.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How long [`lock`](Self::lock) waits, if that has an end.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.hold.wait_timeout
    }

    fn acquire(
        &self,
        wait: Wait,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        match self.check() {
            Ok((lock, ttl)) => Acquire::new(Asks {
                engine: self.engine.clone(),
                wants: Wants::Lock(lock),
                ttl,
                lock_delay: self.hold.lock_delay,
                renewal: self.hold.renewal,
                wait,
                seen: Arc::clone(&self.seen),
            }),
            Err(error) => Acquire::Invalid(error),
        }
    }

    /// Checks the name and the settings as [`lock`](Self::lock) does, without asking any node: for programs that
    /// report bad settings when they start.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.check().map(drop)
    }

    fn check(&self) -> Result<(Target, Duration), Error> {
        let names = match &self.names {
            Asked::One(name) => Name::new(Arc::clone(name))?.into(),
            Asked::Several(names) => Names::new(names)?,
        };
        Ok((Target::Mutex(names), self.hold.check()?))
    }
}

/// Runs the work under the lease, and waits for the release.
pub(crate) async fn run<F, W, T>(lease: Lease, work: F) -> Result<T, Error>
where
    F: FnOnce(LeaseWatch) -> W,
    W: Future<Output = T>,
{
    let done = lease.guard(work(lease.watch())).await;
    match lease.release().await {
        Ok(()) | Err(Error::Lost(_)) => {}
        Err(error) => logs::warn!(
            name = error.report().map(Report::subject),
            reason = error.to_string(),
            nodes = error.report().map(Report::to_string),
            "a release was not confirmed"
        ),
    }
    Ok(done?)
}

/// The same, where an attempt wins.
pub(crate) async fn try_run<F, W, T>(
    attempt: impl Future<Output = Result<Option<Lease>, Error>>,
    work: F,
) -> Result<Option<T>, Error>
where
    F: FnOnce(LeaseWatch) -> W,
    W: Future<Output = T>,
{
    match attempt.await? {
        Some(lease) => run(lease, work).await.map(Some),
        None => Ok(None),
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
