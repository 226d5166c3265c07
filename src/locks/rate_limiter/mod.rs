//! The rate limiter: a limited number of units in any interval.

mod block;
mod decision;
mod plan;
mod small;
mod spend;
mod wait;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

pub use self::decision::{Decision, RateLimitHeaders};
use self::{
    block::Block,
    plan::{Choices, Plan},
};
use crate::{
    Error, Quota,
    base::{
        clock::Tick,
        name,
        quota::{Masters, remembered},
        sweep::{CROWD, is_too_wide, part},
    },
    engine::Engine,
    protocol::rates::words::Crowd,
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
    shared: Arc<Shared>,
}

/// The answer of a rate limiter while no master can say whether there are units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// An error, so that the caller decides.
    #[default]
    Error,
    /// The demand is denied, so nothing is done that may be too much. A caller that waits goes on waiting.
    Deny,
    /// The demand is allowed, so nothing stops, and nothing is counted.
    Allow,
}

/// The state that clones share.
#[derive(Default)]
struct Shared {
    plan: OnceLock<Result<Arc<Plan>, Error>>,
    block: Block,
    /// Made with the first key.
    keyed: OnceLock<Arc<Keyed>>,
}

/// The states of keys, for quotas of which this process keeps more than the engine does: blocks, and what is known of
/// slots.
struct Keyed {
    states: Mutex<States>,
    /// For how long a state is kept that nobody uses.
    idle: Duration,
}

#[derive(Default)]
struct States {
    /// By the limiter's name.
    by_name: HashMap<Arc<str>, Arc<Shared>>,
    /// Each of these names, the one that was looked at last at the end.
    names: VecDeque<Arc<str>>,
    is_crowd: bool,
}

impl Keyed {
    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crowd for Keyed {
    fn forget(&self, now: Tick) -> bool {
        // A state gives its units back when it is dropped, which needs no lock.
        let mut dropped = Vec::new();
        let mut states = self.lock();
        let States {
            by_name,
            names,
            is_crowd,
        } = &mut *states;
        for _ in 0..part(names.len(), self.idle) {
            let Some(name) = names.pop_front() else {
                break;
            };
            let state = by_name.get(&name);
            if state.is_some_and(|state| state.is_in_use(now, self.idle)) {
                names.push_back(name);
            } else {
                dropped.extend(by_name.remove(&name));
            }
        }
        if is_too_wide(names.len(), names.capacity()) {
            names.shrink_to(2 * names.len());
            by_name.shrink_to(2 * names.len());
        }
        *is_crowd = names.len() >= CROWD;
        *is_crowd
    }
}

impl Shared {
    /// Returns true if a caller has it, or if it knows something that a new one would not know.
    fn is_in_use(self: &Arc<Self>, now: Tick, idle: Duration) -> bool {
        let plan = self.plan.get().and_then(|plan| plan.as_ref().ok());
        Arc::strong_count(self) > 1
            || self.block.is_good(now)
            || plan.is_some_and(|plan| plan.was_used_within(now, idle))
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
    /// share what they know. A key that is not used is forgotten within two intervals (1 s at least, 20 s at most).
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
        let name = name::keyed(&self.name, key.as_ref());
        let mut windows = self.quota.windows().iter();
        let has_state =
            self.choices.block.is_some() || windows.any(|window| window.has_slots(self.masters));
        let shared = match has_state {
            true => self.shared_of(&name),
            // The engine knows all that there is.
            false => Arc::default(),
        };
        Self {
            name,
            shared,
            ..self.clone()
        }
    }

    /// The state of the limiter with this name, which is one of a key.
    fn shared_of(&self, name: &Arc<str>) -> Arc<Shared> {
        let keyed = self.shared.keyed.get_or_init(|| {
            Arc::new(Keyed {
                states: Mutex::default(),
                idle: remembered(self.quota.windows()),
            })
        });
        let mut states = keyed.lock();
        if let Some(known) = states.by_name.get(name) {
            return Arc::clone(known);
        }
        let shared = Arc::<Shared>::default();
        states.by_name.insert(Arc::clone(name), Arc::clone(&shared));
        states.names.push_back(Arc::clone(name));
        if states.names.len() >= CROWD && !states.is_crowd {
            states.is_crowd = true;
            let crowd: Arc<dyn Crowd> = Arc::clone(keyed) as _;
            self.engine.join_crowd(Arc::downgrade(&crowd));
        }
        shared
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

    /// Gives this limiter a state of its own, because clones that were made before keep their settings.
    fn renewed(mut self) -> Self {
        self.shared = Arc::default();
        self
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quorum;

    const MANY: usize = 2_048;

    fn kept(limiter: &RateLimiter) -> usize {
        let keyed = limiter.shared.keyed.get();
        keyed.map_or(0, |keyed| keyed.lock().by_name.len())
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_nobody_uses_are_forgotten_within_two_intervals() {
        let quorum = Quorum::in_memory(3);
        for block in [None, Some(2)] {
            let limit = if block.is_some() { 60 } else { 5 };
            let mut all = quorum.rate_limiter("api", Quota::new(limit, Duration::from_secs(4)));
            if let Some(units) = block {
                all = all.block(units);
            }
            let used = all.keyed("used");
            for key in 0..MANY {
                let of_key = all.keyed(key.to_string());
                assert!(of_key.check().await.unwrap().is_allowed());
            }
            assert_eq!(kept(&all), MANY + 1);
            tokio::time::sleep(Duration::from_secs(2)).await;
            // The process still knows which units it has used.
            let left = all.keyed((MANY - 1).to_string()).check().await.unwrap();
            assert_eq!(left.remaining(), if block.is_some() { 1 } else { 3 });
            tokio::time::sleep(Duration::from_millis(8_250)).await;
            assert!(kept(&all) < CROWD, "{}", kept(&all));
            let keyed = all.shared.keyed.get().unwrap();
            let room = keyed.lock().by_name.capacity();
            assert!(room < 2 * MANY, "{room}");
            drop(used);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_a_key_whose_units_are_only_shares() {
        let quorum = Quorum::in_memory(3);
        let all = quorum.rate_limiter("api", Quota::per_minute(60));
        assert_eq!(all.keyed("a").check().await.unwrap().remaining(), 59);
        assert_eq!(all.keyed("a").check().await.unwrap().remaining(), 58);
        assert_eq!(kept(&all), 0);
    }
}
