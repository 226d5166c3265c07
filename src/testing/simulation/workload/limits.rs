//! Rate limits: schedules in which many tasks ask for units, wait for some, and drop calls.

use std::time::Duration;

use super::{Call, Stage, nanos};
use crate::{
    Error, Quota, RateLimiter,
    base::quota::Masters,
    engine::Engine,
    testing::simulation::{
        dice::Dice,
        invariants::{Held, Operation, spent::Spent},
        profile::{Fault, MS, Plan, SECOND},
        world::World,
    },
};

// ---- Schedules

/// The settings of rate limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) limit: u32,
    pub(crate) period: Duration,
    /// A second limit over a longer interval.
    pub(crate) and: Option<(u32, Duration)>,
    /// Limits up to this are kept as slots, even if there are more units than servers.
    pub(crate) slots_up_to: u32,
    /// The number of units that are taken at a time.
    pub(crate) block: Option<u32>,
    /// The percentage of calls that wait.
    pub(crate) wait: u64,
    /// Another limit of the same interval.
    pub(crate) other: Option<Other>,
}

/// Another limit of the same interval, and which calls have it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Other {
    /// Any call, so each process has limiters of both.
    Beside(u32),
    /// All calls of a process from some time on.
    From(u32),
}

const LIMITS: [u32; 5] = [1, 2, 3, 7, 20];

impl Plan {
    /// Far more units are asked for than there are, without faults.
    pub(crate) fn limits(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        Self::limits_of(dice, servers)
    }

    fn limits_of(dice: &mut Dice, servers: usize) -> Self {
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        let limit = LIMITS[dice.index(LIMITS.len())];
        let period = Duration::from_millis(dice.range(100, 1_000));
        plan.clients.resize(3, plan.clients[0].clone());
        plan.tasks = 2;
        plan.names = 1;
        plan.think = 2 * nanos(period) / u64::from(limit) + MS;
        plan.terms.max_ttl = Duration::from_millis(300);
        plan.active = 4 * SECOND;
        plan.hold = 15;
        plan.slow = (dice.range(0, 30), 100 * MS);
        plan.limits = Some(Limits {
            limit,
            period,
            and: dice.percent(25).then(|| (limit * 2, period * 4)),
            slots_up_to: 0,
            block: None,
            wait: [0, 30, 60][dice.index(3)],
            other: None,
        });
        plan
    }

    /// Two limits of one interval, where all are shares of single servers.
    fn two_quotas_of(dice: &mut Dice, plan: &mut Self) -> Option<(u32, u32)> {
        let limits = plan.limits.as_mut()?;
        let (one, other) = [(7, 20), (20, 7), (5, 6), (12, 5), (20, 19)][dice.index(5)];
        limits.limit = one;
        limits.and = limits.and.map(|(_, period)| (2 * one.max(other), period));
        Some((one, other))
    }

    /// Programs have different limits for one interval.
    pub(crate) fn two_quotas(dice: &mut Dice) -> Self {
        let mut plan = Self::limits(dice);
        let two = Self::two_quotas_of(dice, &mut plan);
        if let (Some(limits), Some((_, other))) = (&mut plan.limits, two) {
            limits.other = Some(Other::Beside(other));
        }
        plan.think = 20 * MS;
        plan
    }

    /// Programs change the limit, each at a time of its own.
    pub(crate) fn quota_changed(dice: &mut Dice) -> Self {
        let mut plan = Self::limits_storm(dice);
        let two = Self::two_quotas_of(dice, &mut plan);
        if let (Some(limits), Some((_, other))) = (&mut plan.limits, two) {
            limits.other = Some(Other::From(other));
        }
        plan.think = 20 * MS;
        plan
    }

    /// Units are taken in blocks.
    pub(crate) fn limits_in_blocks(dice: &mut Dice) -> Self {
        let mut plan = Self::limits_storm(dice);
        if let Some(limits) = &mut plan.limits {
            limits.limit = [7, 20][dice.index(2)];
            limits.and = None;
            limits.block = Some(u32::try_from(dice.range(1, 7)).unwrap_or(1));
        }
        plan
    }

    /// Servers lose their counts, or have an older state of them again. Connections break, and processes stand still
    /// and die.
    pub(crate) fn limits_storm(dice: &mut Dice) -> Self {
        let calm = Self::limits(dice);
        let mut plan = Self::stormy(dice, calm.servers).and(&[
            (4, Fault::RestartEmpty),
            (3, Fault::RestartOld),
            (3, Fault::Stop),
            (3, Fault::Save),
        ]);
        (plan.clients, plan.tasks, plan.names) = (calm.clients, calm.tasks, calm.names);
        (plan.limits, plan.think, plan.hold) = (calm.limits, calm.think, calm.hold);
        plan.terms.max_ttl = Duration::from_millis(300);
        if let Some(limits) = &mut plan.limits {
            limits.period = Duration::from_millis([200, 1_000][dice.index(2)]);
            limits.and = limits.and.map(|(limit, _)| (limit, limits.period * 3));
        }
        plan.active = 8 * SECOND;
        plan.downtime = 100 * MS;
        plan.fault_every = dice.range(60, 300) * MS;
        plan
    }

    /// A limit of few units, each of which is a slot.
    pub(crate) fn limits_small(dice: &mut Dice) -> Self {
        let mut plan = Self::limits_storm(dice);
        if let Some(limits) = &mut plan.limits {
            limits.limit = [5, 7, 12][dice.index(3)];
            limits.slots_up_to = 16;
        }
        plan
    }

    /// One server is so far away that its units need a longer grace, or cannot be used at all.
    pub(crate) fn limits_far(dice: &mut Dice) -> Self {
        let mut plan = Self::limits_storm(dice);
        plan.far = dice.range(5, 120) * MS;
        if let Some(limits) = &mut plan.limits {
            limits.limit = [7, 20][dice.index(2)];
        }
        plan
    }

    /// Servers' clocks go back.
    pub(crate) fn limits_back(dice: &mut Dice) -> Self {
        // With one server every unit over the limit is seen.
        let servers = [1, 1, 3][dice.index(3)];
        let mut plan = Self::limits_of(dice, servers);
        plan = plan.only(&[(4, Fault::SlipBack), (1, Fault::Cut)]);
        if let Some(limits) = &mut plan.limits {
            // No slots here: a semaphore's state depends on the clock that goes back.
            limits.limit = match servers {
                1 => [1, 7, 20][dice.index(3)],
                _ => [5, 7, 20][dice.index(3)],
            };
            limits.period = Duration::from_millis(dice.range(100, 400));
            limits.wait = 20;
            limits.and = None;
        }
        plan.think = 10 * MS;
        plan.tasks = 4;
        // A node is counted no matter how far its clock has slipped.
        plan.terms.max_ttl = Duration::from_secs(30);
        plan.fault_every = dice.range(20, 200) * MS;
        // Some answers come too late to be used, so their units are given back late.
        plan.node_timeout = Duration::from_millis(500);
        plan.slow = (dice.range(100, 300), 300 * MS);
        plan
    }
}

// ---- Programs

const NAME: &str = "limit";

/// The units that a call has used, and the limit by which it asked for them.
pub(crate) type Spending = (u32, u32);

impl World {
    /// The limiters of a task: that of its limit, and that of the other one.
    pub(super) fn new_limiters(&self, c: usize, engine: &Engine) -> Vec<(u32, RateLimiter)> {
        let limits = self.plan.limits.as_ref();
        let all = limits.into_iter().flat_map(|limits| {
            let other = limits.other.map(|other| match other {
                Other::Beside(limit) | Other::From(limit) => limit,
            });
            [Some(limits.limit), other].into_iter().flatten()
        });
        let all = all.filter_map(|limit| Some((limit, self.new_limiter(c, engine, limit)?)));
        all.collect()
    }

    fn new_limiter(&self, c: usize, engine: &Engine, limit: u32) -> Option<RateLimiter> {
        let limits = self.plan.limits?;
        let mut quota = Quota::new(limit, limits.period);
        if let Some((limit, period)) = limits.and {
            quota = quota.and(Quota::new(limit, period));
        }
        let masters = Masters {
            total: self.plan.clients[c].servers.len(),
            are_ranked: true,
            max_ttl: self.terms_of(c).max_ttl,
            slots_up_to: limits.slots_up_to,
        };
        let limiter = RateLimiter::new(
            engine.clone(),
            NAME.into(),
            quota,
            masters,
            std::sync::Arc::default(),
        );
        Some(match limits.block {
            Some(block) => limiter.block(block),
            None => limiter,
        })
    }

    /// The limit and the limiter of the next call.
    fn choose_limiter(&mut self, c: usize, t: usize) -> Option<(Limits, u32, RateLimiter)> {
        let limits = self.plan.limits?;
        let is_other = match limits.other {
            None => false,
            Some(Other::Beside(_)) => self.dice.percent(50),
            Some(Other::From(_)) => {
                let third = self.plan.active / 3;
                self.now >= third + third * c as u64 / self.clients.len() as u64
            }
        };
        let all = &self.clients[c].tasks[t].limiters;
        let (limit, limiter) = all.get(usize::from(is_other))?.clone();
        Some((limits, limit, limiter))
    }

    pub(super) fn spend(&mut self, c: usize, t: usize) {
        let Some((limits, limit, limiter)) = self.choose_limiter(c, t) else {
            return;
        };
        let several = match self.dice.percent(25) {
            true => u32::try_from(self.dice.range(1, limit.into())).unwrap_or(1),
            false => 1,
        };
        let (what, call): (_, Call<Spending>) = if self.dice.percent(limits.wait) {
            let ready = limiter.until_n_ready(several);
            (
                "until_ready",
                Box::pin(async move { ready.await.map(|()| (several, limit)) }),
            )
        } else {
            let check = limiter.check_n(several);
            (
                "check",
                Box::pin(async move {
                    let decision = check.await?;
                    Ok((if decision.is_allowed() { several } else { 0 }, limit))
                }),
            )
        };
        let op = self.operation(c, what, NAME);
        if self.tracing() {
            self.trace(format!("c{c}: {op} for {several} of {limit}"));
        }
        let pending = self.pending(c, t, op, call, None);
        self.clients[c].tasks[t].stage = Stage::Spending(pending);
        if self.dice.percent(25) {
            let wait = self.dice.skewed(50_000, 60 * MS);
            self.set_timer(c, t, wait);
        }
    }

    /// A call was answered.
    pub(super) fn spent(&mut self, op: &Operation, answer: Result<Spending, Error>) -> Held {
        if self.tracing() {
            self.trace(format!("{op} -> {answer:?}"));
        }
        match answer {
            Ok((0, _)) => self.stats.refused += 1,
            Ok((units, limit)) => {
                self.stats.granted += 1;
                self.stats.units += u64::from(units);
                let now = self.now;
                let and = self.plan.limits.and_then(|limits| limits.and);
                let limits = [limit].into_iter().chain(and.map(|(limit, _)| limit));
                for (spent, limit) in self.limits().iter_mut().zip(limits) {
                    spent.used(now, units, limit, op)?;
                }
            }
            Err(Error::Quarantined(_)) => self.stats.quarantined += 1,
            Err(Error::TooSlow(_)) => self.stats.too_slow += 1,
            Err(_) => self.stats.errors += 1,
        }
        Ok(())
    }

    fn limits(&mut self) -> &mut [Spent] {
        if let (true, Some(limits)) = (self.checks.spent.is_empty(), self.plan.limits) {
            let Limits { period, and, .. } = limits;
            let all = [period].into_iter().chain(and.map(|(_, period)| period));
            let spent = all.map(|period| Spent::new(nanos(period)));
            self.checks.spent.extend(spent);
        }
        &mut self.checks.spent
    }
}
