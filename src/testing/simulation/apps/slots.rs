//! What programs do with semaphores: they ask for one slot or several, wait or do not, and change the limit.

use std::time::Duration;

use super::{Call, Demand, Stage, nanos, some};
use crate::{
    Error, Lease, Semaphore,
    engine::Engine,
    testing::simulation::{
        checks,
        invariants::{Held, Operation, admitted, entering, resizes::Resizes},
        profile::{MS, SECOND, Slots},
        server::Server,
        world::World,
    },
};

const NAME: &str = "semaphore";
/// After so long the first holder has told its limit to every node.
const SETTLED: u64 = SECOND;

impl World {
    /// The handle of a new process: made with the limit that operators asked for last.
    pub(super) fn new_semaphore(&mut self, c: usize, engine: &Engine) -> Option<Semaphore> {
        let slots = self.plan.slots?;
        let known = self.semaphore(slots);
        let limit = match slots.other {
            Some(other) if c % 2 == 1 => other,
            Some(_) => slots.limit,
            None => known.resizes.last(),
        };
        let max_ttl = self.terms_of(c).max_ttl;
        Some(Semaphore::new(engine.clone(), NAME.into(), limit, max_ttl))
    }

    fn semaphore(&mut self, slots: Slots) -> &mut checks::Semaphore {
        // Where more than three quarters of its time are left, a node does not write it anew.
        let kept = 3 * nanos(self.plan.terms.max_ttl);
        let semaphores = &mut self.checks.semaphores;
        semaphores.entry(NAME.into()).or_insert_with(|| {
            let mut resizes = Resizes::new(slots.limit, kept);
            if let Some(other) = slots.other {
                resizes.asked(other, 0);
            }
            checks::Semaphore {
                resizes,
                settled: Default::default(),
            }
        })
    }

    pub(super) fn ask_for_slots(
        &mut self,
        c: usize,
        t: usize,
        mut semaphore: Semaphore,
        ttl: Duration,
    ) {
        let Some(slots) = self.plan.slots else { return };
        if let Some(delay) = self.lock_delay(c, ttl) {
            semaphore = semaphore.lock_delay(delay);
        }
        let hold = self.hold(ttl);
        let limit = self.semaphore(slots).resizes.last();
        let several = u32::try_from(self.dice.range(1, limit.into())).unwrap_or(1);
        let wait = Duration::from_millis(self.dice.range(20, 400));
        let gathers = self.dice.percent(slots.many);
        let (what, call, bound): (_, Call<Option<Lease>>, _) = match self.dice.below(10) {
            n if n <= 4 || self.plan.patient => match gathers {
                true => ("acquire_many", some(semaphore.acquire_many(several)), None),
                false => ("acquire", some(semaphore.acquire()), None),
            },
            5..=6 => {
                let semaphore = semaphore.wait_timeout(wait);
                match gathers {
                    true => (
                        "acquire_many within",
                        some(semaphore.acquire_many(several)),
                        Some(nanos(wait)),
                    ),
                    false => (
                        "acquire within",
                        some(semaphore.acquire()),
                        Some(nanos(wait)),
                    ),
                }
            }
            _ => ("try_acquire", Box::pin(semaphore.try_acquire()), None),
        };
        self.ask(c, t, Demand::new(what, NAME, call, bound), hold, false);
        if !self.plan.patient && self.dice.percent(20) {
            let wait = self.dice.skewed(50_000, 80 * MS);
            self.set_timer(c, t, wait);
        }
    }

    /// After the faults.
    pub(super) fn probe_slots(&mut self, c: usize) -> bool {
        let Some(semaphore) = self.clients[c].tasks[0].semaphore.clone() else {
            return false;
        };
        let semaphore = semaphore.ttl(Duration::from_millis(self.plan.ttl.1));
        let call = some(semaphore.wait_timeout(Duration::from_secs(5)).acquire());
        let bound = Some(6_000 * MS);
        let what = "acquire (probe)";
        self.ask(c, 0, Demand::new(what, NAME, call, bound), 5 * MS, true);
        true
    }

    /// Whether this task changes the limit now.
    pub(super) fn resizes(&mut self, c: usize, t: usize) -> bool {
        let Some(slots) = self.plan.slots else {
            return false;
        };
        if !self.dice.percent(slots.resizes) {
            return false;
        }
        let Some(semaphore) = self.clients[c].tasks[t].semaphore.clone() else {
            return false;
        };
        let to = u32::try_from(self.dice.range(1, 4)).unwrap_or(1);
        self.resize(c, t, &semaphore, to);
        true
    }

    pub(super) fn resize(&mut self, c: usize, t: usize, semaphore: &Semaphore, to: u32) {
        let Some(slots) = self.plan.slots else { return };
        let now = self.now;
        self.semaphore(slots).resizes.asked(to, now);
        let op = self.operation(c, "resize", NAME);
        if self.tracing() {
            self.trace(format!("c{c}: {op} to {to}"));
        }
        let pending = self.pending(c, t, op, Box::pin(semaphore.resize(to)), None);
        self.clients[c].tasks[t].stage = Stage::Operating(pending);
    }

    /// The first task of this client drops what it does, and changes the limit.
    pub(crate) fn resize_now(&mut self, c: usize, to: u32) -> Held {
        self.set_clock(c);
        if let Some(semaphore) = self.clients[c].tasks[0].semaphore.clone() {
            self.resize(c, 0, &semaphore, to);
        }
        self.run_client(c)
    }

    /// Whether this client does not begin yet.
    pub(super) fn is_too_early(&self, c: usize) -> bool {
        let other = self.plan.slots.and_then(|slots| slots.other);
        other.is_some() && c % 2 == 1 && self.now < SETTLED + SECOND / 2
    }

    pub(super) fn resized(&mut self, op: &Operation, answer: &Result<(), Error>) {
        let now = self.now;
        if let (Ok(()), Some(known)) = (answer, self.checks.semaphores.get_mut(&op.name)) {
            self.stats.resized += 1;
            known.resizes.done(op.asked_at, now);
        }
    }

    /// A lease of slots was granted: each fits beside the others that are good, and the limit is that of the others.
    pub(super) fn enters(&mut self, c: usize, op: &Operation, id: u64) -> Held {
        let (Some(slots), Some(known)) =
            (self.plan.slots, self.checks.semaphores.get_mut(&op.name))
        else {
            return Ok(());
        };
        known.resizes.used(self.now);
        let (_, limit) = known.resizes.in_force(op.asked_at);
        let (since, greatest) = (
            known.resizes.last_done(op.asked_at),
            known.resizes.greatest(),
        );
        let limit = match self.is_remembered(since) {
            true => limit,
            false => greatest,
        };
        self.set_holders_clocks();
        let all = self.checks.leases.iter();
        let slot_of = |lease: &checks::Lease| lease.slot().map(|(_, slot)| slot);
        let good = all.filter(|lease| lease.id == id || lease.watch.is_valid());
        let good: Vec<(u64, u32, &Operation)> = good
            .filter_map(|lease| Some((lease.id, slot_of(lease)?, &lease.op)))
            .collect();
        self.stats.most_slots = self.stats.most_slots.max(good.len());
        let ours: Vec<_> = good.iter().filter(|(one, ..)| *one == id).collect();
        self.stats.gathered += u64::from(ours.len() > 1);
        for (_, slot, lease) in ours {
            let others = good.iter().filter(|(_, other, _)| other != slot);
            let others: Vec<_> = others.map(|(_, other, op)| (*other, *op)).collect();
            entering::check(lease, *slot, &others, limit)?;
        }
        let made = match slots.other {
            Some(other) if c % 2 == 1 => other,
            Some(_) => slots.limit,
            None => return Ok(()),
        };
        self.semaphore(slots).settled.granted(op, made, SETTLED)
    }

    /// Whether a majority knows what all were told then. (In quarantine a memory is told nothing.)
    fn is_remembered(&self, then: u64) -> bool {
        let quarantine = self.plan.quarantine() + SECOND;
        let lost = |s: &&Server| s.forgot_at > 0 && s.forgot_at + quarantine > then;
        let lost = self.servers.iter().filter(lost).count();
        2 * lost < self.servers.len()
    }

    /// No semaphore has more holders than slots now, each by its own clock.
    pub(crate) fn no_more_than_the_limit(&mut self) -> Held {
        let Some(known) = self.checks.semaphores.get(NAME) else {
            return Ok(());
        };
        let limit = known.resizes.greatest();
        if self.checks.leases.len() <= limit as usize {
            return Ok(());
        }
        self.set_holders_clocks();
        let held = self.checks.leases.iter();
        let good = held.filter(|lease| lease.slot().is_some() && lease.watch.is_valid());
        let good: Vec<&Operation> = good.map(|lease| &lease.op).collect();
        admitted::check(self.now, limit, &good)
    }

    fn set_holders_clocks(&self) {
        for lease in &self.checks.leases {
            self.set_clock(lease.op.client);
        }
    }

    /// Where somebody waits for a slot that nobody holds, for how long that goes on. (What is being gathered is
    /// nobody's yet: then only that nobody holds any.)
    pub(super) fn look_for_idle_slots(&mut self, quiet: u64, bound: u64) -> Held {
        let (Some(slots), Some(known)) = (self.plan.slots, self.checks.semaphores.get(NAME)) else {
            return Ok(());
        };
        let (least, _) = known.resizes.in_force(self.now);
        let busy = if slots.many > 0 { 1 } else { least as usize };
        let held = self.checks.leases.iter();
        let held = held.filter(|lease| lease.slot().is_some()).count();
        let waits = self
            .waiting_for("acquire", NAME)
            .or_else(|| self.waiting_for("acquire_many", NAME));
        let stall = self.checks.stalls.entry(NAME.into()).or_default();
        stall.look(self.now, waits.filter(|_| held < busy), quiet, bound)?;
        self.stats.longest_stall = self.stats.longest_stall.max(stall.longest / MS);
        Ok(())
    }
}
