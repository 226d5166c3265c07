//! The rate limiter: at most so many units in any interval.

mod block;
mod decision;
mod plan;
mod small;
mod spend;
mod wait;

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

pub use self::decision::{Decision, RateLimitHeaders};
use self::{
    block::Block,
    plan::{Choices, Plan},
};
use crate::{
    Error, Quota,
    base::{clock::Tick, name, quota::Masters, sweep::Sweep},
    engine::Engine,
};

/// A distributed rate limiter on one name: at most so many units in **any** interval, wherever it begins, counted over all
/// processes. Cheap to clone; clones share what they know. Settings are chained, before the first use.
///
/// Each master has a share of the limit, and gives out its own units. So a decision asks one master, in one round trip; a
/// master that is down takes its share with it, and nobody ever gets more than the limit. (Where each of N masters counts
/// all, a majority admits up to `N · limit / Q`; a window that begins anew each minute admits twice the limit around its
/// edge.) A limit of at most 16 units is kept as that many slots of a [semaphore](crate::Semaphore), each on a majority: the
/// whole limit can be had while a minority of the masters is down.
///
/// What is promised and what is not: [rate limits](crate::docs::rates).
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
    shared: Arc<Shared>,
}

/// What a rate limiter answers while no master can say whether there are units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// An error: the caller decides.
    #[default]
    Error,
    /// Denied: nothing is done that may be too much. Who waits, waits on.
    Deny,
    /// Allowed: nothing stops, and nothing is counted.
    Allow,
}

/// What clones share.
#[derive(Default)]
struct Shared {
    plan: OnceLock<Result<Arc<Plan>, Error>>,
    block: Block,
    keyed: Mutex<Keyed>,
}

/// One limiter for each key.
#[derive(Default)]
struct Keyed {
    limiters: HashMap<Box<str>, RateLimiter>,
    sweep: Sweep,
}

impl Keyed {
    /// Drops the limiters that nobody uses, if there are many or it has not been done for a while.
    fn forget(&mut self, now: Tick) {
        if !self.sweep.is_due(self.limiters.len(), now) {
            return;
        }
        self.limiters.retain(|_, limiter| limiter.is_in_use(now));
        let left = self.limiters.len();
        self.sweep.done(left, now);
        self.limiters.shrink_to(2 * left);
    }
}

impl RateLimiter {
    pub(crate) fn new(engine: Engine, name: Arc<str>, quota: Quota, masters: Masters) -> Self {
        Self {
            engine,
            name,
            quota: Arc::new(quota),
            masters,
            choices: Choices::default(),
            outage: Outage::default(),
            shared: Arc::default(),
        }
    }

    // ---- settings ---------------------------------------------------------------------------

    /// How old units may be when they come to the caller, counted from the sending of the request; older ones are given
    /// back, and asked for again. At most a tenth of the shortest interval, or 20 ms if that is more.
    ///
    /// Default: twice the mean round trip to the master that is asked, at least a twentieth of the interval (between 20 and
    /// 500 ms), and at most a tenth; with [blocks](Self::block) a tenth. One that is set is fixed: it has to be longer than a
    /// round trip. A unit counts longer by its grace, so a longer grace costs some of the rate.
    pub fn grace(mut self, d: Duration) -> Self {
        self.choices.grace = Some(d);
        self.renewed()
    }

    /// Takes `k` units at a time, and decides by itself until they are used up or too old: most decisions ask no master.
    /// Default: off.
    ///
    /// The limit holds. But what one process has taken ahead no other can use. What it has not used within the
    /// [grace](Self::grace) goes back only when it asks for the next block, so take blocks that are small beside what a process
    /// uses in that time. A quota with an interval of at most 16 units takes no blocks: `Invalid`.
    pub fn block(mut self, k: u32) -> Self {
        self.choices.block = Some(k);
        self.renewed()
    }

    /// What to answer while no master can say whether there are units. Default: [`Outage::Error`].
    pub fn on_outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self.renewed()
    }

    /// The same limiter for one of many: each key has the whole quota, and counts by itself. Asking for a key again gives
    /// the limiter that is there already.
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
        let key = key.as_ref();
        let mut keyed = self
            .shared
            .keyed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        keyed.forget(self.engine.now());
        if let Some(limiter) = keyed.limiters.get(key) {
            return limiter.clone();
        }
        let limiter = Self {
            name: name::keyed(&self.name, key),
            shared: Arc::default(),
            ..self.clone()
        };
        keyed.limiters.insert(key.into(), limiter.clone());
        limiter
    }

    /// Checks the name and the settings, without asking any master: for programs that report bad settings when they start.
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

    /// Takes `n` units if there are as many now, else none, and says how long to wait. `n` = 0 takes none and looks how
    /// many there are, on all masters.
    ///
    /// One master is asked, and others only where it has too few: for more than one has, the units of several are taken
    /// together. It never overtakes those who wait in this process ([`until_ready`](Self::until_ready)). Nothing is asked
    /// where it is known since less than a second that there are not enough.
    ///
    /// # Errors
    /// - `Invalid` for a bad name or setting, and for an `n` above the limit.
    /// - `NoQuorum` when no master can say, and `Quarantined` when those that answer have restarted and may have forgotten
    ///   units that count: unless [`on_outage`](Self::on_outage) says otherwise. (A limit of at most 16 units needs a
    ///   majority.)
    /// - `TooSlow` when answers take longer than the [grace](Self::grace).
    /// - `System`, `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped. Units that were taken for it are given back, unless the request for them is under way still: those
    /// that its answer names are, and those whose answer is lost count as used.
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

    /// Waits until there are `n` units, and takes them. Those who wait in one process are served in their order; between
    /// processes there is none, and who wants many can be passed by others that want few.
    ///
    /// # Errors
    /// As for [`check_n`](Self::check_n). With [`Outage::Deny`] it waits through an outage.
    ///
    /// # Cancel safety
    /// As for [`check_n`](Self::check_n); the place in line is given up. Poll it or drop it: one that is kept and not polled
    /// holds up those behind it.
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
    /// Dropping it drops the work. The unit is used once the work has begun.
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

    /// Clones that were made before keep their settings.
    fn renewed(mut self) -> Self {
        self.shared = Arc::default();
        self
    }

    fn plan(&self) -> Result<Arc<Plan>, Error> {
        let plan = self.shared.plan.get_or_init(|| {
            Plan::new(
                &self.engine,
                &self.name,
                &self.quota,
                self.masters,
                self.choices,
            )
            .map(Arc::new)
        });
        plan.clone()
    }

    fn is_in_use(&self, now: Tick) -> bool {
        Arc::strong_count(&self.shared) > 1 || self.shared.block.is_good(now)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quorum;

    #[tokio::test]
    async fn keys_that_nobody_uses_are_forgotten_after_a_while() {
        let quorum = Quorum::in_memory(3);
        let all = quorum.rate_limiter("api", Quota::per_minute(60));
        let used = all.keyed("used");
        const MANY: usize = 2_048;
        let now = all.engine.now();
        // As after a time when there were even more.
        all.shared.keyed.lock().unwrap().sweep.done(2 * MANY, now);
        for key in 0..MANY {
            let _ = all.keyed(key.to_string());
        }
        let mut keyed = all.shared.keyed.lock().unwrap();
        let crowd = keyed.limiters.len();
        assert_eq!(crowd, MANY + 1);
        let then = now.plus(Duration::from_secs(60));
        keyed.forget(then.minus(Duration::from_millis(1)));
        assert_eq!(keyed.limiters.len(), crowd);
        keyed.forget(then);
        assert_eq!(keyed.limiters.len(), 1);
        assert!(
            keyed.limiters.capacity() < 16,
            "{}",
            keyed.limiters.capacity()
        );
        drop(used);
    }
}
