//! What programs do with rate limits: they ask for units or wait for some, and drop what they asked.

use super::{Call, Stage, nanos};
use crate::{
    Error, Quota, RateLimiter,
    base::quota::Masters,
    engine::Engine,
    testing::simulation::{
        invariants::{Held, Operation, spent::Spent},
        profile::{Limits, MS},
        world::World,
    },
};

const NAME: &str = "limit";

impl World {
    pub(super) fn new_limiter(&self, c: usize, engine: &Engine) -> Option<RateLimiter> {
        let limits = self.plan.limits?;
        let mut quota = Quota::new(limits.limit, limits.period);
        if let Some((limit, period)) = limits.and {
            quota = quota.and(Quota::new(limit, period));
        }
        let masters = Masters {
            total: self.plan.clients[c].servers.len(),
            are_ranked: true,
            max_ttl: self.terms_of(c).max_ttl,
            slots_up_to: limits.slots_up_to,
        };
        let limiter = RateLimiter::new(engine.clone(), NAME.into(), quota, masters);
        Some(match limits.block {
            Some(block) => limiter.block(block),
            None => limiter,
        })
    }

    pub(super) fn spend(&mut self, c: usize, t: usize, limiter: &RateLimiter) {
        let Some(limits) = self.plan.limits else {
            return;
        };
        let several = match self.dice.percent(25) {
            true => u32::try_from(self.dice.range(1, limits.limit.into())).unwrap_or(1),
            false => 1,
        };
        let (what, call): (_, Call<u32>) = if self.dice.percent(limits.wait) {
            let ready = limiter.until_n_ready(several);
            (
                "until_ready",
                Box::pin(async move { ready.await.map(|()| several) }),
            )
        } else {
            let check = limiter.check_n(several);
            (
                "check",
                Box::pin(async move {
                    let decision = check.await?;
                    Ok(if decision.is_allowed() { several } else { 0 })
                }),
            )
        };
        let op = self.operation(c, what, NAME);
        if self.tracing() {
            self.trace(format!("c{c}: {op} for {several}"));
        }
        let pending = self.pending(c, t, op, call, None);
        self.clients[c].tasks[t].stage = Stage::Spending(pending);
        if self.dice.percent(25) {
            let wait = self.dice.skewed(50_000, 60 * MS);
            self.set_timer(c, t, wait);
        }
    }

    /// A call was answered.
    pub(super) fn spent(&mut self, op: &Operation, answer: Result<u32, Error>) -> Held {
        if self.tracing() {
            self.trace(format!("{op} -> {answer:?}"));
        }
        match answer {
            Ok(0) => self.stats.refused += 1,
            Ok(units) => {
                self.stats.granted += 1;
                self.stats.units += u64::from(units);
                let now = self.now;
                for spent in self.limits() {
                    spent.used(now, units, op)?;
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
            let Limits {
                limit, period, and, ..
            } = limits;
            let all = [(limit, period)].into_iter().chain(and);
            let spent = all.map(|(limit, period)| Spent::new(limit, nanos(period)));
            self.checks.spent.extend(spent);
        }
        &mut self.checks.spent
    }
}
