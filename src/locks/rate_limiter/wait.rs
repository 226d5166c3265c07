//! Waiting until there are enough units.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use futures::future::{Either, select};
use tracing::Instrument;

use super::{
    Outage, RateLimiter,
    plan::{Plan, Small},
    small::Held,
    small::PAUSE,
    spend::{ONE_REST, TRIES, is_outage},
};
use crate::{
    Error,
    base::name::as_given,
    engine::Waits,
    protocol::rates::words::{Amount, Grace, Limited, Outcome, Units},
};

/// The longest pause between two attempts in an outage.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The shortest pause between two attempts at several intervals.
const SHORTEST_REST: Duration = Duration::from_millis(5);

impl RateLimiter {
    pub(super) async fn wait_for(self, n: u32) -> Result<(), Error> {
        match self.at_once(n) {
            Some(_) => Ok(()),
            None => self.wait(n).instrument(self.span(n)).await,
        }
    }

    async fn wait(&self, n: u32) -> Result<(), Error> {
        let plan = self.plan()?;
        self.check_demand(&plan, n)?;
        if n == 0 {
            return Ok(());
        }
        self.engine.check_open()?;
        loop {
            let given = match self.choices.block {
                None => self.wait_for_units(&plan, n).await,
                Some(k) => self.wait_for_block(&plan, n, k).await,
            };
            match (given, self.outage) {
                (Err(error), Outage::Deny) if is_outage(&error) => {
                    let time = error
                        .retry_after()
                        .unwrap_or(PAUSE)
                        .clamp(PAUSE, LONGEST_REST);
                    self.rest_until(self.end_of(time)).await?;
                }
                (Err(error), Outage::Allow) if is_outage(&error) => return Ok(()),
                (given, _) => {
                    return given.map_err(|error| error.of_limiter(&as_given(&self.name)));
                }
            }
        }
    }

    async fn wait_for_units(&self, plan: &Plan, n: u32) -> Result<(), Error> {
        match (plan.small.as_slice(), &plan.limited) {
            ([], Some(limited)) => {
                for _ in 0..TRIES {
                    let units = self
                        .wait_for_some(limited, Amount::exactly(n), plan.grace)
                        .await?;
                    if self.use_up(Held::none(), Some(units)) {
                        return Ok(());
                    }
                }
                Err(self.too_slow())
            }
            ([small], None) => self.wait_for_slots(plan, small, n).await,
            _ => self.wait_for_all(plan, n).await,
        }
    }

    /// Waits for units of several intervals that are kept as slots, or of slots and shares. It holds nothing while it
    /// waits for others.
    async fn wait_for_all(&self, plan: &Plan, n: u32) -> Result<(), Error> {
        let mut place = None;
        let mut tries = self.tries(plan);
        while tries > 0 {
            if place.is_none() && !self.may_try(plan) {
                place = Some(self.place().await);
            }
            let age = self.age_of_slots(plan);
            match self.take(plan, n, age, self.can_be_served(plan)).await? {
                Ok((held, units)) => match self.use_up(held, units) {
                    true => {
                        plan.slots_used(self.engine.now(), n, age);
                        return Ok(());
                    }
                    false => tries -= 1,
                },
                Err(_) if place.is_none() => place = Some(self.place().await),
                Err(denial) => {
                    let rest = denial.wait.clamp(SHORTEST_REST, ONE_REST);
                    self.rest_until(self.end_of(rest)).await?;
                }
            }
        }
        Err(self.too_slow())
    }

    /// Waits for slots of one interval. A waiter that finds too few slots joins the queue of this limiter. The first in
    /// it joins the queue of the pool.
    async fn wait_for_slots(&self, plan: &Plan, small: &Small, n: u32) -> Result<(), Error> {
        let mut place = None;
        for _ in 0..self.tries(plan) {
            let age = self.age_of_slots(plan);
            let held = match self.slots(plan, small, n, age, &mut place).await {
                // Some were lost while others were gathered.
                Err(Error::Lost(_)) => continue,
                held => held?,
            };
            // The first slots are older, because they waited for the last ones.
            if !held.are_fresh() && held.refresh().await.is_err() {
                continue;
            }
            if self.use_up(held, None) {
                plan.slots_used(self.engine.now(), n, age);
                return Ok(());
            }
        }
        Err(self.too_slow())
    }

    async fn slots<'a>(
        &'a self,
        plan: &Plan,
        small: &Small,
        n: u32,
        age: Duration,
        place: &mut Option<Place<'a>>,
    ) -> Result<Held, Error> {
        if place.is_none() {
            if self.may_try(plan)
                && let Ok((held, _)) = self.take(plan, n, age, self.can_be_served(plan)).await?
            {
                return Ok(held);
            }
            *place = Some(self.place().await);
        }
        let mut slots = pin!(plan.wait(&self.engine, small, n, age));
        // The majority must be down at two looks in a row. For a waiter that has just come to the front, one look is
        // enough.
        let mut was_down = true;
        loop {
            let is_down = !self.can_be_served(plan);
            if is_down
                && was_down
                && let Ok((held, _)) = self.take(plan, n, age, false).await?
            {
                return Ok(held);
            }
            was_down = is_down;
            let rest = pin!(self.rest_until(self.end_of(ONE_REST)));
            match select(slots.as_mut(), rest).await {
                Either::Left((held, _)) => return held,
                Either::Right((rest, _)) => rest?,
            }
        }
    }

    /// Returns true if a caller without a place in the queue may try. That is so if nobody waits, or if nobody can be
    /// served; the nodes then say why.
    fn may_try(&self, plan: &Plan) -> bool {
        self.shared.block.waiting.load(Relaxed) == 0 || !self.can_be_served(plan)
    }

    /// Waits to be the first in the queue.
    async fn place(&self) -> Place<'_> {
        let line = &self.shared.block;
        line.waiting.fetch_add(1, Relaxed);
        let waits = Waiting(&line.waiting);
        Place(waits, line.asks.lock().await)
    }

    async fn wait_for_block(&self, plan: &Plan, n: u32, k: u32) -> Result<(), Error> {
        let block = &self.shared.block;
        let Some(limited) = &plan.limited else {
            return Err(self.too_slow());
        };
        block.waiting.fetch_add(1, Relaxed);
        let _waits = Waiting(&block.waiting);
        let _asks = block.asks.lock().await;
        for _ in 0..TRIES {
            if block.take(self.engine.now(), n).is_some() {
                return Ok(());
            }
            block.give_back();
            let units = self
                .wait_for_some(
                    limited,
                    Amount {
                        least: n,
                        most: k.max(n),
                    },
                    plan.grace,
                )
                .await?;
            if self.engine.now() < units.until {
                block.put(units, n);
                return Ok(());
            }
        }
        Err(self.too_slow())
    }

    async fn wait_for_some(
        &self,
        limited: &std::sync::Arc<Limited>,
        amount: Amount,
        grace: Grace,
    ) -> Result<Units, Error> {
        let waits = match self.outage {
            Outage::Deny => Waits::Always,
            Outage::Error | Outage::Allow => Waits::WhileTheyAnswer,
        };
        match self.spend(limited, amount, grace, waits).await? {
            Outcome::Given(units) => Ok(units),
            // The engine never denies a waiter.
            Outcome::Denied(_) => Err(Error::Closed),
        }
    }
}

/// The first place in the queue of a limiter, until it is dropped.
struct Place<'b>(
    #[allow(dead_code)] Waiting<'b>,
    #[allow(dead_code)] tokio::sync::MutexGuard<'b, ()>,
);

/// Counts a waiter, until it is dropped.
struct Waiting<'b>(&'b AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
