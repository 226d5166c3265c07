//! The part of limiters that this process knows and the engine does not. The slots of a small limit are known to all limiters of
//! one name with the same settings, a block to a limiter, its clones and those of its keys.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use super::{
    block::Block,
    decision::Outage,
    plan::{Choices, Plan},
};
use crate::{
    Error, Quota,
    base::{
        clock::Tick,
        quota::remembered,
        sweep::{CROWD, is_too_wide, part},
    },
    engine::Engine,
    protocol::rates::words::Crowd,
};

/// As many settings are kept before those that nobody uses are looked for.
const MANY: usize = 64;

/// The small limits of a quorum.
#[derive(Default)]
pub(crate) struct Limiters(Mutex<BySettings>);

#[derive(Default)]
struct BySettings {
    all: HashMap<Settings, Arc<Family>>,
    /// How many were in use when those that nobody uses were last looked for.
    used: usize,
}

/// The settings that limiters must have in common to share anything.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Settings {
    pub(super) quota: Arc<Quota>,
    pub(super) choices: Choices,
    pub(super) outage: Outage,
}

/// The limiters with the same settings.
pub(super) struct Family {
    states: Mutex<States>,
    /// For how long a state is kept that nobody uses.
    idle: Duration,
}

#[derive(Default)]
struct States {
    by_name: HashMap<Arc<str>, Arc<Shared>>,
    /// Each of these names, the one that was looked at last at the end.
    names: VecDeque<Arc<str>>,
    is_crowd: bool,
}

/// The state that the limiters of one name share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) plan: OnceLock<Result<Arc<Plan>, Error>>,
    pub(super) block: Block,
}

impl Limiters {
    /// The limiters with these settings.
    pub(super) fn family(&self, now: Tick, settings: Settings) -> Arc<Family> {
        // They are dropped when the lock is free again.
        let mut dropped = Vec::new();
        let mut limiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let BySettings { all, used } = &mut *limiters;
        if let Some(known) = all.get(&settings) {
            return Arc::clone(known);
        }
        if all.len() >= MANY.max(2 * *used) {
            let unused = all.extract_if(|_, family| !family.is_in_use(now));
            dropped.extend(unused.map(|(_, family)| family));
            *used = all.len();
        }
        let family = Arc::new(Family::new(&settings.quota));
        all.insert(settings, Arc::clone(&family));
        family
    }
}

impl Family {
    pub(super) fn new(quota: &Quota) -> Self {
        Self {
            states: Mutex::default(),
            idle: remembered(quota.windows()),
        }
    }

    /// The state of the limiters of this name.
    pub(super) fn shared(self: &Arc<Self>, engine: &Engine, name: &Arc<str>) -> Arc<Shared> {
        let mut states = self.lock();
        if let Some(known) = states.by_name.get(name) {
            return Arc::clone(known);
        }
        let shared = Arc::<Shared>::default();
        states.by_name.insert(Arc::clone(name), Arc::clone(&shared));
        states.names.push_back(Arc::clone(name));
        if states.names.len() >= CROWD && !states.is_crowd {
            states.is_crowd = true;
            let crowd: Arc<dyn Crowd> = Arc::clone(self) as _;
            engine.join_crowd(Arc::downgrade(&crowd));
        }
        shared
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a limiter has these settings, or if one of the states is worth keeping.
    fn is_in_use(self: &Arc<Self>, now: Tick) -> bool {
        Arc::strong_count(self) > 1 || {
            let states = self.lock();
            let mut states = states.by_name.values();
            states.any(|state| state.is_in_use(now, self.idle))
        }
    }
}

impl Crowd for Family {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quorum;

    const CUSTOMERS: usize = 2_048;

    impl Family {
        fn kept(&self) -> usize {
            self.lock().by_name.len()
        }
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
            for key in 0..CUSTOMERS {
                let of_key = all.keyed(key.to_string());
                assert!(of_key.check().await.unwrap().is_allowed());
            }
            // The limiter for all is one more.
            let family = Arc::clone(all.family.as_ref().unwrap());
            assert_eq!(family.kept(), CUSTOMERS + 2);
            tokio::time::sleep(Duration::from_secs(2)).await;
            // The process still knows which units it has used.
            let last = (CUSTOMERS - 1).to_string();
            let left = all.keyed(last).check().await.unwrap();
            assert_eq!(left.remaining(), if block.is_some() { 1 } else { 3 });
            tokio::time::sleep(Duration::from_millis(8_250)).await;
            assert!(family.kept() < CROWD, "{}", family.kept());
            let room = family.lock().by_name.capacity();
            assert!(room < 2 * CUSTOMERS, "{room}");
            drop(used);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_a_key_whose_units_are_only_shares() {
        let quorum = Quorum::in_memory(3);
        let all = quorum.rate_limiter("api", Quota::per_minute(60));
        assert_eq!(all.keyed("a").check().await.unwrap().remaining(), 59);
        assert_eq!(all.keyed("a").check().await.unwrap().remaining(), 58);
        assert!(all.family.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_limiter_that_is_made_for_each_request_knows_what_others_have_used() {
        let quorum = Quorum::in_memory(3);
        let quota = || Quota::per_minute(5);
        let mut left = Vec::new();
        for request in 0..6 {
            let limiter = match request % 2 {
                0 => quorum.rate_limiter("login:ann", quota()),
                _ => quorum.clone().rate_limiter("login", quota()).keyed("ann"),
            };
            left.push(limiter.check().await.unwrap().remaining());
        }
        // The two ways lead to different names.
        assert_eq!(left, [4, 4, 3, 3, 2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn settings_that_nobody_uses_are_forgotten() {
        let quorum = Quorum::in_memory(3);
        let quota = |ms| Quota::new(5, Duration::from_millis(ms));
        let used = quorum.rate_limiter("api", quota(999));
        for ms in 1_000..1_000 + 10 * MANY as u64 {
            let one = quorum.rate_limiter("api", quota(ms));
            assert!(one.check().await.unwrap().is_allowed());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let kept = quorum.limiters.0.lock().unwrap().all.len();
        assert!(kept <= 2 * MANY, "{kept}");
        let family = used.family.as_ref().unwrap();
        let again = quorum.rate_limiter("api", quota(999));
        assert!(Arc::ptr_eq(family, again.family.as_ref().unwrap()));
    }
}
