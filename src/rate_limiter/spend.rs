//! From a demand to a decision.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tracing::Instrument;

use super::{
    Decision, Outage, RateLimiter,
    plan::Plan,
    small::{Held, Slots},
};
use crate::{
    Error, NodeReport, Report, Vote,
    clock::Tick,
    engine::{Event, Waits},
    logs,
    rate::words::{Limited, Outcome, Units},
};

/// How often units are asked for that come too late.
const TRIES: usize = 5;
/// A denial names no shorter wait.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// Who waits through an outage looks anew after this.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// So much of a rest is asked for at once.
const ONE_REST: Duration = Duration::from_secs(1);
/// What a denial says during an outage, where nothing better is known.
const PAUSE: Duration = Duration::from_millis(50);

impl RateLimiter {
    pub(super) async fn decide(self, n: u32) -> Result<Decision, Error> {
        match self.at_once(n) {
            Some(left) => Ok(self.allowed(left)),
            None => self.ask(n).instrument(self.span(n)).await,
        }
    }

    /// Takes what can be had without asking anybody. How many are left.
    pub(crate) fn at_once(&self, n: u32) -> Option<u32> {
        let block = &self.shared.block;
        let may = self.block.is_some()
            && n > 0
            && block.waiting.load(Relaxed) == 0
            && !self.engine.is_closed();
        match may {
            true => block.take(self.engine.now(), n),
            false => None,
        }
    }

    fn span(&self, n: u32) -> tracing::Span {
        logs::span!("spend", name = self.name.as_ref(), units = n)
    }

    async fn ask(&self, n: u32) -> Result<Decision, Error> {
        let plan = self.plan()?;
        self.check_demand(&plan, n)?;
        if self.engine.is_closed() {
            return Err(Error::Closed);
        }
        let decision = match (n, self.block) {
            (0, _) => self.peek(&plan).await,
            (_, None) => self.units(&plan, n).await,
            (_, Some(k)) => self.of_block(&plan, n, k).await,
        };
        match (decision, self.outage) {
            (Err(error), Outage::Deny) if is_outage(&error) => {
                let wait = error.retry_after().unwrap_or(PAUSE).max(PAUSE);
                Ok(self.denied(wait, 0))
            }
            (Err(error), Outage::Allow) if is_outage(&error) => Ok(self.allowed(0)),
            (decision, _) => decision.map_err(|error| error.about(&self.name)),
        }
    }

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
        if self.engine.is_closed() {
            return Err(Error::Closed);
        }
        loop {
            let given = match self.block {
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
                (given, _) => return given.map_err(|error| error.about(&self.name)),
            }
        }
    }

    /// By the engine's clock, on any runtime. In short rests: the engine keeps one to its end, also where nobody waits for
    /// it any more.
    pub(crate) fn rest_until(
        &self,
        end: Tick,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let engine = self.engine.clone();
        async move {
            loop {
                let time = end.since(engine.now()).min(ONE_REST);
                if time.is_zero() {
                    return Ok(());
                }
                engine.call(|reply| Event::Rest { time, reply }).await?;
            }
        }
    }

    /// When this time is over.
    pub(crate) fn end_of(&self, time: Duration) -> Tick {
        self.engine.now().plus(time)
    }

    // ---- unit by unit -----------------------------------------------------------------------

    async fn units(&self, plan: &Plan, n: u32) -> Result<Decision, Error> {
        for _ in 0..TRIES {
            let held = match plan.try_slots(n).await? {
                Slots::Held(held) => held,
                Slots::Taken(wait, free) => return Ok(self.denied(wait, free)),
            };
            let units = match &plan.limited {
                None => None,
                Some(limited) => match self.spend(limited, (n, n), plan.age, Waits::Never).await? {
                    Outcome::Given(units) => Some(units),
                    Outcome::Denied { wait, left } => return Ok(self.denied(wait, left)),
                },
            };
            if let Some(left) = self.use_up(plan, held, units) {
                // Nothing is waited for between the last look at the clock and the return.
                let slots = plan.slots_used(self.engine.now(), n);
                return Ok(self.allowed(slots.min(left)));
            }
        }
        Err(self.too_slow(plan))
    }

    async fn wait_for_units(&self, plan: &Plan, n: u32) -> Result<(), Error> {
        for _ in 0..TRIES {
            let held = match plan.slots(n).await {
                // Some were lost while others were gathered.
                Err(Error::Lost(_)) => continue,
                held => held?,
            };
            let units = match &plan.limited {
                None => None,
                Some(limited) => Some(self.wait_for_some(limited, (n, n), plan.age).await?),
            };
            // Slots were held while others were waited for.
            if !held.are_fresh(plan.age) && held.refresh().await.is_err() {
                continue;
            }
            if self.use_up(plan, held, units).is_some() {
                return Ok(());
            }
        }
        Err(self.too_slow(plan))
    }

    /// Uses what was given, if nothing of it is too old; else it goes back. How many units are left.
    fn use_up(&self, plan: &Plan, held: Held, units: Option<Units>) -> Option<u32> {
        let now = self.engine.now();
        if !held.are_fresh(plan.age) || units.as_ref().is_some_and(|units| now >= units.until) {
            return None;
        }
        held.use_up();
        let Some(mut units) = units else {
            return Some(u32::MAX);
        };
        units.use_all_but(0);
        Some(units.left)
    }

    // ---- in blocks --------------------------------------------------------------------------

    async fn of_block(&self, plan: &Plan, n: u32, k: u32) -> Result<Decision, Error> {
        let block = &self.shared.block;
        let Some(limited) = &plan.limited else {
            return Err(self.too_slow(plan));
        };
        if block.waiting.load(Relaxed) > 0 {
            // Behind those who wait.
            return self.units(plan, n).await;
        }
        let _asks = block.asks.lock().await;
        for _ in 0..TRIES {
            let now = self.engine.now();
            if let Some(left) = block.take(now, n) {
                return Ok(self.allowed(left));
            }
            block.give_back();
            match self
                .spend(limited, (n, k.max(n)), plan.age, Waits::Never)
                .await?
            {
                Outcome::Given(units) if self.engine.now() < units.until => {
                    let left = units.count() - n;
                    block.put(units, n);
                    return Ok(self.allowed(left));
                }
                Outcome::Given(_) => {}
                Outcome::Denied { wait, left } => return Ok(self.denied(wait, left)),
            }
        }
        Err(self.too_slow(plan))
    }

    async fn wait_for_block(&self, plan: &Plan, n: u32, k: u32) -> Result<(), Error> {
        let block = &self.shared.block;
        let Some(limited) = &plan.limited else {
            return Err(self.too_slow(plan));
        };
        block.waiting.fetch_add(1, Relaxed);
        let _waits = Waiting(&block.waiting);
        let _asks = block.asks.lock().await;
        for _ in 0..TRIES {
            if block.take(self.engine.now(), n).is_some() {
                return Ok(());
            }
            block.give_back();
            let units = self.wait_for_some(limited, (n, k.max(n)), plan.age).await?;
            if self.engine.now() < units.until {
                block.put(units, n);
                return Ok(());
            }
        }
        Err(self.too_slow(plan))
    }

    // ---- what the engine is asked -----------------------------------------------------------

    async fn spend(
        &self,
        limited: &Arc<Limited>,
        (least, most): (u32, u32),
        age: Duration,
        waits: Waits,
    ) -> Result<Outcome, Error> {
        self.engine.spend(limited, (least, most, age), waits).await
    }

    async fn wait_for_some(
        &self,
        limited: &Arc<Limited>,
        wanted: (u32, u32),
        age: Duration,
    ) -> Result<Units, Error> {
        let waits = match self.outage {
            Outage::Deny => Waits::Always,
            Outage::Error | Outage::Allow => Waits::WhileTheyAnswer,
        };
        match self.spend(limited, wanted, age, waits).await? {
            Outcome::Given(units) => Ok(units),
            // Who waits is never denied.
            Outcome::Denied { .. } => Err(Error::Closed),
        }
    }

    async fn peek(&self, plan: &Plan) -> Result<Decision, Error> {
        let slots = plan.free_slots(1).await?;
        let units = match &plan.limited {
            None => None,
            Some(limited) => {
                let limited = Arc::clone(limited);
                let peek = self.engine.call(|reply| Event::Peek { limited, reply });
                match peek.await? {
                    Outcome::Denied { wait, left } => Some((wait, left)),
                    Outcome::Given(_) => None,
                }
            }
        };
        let both = [slots, units].into_iter().flatten();
        let (wait, left) = both.fold((Duration::ZERO, u32::MAX), |(w, l), (wait, left)| {
            (w.max(wait), l.min(left))
        });
        Ok(match left {
            0 => self.denied(wait, 0),
            left => self.allowed(left),
        })
    }

    // ---- inside -----------------------------------------------------------------------------

    fn check_demand(&self, plan: &Plan, n: u32) -> Result<(), Error> {
        match n <= plan.most {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "{n} units can never be had at once: at most {} of {} on {} masters",
                plan.most, self.quota, self.masters.total
            ))),
        }
    }

    fn allowed(&self, remaining: u32) -> Decision {
        Decision {
            is_allowed: true,
            wait: Duration::ZERO,
            remaining,
            quota: Arc::clone(&self.quota),
        }
    }

    fn denied(&self, wait: Duration, remaining: u32) -> Decision {
        Decision {
            is_allowed: false,
            // Whoever sleeps for so long and asks again does not spin.
            wait: wait.max(SHORTEST_WAIT),
            remaining,
            quota: Arc::clone(&self.quota),
        }
    }

    fn too_slow(&self, plan: &Plan) -> Error {
        let nodes = self.engine.status().nodes().into_iter();
        let nodes = nodes.map(|status| NodeReport {
            vote: status.state.silence().map_or(Vote::Confirmed, Vote::None),
            node: status.node,
            holder: None,
            name: None,
        });
        let report = Report::new(&*self.name, 1, nodes.collect(), Some(plan.age.max(PAUSE)));
        Error::TooSlow(report)
    }
}

/// No master could say. (What comes too late is no outage: the next would too.)
fn is_outage(error: &Error) -> bool {
    matches!(error, Error::NoQuorum(_) | Error::Quarantined(_))
}

/// One who waits, until it is dropped.
struct Waiting<'b>(&'b std::sync::atomic::AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
