//! The semaphore: a limited number of holders per name, each with a slot and a token of its own.

use std::{
    fmt,
    future::Future,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures::{FutureExt as _, future::try_join_all};
use tracing::Instrument;

use crate::{
    Error, Lease, Renewal,
    base::{
        limit::{Agreed, Limit},
        logs,
        name::{Name, keyed},
        owner::Label,
    },
    engine::{
        AcquireRequest, Engine, Event, Wait,
        wants::{Slot, Wants, too_many},
    },
    locks::{
        acquire::Acquire,
        handle::{runs, setters},
        options::LeaseOptions,
    },
    node::request::{Family, Pool},
};

/// A distributed counting semaphore on one name: at most `limit` leases at a time.
///
/// It is cheap to clone, and its settings are chained. For one holder at a time, use a [`Mutex`](crate::Mutex). To
/// limit operations per interval instead of holders at a time, use a [`RateLimiter`](crate::RateLimiter).
///
/// The semaphore has `limit` numbered slots. Each lease holds one of them on a majority of nodes, so there are never
/// more leases than slots, whichever node fails. (If each node counted holders for itself, a majority would admit up to
/// `N · limit / Q` of them.)
///
/// [`Lease::slot`] is the number of the slot, 0 to `limit - 1`. No other valid lease has it, so it can tell workers
/// apart. The [token](Lease::token) grows with each lease of the same slot: let the store check both.
///
/// Validity and time are promised as for a [`Mutex`](crate::Mutex). [semaphores](crate::docs::semaphores) has the rest.
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
    options: LeaseOptions,
    agreed: Arc<Agreed>,
    seen: Arc<AtomicU64>,
    /// Set if its slots are the units of a rate limit: their pool, and how long a unit is taken.
    units: Option<(Pool, Duration)>,
}

impl Semaphore {
    pub(crate) fn new(engine: Engine, name: Arc<str>, limit: u32, max_ttl: Duration) -> Self {
        Self {
            engine,
            name,
            options: LeaseOptions::new(max_ttl),
            agreed: Arc::new(Agreed::new(limit)),
            seen: Arc::new(AtomicU64::new(0)),
            units: None,
        }
    }

    setters! {
        options;
        /// How long a grant lasts unless it is renewed. Default: 10 s, or the deployment's `max_ttl` if that is
        /// smaller. At least 100 ms; with the lock-delay at most `max_ttl`.
        ttl;
        /// How long [`acquire`](Self::acquire) waits, time in the queue included, counted from its first poll. Default:
        /// without a limit. Zero means one attempt, as [`try_acquire`](Self::try_acquire) makes.
        wait_timeout;
        /// How a lease is renewed, and for how long. Default: [`Renewal::auto`](crate::Renewal::auto).
        renewal;
        /// How much longer the nodes keep a slot than its holder believes. Default: 0. It matters for holders that
        /// vanish: a release or a drop frees the slot at once.
        lock_delay;
        /// The name of the holder, as [`Mutex::label`](crate::Mutex::label). Default: the quorum's label.
        label;
    }

    /// Returns the semaphore for one key: each key has the whole limit, and counts by itself.
    ///
    /// Each call makes a new handle, which knows only the limit with which this one was made. So keep the handle if you
    /// [`resize`](Self::resize) it: a handle that is made afterwards gets `LimitConflict`.
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

    /// The limit that this handle knows: the one with which it was made, until it hears of a [`resize`](Self::resize).
    pub fn limit(&self) -> u32 {
        self.agreed.slots()
    }

    /// Waits in the queue for a slot: first come, first served, except that the first max(2, limit / 3) waiters, rounded
    /// up, may be served in any order.
    ///
    /// A free slot takes one round trip if nobody waits, also if many ask at once for different slots.
    ///
    /// # Errors
    /// - `LimitConflict` if the nodes know another limit for this name.
    /// - `Held` when `wait_timeout` is over.
    /// - `NoQuorum`, `Quarantined`, `TooSlow`, `Invalid`, `System`, `Closed` as for
    ///   [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any time. Its place in the queue is given up, and what nodes granted is taken back, in the
    /// background.
    pub fn acquire(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let lease = self.ask(Wait::For(self.options.wait_timeout));
        // A wait ends with a lease or with an error.
        lease.map(|lease| lease?.ok_or(Error::Closed))
    }

    /// Takes a slot if one is free and nobody waits. Returns `None` if a majority answered and no slot can be had.
    ///
    /// It never overtakes a living waiter, and takes no place in the queue itself.
    ///
    /// # Errors
    /// - `LimitConflict` as for [`acquire`](Self::acquire).
    /// - `NoQuorum` or `Quarantined` if it could not be decided.
    /// - `TooSlow`, `Invalid`, `System`, `Closed`.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        self.ask(Wait::Never)
    }

    /// Waits for `n` slots, all or none, as one lease. [`Lease::slots`] and [`Lease::tokens`] name them. The lease is
    /// lost when any of its slots is.
    ///
    /// Only one caller at a time gathers slots, across all processes, so two callers that want several never wait for
    /// each other. The gathering caller queues beside callers that want one slot. The slots that it already has are
    /// idle until it has all of them.
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
    /// - `Invalid` also if `n` is 0 or above the limit.
    /// - `Lost` if the right to gather was lost, as after an outage.
    /// - As for [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire). All slots gathered so far are taken back.
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
            let wait = this.options.wait_timeout;
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
            // If a slot was lost meanwhile, another of these leases may have it by now.
            match lease.lost_now() {
                Some(lost) => Err(lost.into()),
                None => Ok(lease),
            }
        }
    }

    runs! {
        /// Acquires a slot, runs the work under [`Lease::guard`], and waits for the release, as
        /// [`Mutex::run`](crate::Mutex::run) does. The work is `'static`; if it has to borrow, use [`Lease::guard`].
        run => acquire;
        try_run => try_acquire;
    }

    /// Checks the name, the limit and the settings without asking any node, for programs that report bad settings when
    /// they start.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.check().map(drop)
    }

    /// Waits for the right to gather several slots, which one caller has at a time. It is renewed until the gathering
    /// is done, whatever the renewal of the slots is.
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
        let request = self.check().map(|(name, ttl, label)| AcquireRequest {
            wants: Wants::Slot(Box::new(Slot {
                pool: Pool { name, family },
                agreed: Arc::clone(agreed),
                of,
            })),
            ttl,
            lock_delay: self.options.lock_delay,
            renewal: self.options.renewal,
            label,
            wait,
            seen: Arc::clone(seen),
        });
        Acquire::new(&self.engine, request)
    }

    fn pool(&self) -> Result<Pool, Error> {
        let (name, ..) = self.check()?;
        let family = self.family();
        Ok(Pool { name, family })
    }

    fn check(&self) -> Result<(Name, Duration, Option<Label>), Error> {
        if let Some((pool, ttl)) = &self.units {
            return Ok((pool.name.clone(), *ttl, None));
        }
        let name = Name::new(Arc::clone(&self.name))?;
        check_limit(self.agreed.made())?;
        let (ttl, label) = self.options.check()?;
        Ok((name, ttl, label))
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

/// The ttl of the right to gather the units of a rate limit.
const GATHERS: Duration = Duration::from_secs(10);

impl Semaphore {
    /// Makes a semaphore of the units of a rate limit. The slot of a unit that was used is left to its ttl.
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

    /// How long it takes until each slot is free on a majority of nodes, unless it is renewed; sorted, the shortest
    /// time first.
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

    /// The right to gather is held for as long as the gathering takes, not for as long as a unit counts.
    fn gathers_units(&mut self) {
        if let Some((_, ttl)) = &mut self.units {
            *ttl = (*ttl).min(self.options.max_ttl).min(GATHERS);
        }
    }
}

// ---- Operations on the whole semaphore: count, resize, evict

impl Semaphore {
    /// Returns how many slots are free, as a majority of nodes says. It is a snapshot, and may be outdated when you
    /// read it.
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

    /// Changes the limit for all clients. Clients whose handle has the old limit follow.
    ///
    /// A smaller limit ends no lease: holders keep their slots, and later callers get a slot once the holders fit the
    /// new limit. If two resizes run at once, the smaller limit stands.
    ///
    /// The nodes forget the limit when nobody has used the semaphore for three to four `max_ttl`. So also start the
    /// programs with the new limit.
    ///
    /// # Errors
    /// - `NoQuorum` if not every node has answered; it names those that have not. (A node in quarantine counts, as it
    ///   knows no limit.) The new limit may already be in force and spread, so call it again.
    /// - `LimitConflict` if another resize at the same time has won.
    /// - `Invalid`, `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; the resize may have happened or not.
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

    /// Frees a slot on every voting node, whoever holds it, for operators. Returns true if the slot was held.
    ///
    /// The first in the queue gets the slot. [`Quorum::inspect`](crate::Quorum::inspect) shows the holder of each slot.
    ///
    /// The holder learns of the eviction at its next renewal. Without renewal it learns of it only when its validity
    /// ends. Until then two may believe that they hold the slot, and only the token tells them apart. A lease of
    /// several slots is lost as a whole.
    ///
    /// A holder that renews at this moment may put the slot back, if it reaches a node that this call does not reach.
    /// So look afterwards, and call it again if the same holder is still there.
    ///
    /// # Errors
    /// - `NoQuorum` or `Quarantined` if fewer than a majority answered, or confirmed it.
    /// - `Invalid` if no node names the holder of the slot: each node names the holders of its first 100 taken slots.
    /// - `Invalid` if the name is not valid.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; the eviction may have happened or not.
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
