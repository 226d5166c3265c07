//! Decides about a demand for units.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures::future::join;
use tracing::Instrument;

use super::{
    Decision, Outage, RateLimiter,
    plan::Plan,
    small::{Held, PAUSE, Slots},
};
use crate::{
    Error, NodeReport, NodeState, NodeStatus, Report, Vote,
    base::{clock::Tick, logs, name::as_given},
    engine::{Event, Waits},
    protocol::rates::words::{Amount, Denial, Grace, Limited, Outcome, Room, Units},
};

/// How often units that come too late are asked for again, before the answer is `TooSlow`.
pub(super) const TRIES: usize = 5;
/// The shortest wait that a denial states.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// The longest rest that the engine is asked for at once.
pub(super) const ONE_REST: Duration = Duration::from_secs(1);

impl RateLimiter {
    pub(super) async fn decide(self, n: u32) -> Result<Decision, Error> {
        match self.at_once(n) {
            Some(decision) => Ok(decision),
            None => self.ask(n).instrument(self.span(n)).await,
        }
    }

    /// Takes units that can be had without asking anybody.
    pub(crate) fn at_once(&self, n: u32) -> Option<Decision> {
        let block = &self.shared.block;
        let may = self.choices.block.is_some()
            && n > 0
            && block.waiting.load(Relaxed) == 0
            && !self.engine.is_closed();
        match may {
            true => {
                let left = block.take(self.engine.now(), n)?;
                Some(self.allowed(block.room(left)))
            }
            false => None,
        }
    }

    pub(super) fn span(&self, n: u32) -> tracing::Span {
        logs::span!("spend", name = self.name.as_ref(), units = n)
    }

    async fn ask(&self, n: u32) -> Result<Decision, Error> {
        let plan = self.plan()?;
        self.check_demand(&plan, n)?;
        self.engine.check_open()?;
        let decision = match (n, self.choices.block) {
            (0, _) => self.peek(&plan).await,
            (_, None) => self.units(&plan, n).await,
            (_, Some(k)) => self.of_block(&plan, n, k).await,
        };
        match (decision, self.outage) {
            (Err(error), Outage::Deny) if is_outage(&error) => {
                let wait = error.retry_after().unwrap_or(PAUSE).max(PAUSE);
                let room = self.room_in_outage();
                Ok(self.denied(Denial { wait, room }))
            }
            (Err(error), Outage::Allow) if is_outage(&error) => Ok(Decision {
                is_guess: true,
                ..self.allowed(self.room_in_outage())
            }),
            (decision, _) => decision.map_err(|error| error.of_limiter(&as_given(&self.name))),
        }
    }

    /// Sleeps by the engine's clock, on any runtime. It sleeps in short rests, because the engine keeps each rest to
    /// its end even if nobody waits for it any more.
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
                engine.call(|reply| Event::Sleep { time, reply }).await?;
            }
        }
    }

    /// The time at which this duration is over.
    pub(crate) fn end_of(&self, time: Duration) -> Tick {
        self.engine.now().plus(time)
    }

    // ---- unit by unit -----------------------------------------------------------------------

    async fn units(&self, plan: &Plan, n: u32) -> Result<Decision, Error> {
        if self.shared.block.waiting.load(Relaxed) > 0
            && let Some(free) = plan.free_slots(&self.engine, n, true).await?
        {
            // Waiters of this limiter come first.
            return Ok(self.denied(Denial {
                wait: free.wait.max(PAUSE),
                room: free.room.below(n),
            }));
        }
        for _ in 0..self.tries(plan) {
            let age = self.age_of_slots(plan);
            let (held, units) = match self.take(plan, n, age, true).await? {
                Ok(taken) => taken,
                Err(denial) => return Ok(self.denied(denial)),
            };
            let of_shares = units.as_ref().map(|units| units.room);
            if self.use_up(held, units) {
                // Nothing may be awaited between the last look at the clock and the return.
                let of_slots = plan.slots_used(self.engine.now(), n, age);
                let both = [of_slots, of_shares].into_iter().flatten();
                return Ok(self.allowed(both.reduce(Room::less).unwrap_or_default()));
            }
        }
        Err(self.too_slow())
    }

    /// Takes slots and units of every interval at once, because the first must still be fresh when the last comes. If
    /// one interval denies, the units of the others go back. The denial is the wait until there are enough, and what
    /// there is now. With `believes` a known denial is returned without asking.
    pub(super) async fn take(
        &self,
        plan: &Plan,
        n: u32,
        age: Duration,
        believes: bool,
    ) -> Result<Result<(Held, Option<Units>), Denial>, Error> {
        let known = plan.known_denial(self.engine.now(), n);
        if let Some(denial) = known.filter(|_| believes) {
            return Ok(Err(denial));
        }
        let grace = match plan.small.is_empty() {
            true => plan.grace,
            false => Grace {
                least: age,
                ..plan.grace
            },
        };
        let units = async {
            match &plan.limited {
                None => Ok(None),
                Some(limited) => {
                    let units = self.spend(limited, Amount::exactly(n), grace, Waits::Never);
                    units.await.map(Some)
                }
            }
        };
        let (slots, units) = join(plan.try_slots(&self.engine, n, age), units).await;
        let slots = slots?;
        let of_shares = match &units {
            Ok(Some(Outcome::Denied(denial))) => Some(*denial),
            _ => None,
        };
        if let Some(denial) = of_shares {
            plan.remember_denial(self.engine.now(), n, denial);
        }
        Ok(match (slots, units) {
            // The slots deny the demand, whether the shares gave units or not.
            (Slots::Denied(denial), _) => {
                Err(of_shares.map_or(denial, |other| denial.longer(other)))
            }
            (Slots::Held(held), units) => match units? {
                None => Ok((held, None)),
                Some(Outcome::Given(units)) => Ok((held, Some(units))),
                Some(Outcome::Denied(denial)) => Err(denial),
            },
        })
    }

    /// Uses the slots and units if all are still fresh. Otherwise they go back, and this returns false.
    pub(super) fn use_up(&self, held: Held, units: Option<Units>) -> bool {
        let now = self.engine.now();
        if !held.are_fresh() || units.as_ref().is_some_and(|units| now >= units.until) {
            return false;
        }
        held.use_up();
        if let Some(mut units) = units {
            units.use_all_but(0);
        }
        true
    }

    // ---- in blocks --------------------------------------------------------------------------

    async fn of_block(&self, plan: &Plan, n: u32, k: u32) -> Result<Decision, Error> {
        let block = &self.shared.block;
        let Some(limited) = &plan.limited else {
            return Err(self.too_slow());
        };
        if block.waiting.load(Relaxed) > 0 {
            // Waiters of this limiter come first.
            return self.units(plan, n).await;
        }
        let _asks = block.asks.lock().await;
        for _ in 0..TRIES {
            let now = self.engine.now();
            if let Some(left) = block.take(now, n) {
                return Ok(self.allowed(block.room(left)));
            }
            block.give_back();
            match self
                .spend(
                    limited,
                    Amount {
                        least: n,
                        most: k.max(n),
                    },
                    plan.grace,
                    Waits::Never,
                )
                .await?
            {
                Outcome::Given(units) if self.engine.now() < units.until => {
                    let left = units.count() - n;
                    let room = Room { left, ..units.room };
                    block.put(units, n);
                    return Ok(self.allowed(room));
                }
                Outcome::Given(_) => {}
                Outcome::Denied(denial) => return Ok(self.denied(denial)),
            }
        }
        Err(self.too_slow())
    }

    // ---- what the engine is asked -----------------------------------------------------------

    pub(super) async fn spend(
        &self,
        limited: &Arc<Limited>,
        amount: Amount,
        grace: Grace,
        waits: Waits,
    ) -> Result<Outcome, Error> {
        self.engine.spend(limited, amount, grace, waits).await
    }

    async fn peek(&self, plan: &Plan) -> Result<Decision, Error> {
        let slots = plan.free_slots(&self.engine, 1, false).await?;
        let units = match &plan.limited {
            None => None,
            Some(limited) => {
                let (limited, grace) = (Arc::clone(limited), plan.grace);
                let peek = self.engine.call(|reply| Event::Peek {
                    limited,
                    grace,
                    reply,
                });
                match peek.await? {
                    Outcome::Denied(denial) => Some(denial),
                    Outcome::Given(_) => None,
                }
            }
        };
        let both = [slots, units].into_iter().flatten();
        let found = both.reduce(Denial::longer).unwrap_or_default();
        Ok(match found.room.left {
            0 => self.denied(found),
            _ => self.allowed(found.room),
        })
    }

    // ---- inside -----------------------------------------------------------------------------

    pub(super) fn check_demand(&self, plan: &Plan, n: u32) -> Result<(), Error> {
        match n <= plan.most {
            true => Ok(()),
            false => {
                let total = self.masters.total;
                let why = match plan.most < self.quota.most() {
                    true => format!(
                        ": a fleet with a name divides a limit equally, so choose a multiple of {total}"
                    ),
                    false => String::new(),
                };
                Err(Error::Invalid(format!(
                    "{n} units exceed the most that one call can take ({} of {} on {total} masters){why}",
                    plan.most, self.quota
                )))
            }
        }
    }

    fn most(&self) -> u32 {
        let plan = self.shared.plan.get();
        let plan = plan.and_then(|plan| plan.as_ref().ok());
        plan.map_or_else(|| self.quota.most(), |plan| plan.most)
    }

    /// Nothing is known in an outage, so it is as if the smallest limit were used up now.
    fn room_in_outage(&self) -> Room {
        let windows = self.quota.windows().iter();
        let smallest = windows.min_by_key(|window| window.limit);
        let full = smallest.map_or(Duration::ZERO, |window| {
            window.counts_for() + Duration::from_millis(window.ahead())
        });
        Room {
            left: 0,
            limit: self.most(),
            free_at: self.engine.now().plus(full),
        }
    }

    fn allowed(&self, room: Room) -> Decision {
        Decision {
            is_allowed: true,
            wait: Duration::ZERO,
            remaining: room.left,
            limit: self.most(),
            binds: room.limit,
            reset: room.free_at.since(self.engine.now()),
            quota: Arc::clone(&self.quota),
            masters: self.masters,
            is_guess: false,
        }
    }

    fn denied(&self, Denial { wait, room }: Denial) -> Decision {
        // A caller that sleeps for this wait and asks again must not spin.
        let wait = wait.max(SHORTEST_WAIT);
        Decision {
            is_allowed: false,
            wait,
            remaining: room.left,
            limit: self.most(),
            binds: room.limit,
            reset: wait,
            quota: Arc::clone(&self.quota),
            masters: self.masters,
            is_guess: false,
        }
    }

    /// How old slots may be when they are used. They come once a majority has answered.
    pub(super) fn age_of_slots(&self, plan: &Plan) -> Duration {
        match plan.small.is_empty() {
            true => plan.grace.least,
            false => plan.grace.age(self.majority(plan)),
        }
    }

    /// The number of attempts. One is enough if the majority is too far away for the longest grace.
    pub(super) fn tries(&self, plan: &Plan) -> usize {
        match !plan.small.is_empty() && self.majority(plan) >= plan.grace.most {
            true => 1,
            false => TRIES,
        }
    }

    /// Returns true if a majority votes and has been watched for long enough to give units of every interval that is
    /// kept as slots.
    pub(super) fn can_be_served(&self, plan: &Plan) -> bool {
        let nodes = self.engine.status().nodes();
        let able = nodes.iter().filter(|node| gives_slots(node, plan));
        able.count() > self.masters.total / 2
    }

    /// The mean round trip to the majority: to the Q-th nearest node that can give slots.
    fn majority(&self, plan: &Plan) -> Duration {
        let nodes = self.engine.status().nodes();
        let able = nodes.iter().filter(|node| gives_slots(node, plan));
        let mut trips: Vec<Duration> = able.filter_map(|node| node.round_trip).collect();
        trips.sort_unstable();
        let majority = trips.get(self.masters.total / 2).or(trips.last());
        majority.copied().unwrap_or_default()
    }

    pub(super) fn too_slow(&self) -> Error {
        let nodes = self.engine.status().nodes().into_iter();
        let nodes = nodes.map(|status| NodeReport {
            vote: status.state.silence().map_or(Vote::Confirmed, Vote::None),
            node: status.node,
            holder: None,
            name: None,
        });
        let report = Report::new(&*self.name, 1, nodes.collect(), Some(PAUSE));
        Error::TooSlow(report)
    }
}

/// Returns true if no master could say. (Units that come too late are not an outage: the next ones would be too late as
/// well.)
pub(super) fn is_outage(error: &Error) -> bool {
    matches!(error, Error::NoQuorum(_) | Error::Quarantined(_))
}

/// Returns true if this node gives units of every interval that is kept as slots.
fn gives_slots(node: &NodeStatus, plan: &Plan) -> bool {
    node.state == NodeState::Voting && node.limits_up_to >= plan.longest_of_slots()
}
