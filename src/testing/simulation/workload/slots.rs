//! Semaphores: schedules in which many tasks ask for one slot or several, wait or do not wait, and change the limit.

use std::time::Duration;

use super::{Call, Demand, Stage, nanos, some};
use crate::{
    Error, Lease, Semaphore,
    base::limit::Limit,
    engine::Engine,
    node::{
        answer::{self, Answer},
        request::{Family, Pool, Request, Seat, Verb},
    },
    testing::simulation::{
        checks,
        dice::Dice,
        invariants::{Held, Operation, admitted, entering, resizes::Resizes},
        profile::{Fault, MS, NETWORK, Plan, SECOND},
        server::Server,
        world::World,
    },
};

// ---- Schedules

/// The settings of semaphores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// The limit with which programs are made.
    pub(crate) limit: u32,
    /// The percentage of calls that ask for several slots at once.
    pub(crate) many: u64,
    /// The percentage of calls that change the limit.
    pub(crate) resizes: u64,
    /// Programs of odd clients are made with this limit. They start after the others have told the nodes another limit.
    pub(crate) other: Option<u32>,
}

impl Slots {
    /// Slots are asked for one by one.
    pub(crate) fn of(limit: u32) -> Self {
        Self {
            limit,
            many: 0,
            resizes: 0,
            other: None,
        }
    }
}

const LIMITS: [u32; 4] = [1, 2, 3, 10];

impl Plan {
    /// Far more callers than slots, without faults.
    pub(crate) fn slots(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        let limit = LIMITS[dice.index(LIMITS.len())];
        plan.crowd(limit, dice);
        plan.terms.max_ttl = Duration::from_secs(4);
        plan.ttl = (400, 2_500);
        // A few ms.
        plan.hold = 15;
        plan.lock_delay = Duration::from_millis(500);
        plan.slow = (0, 0);
        plan.abandons = false;
        plan.stall = Some(400 * MS);
        plan
    }

    /// Four clients, with twice as many tasks as slots.
    fn crowd(&mut self, limit: u32, dice: &mut Dice) {
        self.clients.resize(4, self.clients[0].clone());
        let tasks = u64::from(limit).div_ceil(2);
        self.tasks = usize::try_from(dice.range(tasks.max(1), tasks + 2)).unwrap_or(2);
        self.names = 1;
        self.think = 5 * MS;
        self.slots = Some(Slots::of(limit));
    }

    fn how(&mut self, change: impl FnOnce(&mut Slots)) {
        if let Some(slots) = &mut self.slots {
            change(slots);
        }
    }

    /// Some calls ask for several slots at once.
    pub(crate) fn slots_many(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice);
        plan.how(|slots| slots.many = 40);
        plan
    }

    pub(crate) fn slots_pushes(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice).only(&[(4, Fault::Deafen), (1, Fault::SetWall)]);
        plan.pushes = (dice.range(0, 40), dice.range(0, 30), dice.range(0, 20));
        plan.deaf = [0, 0, 20][dice.index(3)];
        plan.fault_every = dice.range(20, 200) * MS;
        // A first term, the request of a waiter that was not called, and a margin.
        plan.stall = Some(8 * SECOND);
        plan
    }

    pub(crate) fn slots_storm(dice: &mut Dice) -> Self {
        let servers = [3, 3, 5][dice.index(3)];
        let mut plan = Self::stormy(dice, servers).and(&[(4, Fault::Crash), (8, Fault::Stop)]);
        let limit = LIMITS[dice.index(3)];
        plan.crowd(limit, dice);
        let many = [0, 30][dice.index(2)];
        plan.how(|slots| slots.many = many);
        plan.hold = 300;
        plan.pushes = (5, 5, 5);
        plan.fault_every = dice.range(30, 150) * MS;
        plan
    }

    /// Each client reaches other servers than the others.
    pub(crate) fn slots_partial(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (12, Fault::Partition),
            (2, Fault::Cut),
            (1, Fault::SetWall),
        ]);
        let limit = LIMITS[dice.index(3)];
        plan.crowd(limit, dice);
        plan.terms.max_ttl = Duration::from_secs(2);
        plan.ttl = (500, 1_500);
        plan.hold = 60;
        plan.delay = dice.range(3, 15) * MS;
        plan.pushes = (dice.range(0, 5), dice.range(0, 30), dice.range(0, 10));
        plan.fault_every = dice.range(20, 80) * MS;
        plan
    }

    /// Processes die while they hold and while they wait, and servers do not notice.
    pub(crate) fn slots_gone(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice).only(&[(3, Fault::Crash), (1, Fault::SetWall)]);
        plan.ttl = (400, 1_500);
        plan.patient = true;
        plan.gone = 60;
        plan.fault_every = 800 * MS;
        plan.rounds = Some((390 * MS, 4 * SECOND));
        plan.active = 9 * SECOND;
        plan.hold = 100;
        plan.think = 50 * MS;
        plan.stall = Some(8 * SECOND);
        plan
    }

    /// Nothing expires, so a client that leaves must tell the servers.
    pub(crate) fn slots_lasting(dice: &mut Dice) -> Self {
        let mut plan = Self::lasting(dice);
        plan.faults = NETWORK.to_vec();
        let limit = LIMITS[dice.index(3)];
        plan.crowd(limit, dice);
        let many = [0, 30][dice.index(2)];
        plan.how(|slots| slots.many = many);
        plan
    }

    /// Operators change the limit while there are no other faults.
    pub(crate) fn resized_slots(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice);
        let many = [0, 30][dice.index(2)];
        plan.how(|slots| (slots.resizes, slots.many) = (4, many));
        // A semaphore that nobody uses is not forgotten before the end.
        plan.terms.max_ttl = Duration::from_secs(60);
        plan
    }

    /// Operators change the limit while servers lose their memory one by one.
    pub(crate) fn resized_storm(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice).only(&[
            (2, Fault::RestartEmpty),
            (2, Fault::Errors),
            (3, Fault::Cut),
            (2, Fault::Freeze),
            (2, Fault::Partition),
            (1, Fault::Flush),
        ]);
        let limit = LIMITS[1 + dice.index(2)];
        plan.crowd(limit, dice);
        let many = [0, 30][dice.index(2)];
        plan.how(|slots| (slots.resizes, slots.many) = (4, many));
        plan.terms.max_ttl = Duration::from_millis(dice.range(600, 1_000));
        plan.ttl = (200, 600);
        plan.hold = 300;
        plan.stall = None;
        plan.ripe = plan.servers / 2 + 1;
        plan.active = 4 * SECOND;
        plan.fault_every = dice.range(50, 200) * MS;
        plan
    }

    /// Many answers take about as long as a client waits for them.
    pub(crate) fn slots_sluggish(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        let limit = LIMITS[dice.index(2)];
        plan.crowd(limit, dice);
        plan.tasks = 3;
        plan.terms.max_ttl = Duration::from_secs(2);
        plan.ttl = (500, 1_500);
        plan.hold = 300;
        plan.node_timeout = Duration::from_millis(200);
        plan.delay = dice.range(8, 20) * MS;
        plan.slow = (dice.range(100, 400), 100 * MS);
        plan
    }

    /// Programs are made with different limits.
    pub(crate) fn two_limits(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice);
        let other = LIMITS[dice.index(LIMITS.len())];
        plan.how(|slots| slots.other = Some(other));
        // As above, it is not forgotten before the end.
        plan.terms.max_ttl = Duration::from_secs(60);
        plan
    }
}

// ---- Programs

const NAME: &str = "semaphore";
/// After this time the first holder has told its limit to every node.
const SETTLED: u64 = SECOND;

impl World {
    /// The handle of a new process. It is made with the limit that operators asked for last.
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
        // A node does not renew the expiry while more than three quarters of it are left.
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

    /// Tests the semaphore after the faults.
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

    /// Returns true if this task changes the limit now.
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

    /// Returns true if this client does not start yet.
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

    /// A lease of slots was granted. Checks that each slot fits beside the other good leases, and that the limit is the
    /// others' limit.
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

    /// Returns true if a majority remembers what all nodes were told at this time. (A memory in quarantine is told
    /// nothing.)
    fn is_remembered(&self, then: u64) -> bool {
        let quarantine = self.plan.quarantine() + SECOND;
        let lost = |s: &&Server| s.forgot_at > 0 && s.forgot_at + quarantine > then;
        let lost = self.servers.iter().filter(lost).count();
        2 * lost < self.servers.len()
    }

    /// Checks that no semaphore has more holders than slots now, each by its own clock.
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

    /// Measures for how long a slot has no holder while a caller waits for one. (Slots that are being gathered have no
    /// holder yet. So where slots are gathered, this measures only while nobody holds any slot.)
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

// ---- Checks of nodes' answers

impl World {
    /// Checks that the counters and limits of slots never go back on a node.
    pub(crate) fn note_slots(
        &mut self,
        s: usize,
        pool: &Pool,
        request: Option<&Request>,
        reply: &Answer,
        time: u64,
    ) -> Held {
        let name = format!("{} {:?}", pool.name, pool.family);
        let server = &mut self.servers[s];
        let slot = request.and_then(|request| request.target.slot());
        let seat = request.and_then(|request| match &request.verb {
            Verb::Acquire { wait, .. } => wait.seat(),
            _ => None,
        });
        let (limit, counter) = match (reply, seat) {
            (Answer::Slots(answer::Slots { mine, version, .. }), Some(Seat { limit, .. })) => {
                let version = *version;
                (Some(Limit { version, ..*limit }), *mine)
            }
            (Answer::Raised(counter), _) => {
                self.stats.raises += 1;
                (None, slot.map(|slot| (slot, *counter)))
            }
            (Answer::Conflict(limit) | Answer::Limit(limit), _) => (Some(*limit), None),
            (Answer::Yielded, _) => {
                self.stats.yields += 1;
                (None, None)
            }
            (Answer::Repaired(true), _) => {
                self.stats.repaired += 1;
                (None, None)
            }
            _ => (None, None),
        };
        if let Some(limit) = limit {
            let max_ttl = self.plan.terms.max_ttl;
            // The key's expiry is renewed only if less than three quarters of it are left.
            let kept = u64::try_from(max_ttl.as_micros()).unwrap_or(u64::MAX) * 3;
            server.limits.said(s, &name, limit, time, kept)?;
        }
        // Other counters are deleted with their slots, and these expire by age.
        if let (Family::Permits, Some((slot, counter))) = (pool.family, counter) {
            let name = format!("{name}/{slot}");
            server.counters.seen(s, &name, counter, time, false)?;
        }
        Ok(())
    }
}
