//! The semaphore: at most so many holders per name, each with a slot and a token of its own.

use std::{
    fmt,
    future::Future,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures::{FutureExt as _, future::try_join_all};
use tracing::Instrument;

use crate::{
    Error, Lease, LeaseWatch, Renewal,
    base::{
        limit::{Agreed, Limit},
        logs,
        name::{Name, keyed},
    },
    engine::{
        Engine, Event, Wait,
        wants::{Slot, Wants, too_many},
    },
    locks::{
        acquire::{Acquire, Asks},
        mutex,
        options::Hold,
    },
    node::request::{Family, Pool},
};

/// A distributed counting semaphore on one name: at most `limit` leases at a time. Cheap to clone; settings are chained.
///
/// It has `limit` numbered slots. Each lease holds one of them on a majority of nodes, so there are never more leases than
/// slots, whatever node fails. (Where each node counts holders for itself, a majority admits up to `N · limit / Q` of
/// them.) [`Lease::slot`] says which slot it is: 0 to `limit - 1`, and no other valid lease has it, so it can tell
/// workers apart. The [token](Lease::token) grows with each lease of the same slot: let the store check both.
///
/// What is promised of validity and of time is what [`Mutex`](crate::Mutex) promises; [semaphores](crate::docs::semaphores) has the rest.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// let quorum = quorate::Quorum::in_memory(3);
/// let workers = quorum.semaphore("thumbnails", 2);
/// let (one, two) = (workers.acquire().await?, workers.acquire().await?);
/// assert_ne!(one.slot(), two.slot());
/// assert!(workers.try_acquire().await?.is_none(), "both slots are taken");
/// one.release().await?;
/// assert_eq!(workers.available().await?, 1);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a semaphore does nothing until it is acquired"]
pub struct Semaphore {
    engine: Engine,
    name: Arc<str>,
    hold: Hold,
    agreed: Arc<Agreed>,
    seen: Arc<AtomicU64>,
    /// It is made of the units of a rate limit: their pool, and for how long one is taken.
    units: Option<(Pool, Duration)>,
}

impl Semaphore {
    pub(crate) fn new(engine: Engine, name: Arc<str>, limit: u32, max_ttl: Duration) -> Self {
        Self {
            engine,
            name,
            hold: Hold::new(max_ttl),
            agreed: Arc::new(Agreed::new(limit)),
            seen: Arc::new(AtomicU64::new(0)),
            units: None,
        }
    }

    /// How long a grant lasts unless it is renewed. Default: 10 s, or the deployment's `max_ttl` if that is
    /// smaller. At least 100 ms; with the lock-delay at most `max_ttl`.
    pub fn ttl(mut self, d: Duration) -> Self {
        self.hold.ttl = Some(d);
        self
    }

    /// How long [`acquire`](Self::acquire) waits, in line too, counted from its first poll. Default: without a limit. Zero
    /// is one attempt, as [`try_acquire`](Self::try_acquire) makes.
    pub fn wait_timeout(mut self, d: Duration) -> Self {
        self.hold.wait_timeout = Some(d);
        self
    }

    /// Whether and for how long a lease is renewed. Default: [`Renewal::auto`].
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.hold.renewal = renewal;
        self
    }

    /// How much longer the nodes keep a slot than its holder believes. Default: 0. It matters for holders that vanish: a
    /// release or a drop frees the slot at once.
    pub fn lock_delay(mut self, d: Duration) -> Self {
        self.hold.lock_delay = d;
        self
    }

    /// The same semaphore for one of many: each key has the whole limit, and counts by itself.
    ///
    /// Each call makes a new handle, which knows only the limit that this one was made with. Keep the handle if you
    /// [`resize`](Self::resize) it: one that is made afterwards gets `LimitConflict`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let exports = quorate::Quorum::in_memory(3).semaphore("exports", 1);
    /// let one = exports.keyed("customer-7").acquire().await?;
    /// let other = exports.keyed("customer-8").acquire().await?; // does not wait
    /// # drop((one, other)); Ok(()) }
    /// ```
    pub fn keyed(&self, key: impl AsRef<str>) -> Self {
        Self {
            name: keyed(&self.name, key.as_ref()),
            agreed: Arc::new(Agreed::new(self.agreed.made())),
            seen: Arc::default(),
            ..self.clone()
        }
    }

    /// The limit, as far as this handle knows: what it was made with, until it hears of a [`resize`](Self::resize).
    pub fn limit(&self) -> u32 {
        self.agreed.slots()
    }

    /// Waits for a slot, in line: who asks first is served first, as far as some who stand in front may be served in
    /// another order (a third of the limit, at least 2).
    ///
    /// A slot that is free, while nobody waits, takes one round trip, also where many ask at once for different slots.
    ///
    /// # Errors
    /// - `LimitConflict` when the nodes know another limit for this name.
    /// - `Held` when `wait_timeout` is over.
    /// - `NoQuorum`, `Quarantined`, `TooSlow`, `Invalid`, `System`, `Closed` as for [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any time. Its place in line is given up, and what nodes granted is taken back, in the background.
    pub fn acquire(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let lease = self.ask(Wait::For(self.hold.wait_timeout));
        // A wait ends with a lease or with an error.
        lease.map(|lease| lease?.ok_or(Error::Closed))
    }

    /// Takes a slot if one is free and nobody waits. `None` when a majority answered and none can be had.
    ///
    /// It never overtakes somebody who lives and waits in line, and takes no place there itself.
    ///
    /// # Errors
    /// - `LimitConflict` as for [`acquire`](Self::acquire).
    /// - `NoQuorum` or `Quarantined` when it could not be decided.
    /// - `TooSlow`, `Invalid`, `System`, `Closed`.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        self.ask(Wait::Never)
    }

    /// Waits for `n` slots, all or none, as one lease: [`Lease::slots`] and [`Lease::tokens`] name them. It is lost when
    /// any of them is.
    ///
    /// One caller at a time gathers, in any process, so two that want several never wait for each other. While it gathers,
    /// the slots that it has already are idle. It stands in line beside those that want one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let quorum = quorate::Quorum::in_memory(3);
    /// let lease = quorum.semaphore("gpus", 4).acquire_many(3).await?;
    /// assert_eq!(lease.slots().len(), 3);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - `Invalid` also where `n` is 0 or above the limit.
    /// - `Lost` when the right to gather was lost, as after an outage.
    /// - As for [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire): all that it had gathered is taken back.
    pub fn acquire_many(
        &self,
        n: u32,
    ) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let this = self.clone();
        async move {
            let limit = this.agreed.slots();
            if n == 0 || n > limit {
                return Err(too_many(n, limit));
            }
            let wait = this.hold.wait_timeout;
            let end = wait.map(|wait| this.engine.now().plus(wait));
            let gathers = this.gather(Wait::For(wait)).await?;
            let gathers = gathers.ok_or(Error::Closed)?;
            let left = end.map(|end| end.since(this.engine.now()));
            let all = (0..n).map(|_| {
                this.ask_of(this.family(), &this.agreed, n, &this.seen, Wait::For(left))
                    .map(|one| one?.ok_or(Error::Closed))
            });
            let all = gathers.guard(try_join_all(all)).await??;
            drop(gathers);
            let lease = Lease::of_several(all).ok_or(Error::Closed)?;
            // One that was lost meanwhile may be another of these by now.
            match lease.lost_now() {
                Some(lost) => Err(lost.into()),
                None => Ok(lease),
            }
        }
    }

    /// Acquires, runs the work under [`Lease::guard`], and waits for the release, as [`Mutex::run`](crate::Mutex::run) does.
    /// The work is `'static`; to borrow, use [`Lease::guard`].
    ///
    /// # Errors
    /// - As for [`acquire`](Self::acquire).
    /// - `Lost` when the lease was lost before the work was done: the work was dropped then.
    ///
    /// # Cancel safety
    /// Dropping it drops the work and frees the slot in the background.
    pub fn run<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let lease = self.acquire();
        async move { mutex::run(lease.await?, work).await }
    }

    /// Does what [`run`](Self::run) does if a slot is free; otherwise returns `None`.
    ///
    /// # Errors
    /// - As for [`try_acquire`](Self::try_acquire).
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
        mutex::try_run(self.try_acquire(), work)
    }

    /// Checks the name, the limit and the settings, without asking any node: for programs that report bad settings when
    /// they start.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.check().map(drop)
    }

    /// The right to take several: one has it at a time. It lasts for as long as that takes, whatever the permits are to
    /// be held for.
    fn gather(
        &self,
        wait: Wait,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        let (agreed, seen) = (Arc::new(Agreed::new(1)), Arc::default());
        let mut one = self.clone().renewal(Renewal::auto());
        one.gathers_units();
        one.ask_of(Family::Gatherers, &agreed, 1, &seen, wait)
    }

    fn ask(
        &self,
        wait: Wait,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        self.ask_of(self.family(), &self.agreed, 1, &self.seen, wait)
    }

    fn ask_of(
        &self,
        family: Family,
        agreed: &Arc<Agreed>,
        of: u32,
        seen: &Arc<AtomicU64>,
        wait: Wait,
    ) -> Acquire {
        match self.check() {
            Ok((name, ttl)) => Acquire::new(Asks {
                engine: self.engine.clone(),
                wants: Wants::Slot(Box::new(Slot {
                    pool: Pool { name, family },
                    agreed: Arc::clone(agreed),
                    of,
                })),
                ttl,
                lock_delay: self.hold.lock_delay,
                renewal: self.hold.renewal,
                wait,
                seen: Arc::clone(seen),
            }),
            Err(error) => Acquire::Invalid(error),
        }
    }

    fn pool(&self) -> Result<Pool, Error> {
        let (name, _) = self.check()?;
        let family = self.family();
        Ok(Pool { name, family })
    }

    fn check(&self) -> Result<(Name, Duration), Error> {
        if let Some((pool, ttl)) = &self.units {
            return Ok((pool.name.clone(), *ttl));
        }
        let name = Name::new(Arc::clone(&self.name))?;
        check_limit(self.agreed.made())?;
        Ok((name, self.hold.check()?))
    }
}

fn check_limit(limit: u32) -> Result<(), Error> {
    match limit {
        1..=Limit::MOST => Ok(()),
        _ => Err(Error::Invalid(format!(
            "a limit of {limit} is not allowed: a semaphore has 1 to {} slots",
            Limit::MOST
        ))),
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name)
            .field("limit", &self.agreed.slots())
            .finish_non_exhaustive()
    }
}

// ---- Units of a small rate limit, kept as slots

/// The ttl of the right to gather units.
const GATHERS: Duration = Duration::from_secs(10);

impl Semaphore {
    /// The units of a rate limit as slots: one that was used is left to its ttl.
    pub(crate) fn of_units(
        engine: Engine,
        pool: Pool,
        limit: u32,
        ttl: Duration,
        max_ttl: Duration,
    ) -> Self {
        let units = Some((pool.clone(), ttl));
        Self {
            units,
            ..Self::new(engine, pool.name.as_str().into(), limit, max_ttl)
        }
    }

    /// The same slots, each taken for this long.
    pub(crate) fn lasting(&self, ttl: Duration) -> Self {
        let mut one = self.clone();
        if let Some((_, its)) = &mut one.units {
            *its = ttl;
        }
        one
    }

    /// When each slot is free on a majority of nodes, unless it is renewed: the first first.
    pub(crate) fn free_in(
        &self,
    ) -> impl Future<Output = Result<Vec<Duration>, Error>> + Send + 'static + use<> {
        let (pool, engine) = (self.pool(), self.engine.clone());
        let agreed = Arc::clone(&self.agreed);
        async move {
            let pool = pool?;
            let free = engine.call(|reply| Event::Available {
                pool,
                agreed,
                reply,
            });
            free.await
        }
    }

    fn family(&self) -> Family {
        let units = self.units.as_ref();
        units.map_or(Family::Permits, |(pool, _)| pool.family)
    }

    /// Held for as long as it gathers, and not for as long as a unit counts.
    fn gathers_units(&mut self) {
        if let Some((_, ttl)) = &mut self.units {
            *ttl = (*ttl).min(self.hold.max_ttl).min(GATHERS);
        }
    }
}

// ---- Operations on the whole semaphore: count, resize, evict

impl Semaphore {
    /// How many slots a majority of nodes says are free: a snapshot, which may be over when you read it.
    ///
    /// # Errors
    /// `NoQuorum`, `Quarantined`, `Invalid`, `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn available(&self) -> impl Future<Output = Result<u32, Error>> + Send + 'static + use<> {
        let free = self.free_in();
        async move {
            let free = free.await?;
            let now = free.iter().filter(|wait| wait.is_zero()).count();
            Ok(u32::try_from(now).unwrap_or(u32::MAX))
        }
    }

    /// Changes the limit, for all clients: those that hold a handle with the old limit follow.
    ///
    /// A smaller limit takes nothing away: who holds a slot keeps it, and who asks afterwards gets one when it fits. A
    /// limit is forgotten when nobody has used the semaphore for four `max_ttl`: start the programs with the new one.
    /// Of two resizes at once the smaller limit stands.
    ///
    /// # Errors
    /// - `NoQuorum` when not every node has answered: it names who is missing. (A node in quarantine counts: it knows no
    ///   limit.) The new limit may be in force then, and spread: say it again.
    /// - `LimitConflict` when another resize at the same time has won.
    /// - `Invalid`, `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; it may have happened or not.
    pub fn resize(
        &self,
        limit: u32,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let (pool, engine) = (self.pool(), self.engine.clone());
        let agreed = Arc::clone(&self.agreed);
        async move {
            let pool = pool?;
            check_limit(limit)?;
            let span = logs::span!("resize", name = pool.name.as_str(), limit);
            let resize = |reply| Event::Resize {
                pool,
                agreed,
                to: limit,
                reply,
            };
            engine.call(resize).instrument(span).await
        }
    }

    /// Frees a slot on every voting node, no matter who holds it: for operators. The first in line gets it. Returns whether
    /// anybody had it. [`Quorum::inspect`](crate::Quorum::inspect) says who has which.
    ///
    /// The holder learns of it at its next renewal, without renewal only when its validity ends. Until then two may believe
    /// that they hold the slot, and only the token tells them apart. A lease of several slots is lost as a whole.
    ///
    /// A holder that renews at this moment may put the slot back, if it reaches a node that this call does not reach. So look
    /// afterwards, and call it again if the same holder is still there.
    ///
    /// # Errors
    /// - `NoQuorum` or `Quarantined` when fewer than a majority answered, or confirmed it.
    /// - `Invalid` when nobody knows who has the slot: each node names the holders of its first 100 slots that are taken.
    /// - `Invalid` for a bad name, `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; it may have happened or not.
    pub fn evict(
        &self,
        slot: u32,
    ) -> impl Future<Output = Result<bool, Error>> + Send + 'static + use<> {
        let (pool, engine) = (self.pool(), self.engine.clone());
        async move {
            let pool = pool?;
            let span = logs::span!("evict", name = pool.name.as_str(), slot);
            engine
                .call(|reply| Event::EvictSlot { pool, slot, reply })
                .instrument(span)
                .await
        }
    }
}
