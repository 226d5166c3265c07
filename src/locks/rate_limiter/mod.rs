//! The rate limiter: a limited number of units in any interval.

mod block;
mod decision;
mod known;
mod plan;
mod small;
mod spend;
mod wait;

use std::{fmt, future::Future, sync::Arc, time::Duration};

pub use self::decision::{Decision, Outage, RateLimitHeaders};
pub(crate) use self::known::Limiters;
use self::{
    known::{Family, Settings, Shared},
    plan::{Choices, Plan},
};
use crate::{
    Error, Quota,
    base::{name, quota::Masters},
    engine::Engine,
};

/// A distributed rate limiter on one name: at most the quota's units in **any** interval, wherever it begins, over all
/// processes.
///
/// It is cheap to clone, and clones share what they know. Settings are chained, before the first use. To limit how many
/// hold something at the same time, use a [`Semaphore`](crate::Semaphore).
///
/// Each master has a share of the limit, and gives out its own units. So a decision asks one master, in one round trip.
/// A master that is down takes its share with it, and nobody ever gets more than the limit. (If each of N masters
/// counted all units, a majority would admit up to `N · limit / Q`. A window that begins again each minute admits twice
/// the limit around its edge.)
///
/// A limit of at most 16 units, or of fewer units than masters, is kept as that many slots of a
/// [semaphore](crate::Semaphore), each on a majority. So the whole limit can be had while a minority of the masters is
/// down.
///
/// [rate limits](crate::docs::rates) says what is promised, and what is not.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// use quorate::{Quorum, Quota};
///
/// let quorum = Quorum::in_memory(3);
/// let supplier = quorum.rate_limiter("supplier", Quota::per_minute(2_000).and(Quota::per_second(50)));
///
/// let decision = supplier.check().await?;
/// if decision.is_allowed() {
///     println!("calling, {} left", decision.remaining());
/// } else {
///     println!("not before {:?}", decision.wait());
/// }
/// supplier.until_ready().await?; // or: waits for its turn
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a rate limiter does nothing until it is asked"]
pub struct RateLimiter {
    engine: Engine,
    name: Arc<str>,
    quota: Arc<Quota>,
    masters: Masters,
    choices: Choices,
    outage: Outage,
    limiters: Arc<Limiters>,
    /// Set if this process keeps more of it than the engine does.
    family: Option<Arc<Family>>,
    shared: Arc<Shared>,
}

impl RateLimiter {
    pub(crate) fn new(
        engine: Engine,
        name: Arc<str>,
        quota: Quota,
        masters: Masters,
        limiters: Arc<Limiters>,
    ) -> Self {
        let limiter = Self {
            engine,
            name,
            quota: Arc::new(quota),
            masters,
            choices: Choices::default(),
            outage: Outage::default(),
            limiters,
            family: None,
            shared: Arc::default(),
        };
        limiter.renewed()
    }

    // ---- settings ---------------------------------------------------------------------------

    /// How old units may be when they come to the caller, counted from the sending of the request. Older units are
    /// given back, and others are asked for. At most a tenth of the shortest interval, or 20 ms if that is more.
    ///
    /// Default: twice the mean round trip to the master that is asked, at least a twentieth of the interval (between 20
    /// and 500 ms), and at most a tenth. With [blocks](Self::block) it is a tenth. A grace that you set is fixed, and
    /// has to be longer than a round trip. A unit counts longer by its grace, so a longer grace costs some of the rate.
    pub fn grace(mut self, d: Duration) -> Self {
        self.choices.grace = Some(d);
        self.renewed()
    }

    /// Takes `k` units at a time, and decides locally until they are used up or too old, so most decisions ask no
    /// master. Default: off.
    ///
    /// The limit still holds, but other processes cannot use the units that one process has taken ahead. Units that it
    /// has not used within the [grace](Self::grace) go back only when it asks for the next block. So make blocks small
    /// beside what a process uses in that time. A quota with an interval of at most 16 units (or of fewer units than
    /// masters) takes no blocks: `Invalid`.
    pub fn block(mut self, k: u32) -> Self {
        self.choices.block = Some(k);
        self.renewed()
    }

    /// The answer while no master can say whether there are units. Default: [`Outage::Error`].
    pub fn on_outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self.renewed()
    }

    /// Returns the limiter for one key: each key has the whole quota, and counts by itself. All limiters of one key
    /// share what they know, except for [blocks](Self::block). A key that is not used is forgotten within two intervals
    /// (1 s at least, 20 s at most). Name and key together have at most 512 bytes, less a few for the name's length;
    /// otherwise each call is `Invalid`. Hash a longer key.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// # let quorum = quorate::Quorum::in_memory(3);
    /// let api = quorum.rate_limiter("api", quorate::Quota::per_minute(60));
    /// let decision = api.keyed("customer-7").check().await?;
    /// assert_eq!(decision.remaining(), 59);
    /// # Ok(()) }
    /// ```
    pub fn keyed(&self, key: impl AsRef<str>) -> Self {
        let mut one = self.clone();
        one.name = name::keyed(&self.name, key.as_ref());
        one.shared = one.known();
        one
    }

    /// Checks the name and the settings without asking any master, for programs that report bad settings when they
    /// start.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.plan().map(drop)
    }

    // ---- verbs ------------------------------------------------------------------------------

    /// Takes one unit, if there is one now: [`check_n(1)`](Self::check_n).
    ///
    /// # Errors
    /// As for [`check_n`](Self::check_n).
    ///
    /// # Cancel safety
    /// As for [`check_n`](Self::check_n).
    pub fn check(&self) -> impl Future<Output = Result<Decision, Error>> + Send + 'static + use<> {
        self.check_n(1)
    }

    /// Takes `n` units if there are that many now. Otherwise it takes none, and says how long to wait. With `n` = 0 it
    /// takes none and looks how many there are, on all masters.
    ///
    /// It asks one master. If that one has too few, it asks others, and takes the units of several masters together if
    /// needed. It asks nobody if it has learned less than a second ago that there are not enough. It never overtakes
    /// callers that wait in this process for units of the same name and quota ([`until_ready`](Self::until_ready)).
    ///
    /// # Errors
    /// - `Invalid` if a name or a setting is not valid, or if `n` is above the limit.
    /// - `NoQuorum` if no master can say, unless [`on_outage`](Self::on_outage) says otherwise. (A limit of at most 16
    ///   units needs a majority.)
    /// - `Quarantined` if the masters that answer have restarted and may have forgotten units that count, unless
    ///   [`on_outage`](Self::on_outage) says otherwise.
    /// - `TooSlow` if answers take longer than the [grace](Self::grace).
    /// - `System`, `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped. Units that were taken for it are given back. If a request is still under way, the units in its
    /// answer are given back too; units whose answer is lost count as used.
    pub fn check_n(
        &self,
        n: u32,
    ) -> impl Future<Output = Result<Decision, Error>> + Send + 'static + use<> {
        let this = self.clone();
        async move { this.decide(n).await }
    }

    /// Waits for one unit, and takes it: [`until_n_ready(1)`](Self::until_n_ready).
    ///
    /// # Errors
    /// As for [`until_n_ready`](Self::until_n_ready).
    ///
    /// # Cancel safety
    /// As for [`check_n`](Self::check_n).
    pub fn until_ready(&self) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        self.until_n_ready(1)
    }

    /// Waits until there are `n` units, and takes them.
    ///
    /// Callers that wait in one process for the same name and quota are served in their order. Between processes and
    /// between quotas no order is kept, and a large demand can be passed by small ones.
    ///
    /// # Errors
    /// As for [`check_n`](Self::check_n). With [`Outage::Deny`] it waits through an outage.
    ///
    /// # Cancel safety
    /// As for [`check_n`](Self::check_n); the place in the queue is given up. Poll it or drop it: a future that is kept
    /// and not polled holds up those behind it.
    pub fn until_n_ready(
        &self,
        n: u32,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let this = self.clone();
        async move { this.wait_for(n).await }
    }

    /// Waits for one unit, then does the work.
    ///
    /// # Errors
    /// As for [`until_n_ready`](Self::until_n_ready).
    ///
    /// # Cancel safety
    /// May be dropped: that drops the work. The unit is used once the work has begun.
    pub fn run<W, T>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static + use<W, T>
    where
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let ready = self.until_ready();
        async move {
            ready.await?;
            Ok(work.await)
        }
    }

    // ---- inside -----------------------------------------------------------------------------

    /// After a change of the settings: finds what is known of limiters with these settings.
    fn renewed(mut self) -> Self {
        let mut windows = self.quota.windows().iter();
        let settings = Settings {
            quota: Arc::clone(&self.quota),
            choices: self.choices,
            outage: self.outage,
        };
        self.family = if self.choices.block.is_some() {
            // A block belongs to one limiter and its clones: what is left of it goes back when they are dropped.
            Some(Arc::new(Family::new(&self.quota)))
        } else if windows.any(|window| window.has_slots(self.masters)) {
            Some(self.limiters.family(self.engine.now(), settings))
        } else {
            None
        };
        self.shared = self.known();
        self
    }

    fn known(&self) -> Arc<Shared> {
        match &self.family {
            Some(family) => family.shared(&self.engine, &self.name),
            // The engine knows all that there is.
            None => Arc::default(),
        }
    }

    fn plan(&self) -> Result<Arc<Plan>, Error> {
        let plan = self.shared.plan.get_or_init(|| {
            Plan::new(&self.name, &self.quota, self.masters, self.choices).map(Arc::new)
        });
        plan.clone()
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("name", &self.name)
            .field("quota", &self.quota.to_string())
            .finish_non_exhaustive()
    }
}
