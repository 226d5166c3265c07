//! Read-write locks: schedules in which many tasks read or write one lock, wait or do not wait, and downgrade.

use std::time::Duration;

use super::{Call, Demand, Stage, Thing, nanos, some};
use crate::{
    FencingToken, Lease, RwLock,
    base::owner::Entry,
    engine::Engine,
    node::{
        answer::Answer,
        request::{Side, Target},
    },
    testing::simulation::{
        dice::Dice,
        invariants::{Held, Operation, Violation, exclusion::Share, overtaken, sides},
        profile::{Fault, MS, NETWORK, Plan, SECOND},
        world::World,
    },
};

// ---- Schedules

/// The settings of read-write locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rwlocks {
    /// The percentage of calls that read: of the first client, and of the others.
    pub(crate) reads: (u64, u64),
    /// The percentage of looks at a lease at which its writer becomes a reader.
    pub(crate) downgrades: u64,
    /// A waiting reader gets in within this many ns, and so does a waiting writer, however busy the lock is.
    pub(crate) kept_out: u64,
    /// The number of writers that may get the lock while a caller that asked earlier still waits. `None`: any number.
    pub(crate) overtaken: Option<u64>,
}

impl Plan {
    /// Readers and writers in all mixtures, without faults.
    pub(crate) fn rwlocks(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        plan.read_and_write(dice);
        plan.clients.resize(3, plan.clients[0].clone());
        plan.tasks = usize::try_from(dice.range(1, 3)).unwrap_or(2);
        plan.terms.max_ttl = Duration::from_secs(4);
        plan.ttl = (400, 2_500);
        // About 10 ms, or 40 ms.
        plan.hold = [15, 60][dice.index(2)];
        plan.lock_delay = Duration::from_millis(500);
        plan.slow = (0, 0);
        plan.abandons = false;
        plan.stall = Some(400 * MS);
        plan
    }

    fn read_and_write(&mut self, dice: &mut Dice) {
        self.names = 1;
        self.think = 5 * MS;
        let reads = [20, 50, 80, 95][dice.index(4)];
        self.rwlocks = Some(Rwlocks {
            reads: (reads, reads),
            downgrades: [0, 60][dice.index(2)],
            kept_out: SECOND,
            overtaken: None,
        });
    }

    fn of_the_two(&mut self, change: impl FnOnce(&mut Rwlocks)) {
        if let Some(rwlocks) = &mut self.rwlocks {
            change(rwlocks);
        }
    }

    /// Readers hold the lock all the time and few callers write, or the reverse.
    pub(crate) fn rwlock_crowd(dice: &mut Dice) -> Self {
        let mut plan = Self::rwlocks(dice);
        let reads = [(0, 100), (100, 0)][dice.index(2)];
        plan.of_the_two(|rwlocks| (rwlocks.reads, rwlocks.downgrades) = (reads, 0));
        plan.tasks = 4;
        plan.patient = true;
        plan.hold = 40;
        plan.think = MS;
        plan.active = 2_500 * MS;
        plan
    }

    /// Many writers and some readers. All of them wait to the end.
    pub(crate) fn rwlock_writers(dice: &mut Dice) -> Self {
        let mut plan = Self::rwlocks(dice);
        let reads = [10, 30][dice.index(2)];
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = 4;
        plan.patient = true;
        plan.hold = 15;
        plan.think = MS;
        plan.active = 2_500 * MS;
        let tasks = plan.clients.len() * plan.tasks;
        plan.of_the_two(|rwlocks| {
            (rwlocks.reads, rwlocks.downgrades) = ((reads, reads), 0);
            rwlocks.overtaken = u64::try_from(tasks).ok();
        });
        plan
    }

    pub(crate) fn rwlock_pushes(dice: &mut Dice) -> Self {
        let mut plan = Self::rwlocks(dice).only(&[(4, Fault::Deafen), (1, Fault::SetWall)]);
        plan.pushes = (dice.range(0, 40), dice.range(0, 30), dice.range(0, 20));
        plan.deaf = [0, 0, 20][dice.index(3)];
        plan.fault_every = dice.range(20, 200) * MS;
        plan
    }

    pub(crate) fn rwlock_storm(dice: &mut Dice) -> Self {
        let servers = [3, 3, 5][dice.index(3)];
        let mut plan = Self::stormy(dice, servers).and(&[(4, Fault::Crash), (8, Fault::Stop)]);
        plan.read_and_write(dice);
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = 2;
        plan.hold = [300, 1_500][dice.index(2)];
        plan.pushes = (5, 5, 5);
        plan.fault_every = dice.range(30, 150) * MS;
        plan
    }

    /// Each client reaches other servers than the others.
    pub(crate) fn rwlock_partial(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (12, Fault::Partition),
            (2, Fault::Cut),
            (1, Fault::SetWall),
        ]);
        plan.read_and_write(dice);
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = 2;
        plan.terms.max_ttl = Duration::from_secs(2);
        plan.ttl = (500, 1_500);
        plan.hold = [60, 800][dice.index(2)];
        plan.delay = dice.range(3, 15) * MS;
        plan.pushes = (dice.range(0, 5), dice.range(0, 30), dice.range(0, 10));
        plan.fault_every = dice.range(20, 80) * MS;
        plan
    }

    /// Processes die while they read, write and wait, and servers do not notice.
    pub(crate) fn rwlock_gone(dice: &mut Dice) -> Self {
        let mut plan = Self::rwlocks(dice).only(&[(3, Fault::Crash), (1, Fault::SetWall)]);
        plan.ttl = (400, 1_500);
        plan.tasks = 2;
        plan.patient = true;
        plan.gone = 60;
        plan.fault_every = 800 * MS;
        plan.rounds = Some((390 * MS, 3 * SECOND));
        plan.active = 5 * SECOND;
        plan.hold = 100;
        plan.think = 100 * MS;
        // A process that died holds the lock for its ttl and its lock-delay, and the checks do not count it as a holder
        // any more.
        plan.stall = Some(2_500 * MS);
        plan.of_the_two(|rwlocks| rwlocks.kept_out = 3 * SECOND);
        plan
    }

    /// Nothing expires, so a client that leaves must tell the servers.
    pub(crate) fn rwlock_lasting(dice: &mut Dice) -> Self {
        let mut plan = Self::lasting(dice);
        plan.faults = NETWORK.to_vec();
        plan.read_and_write(dice);
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = 2;
        plan
    }

    /// Many answers take about as long as a client waits for them.
    pub(crate) fn rwlock_sluggish(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (6, Fault::Cut),
            (2, Fault::Pause),
            (3, Fault::SetWall),
            (1, Fault::Stop),
        ]);
        plan.read_and_write(dice);
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = 2;
        plan.node_timeout = Duration::from_millis([20, 100][dice.index(2)]);
        plan.delay = dice.range(8, 20) * MS;
        plan.slow = (dice.range(40, 300), 100 * MS);
        plan.hold = 300;
        plan.fault_every = dice.range(40, 100) * MS;
        plan
    }

    /// Operators free the lock under its readers and writers.
    pub(crate) fn rwlock_evicted(dice: &mut Dice) -> Self {
        let mut plan = Self::base(dice, 3).only(&[
            (10, Fault::Partition),
            (2, Fault::Cut),
            (1, Fault::SetWall),
        ]);
        plan.read_and_write(dice);
        plan.operators = true;
        plan.exclusion = false;
        plan.renews = 100;
        plan.hold = 5_000;
        plan.think = 40 * MS;
        plan.delay = 15 * MS;
        plan.slow = (100, 80 * MS);
        plan.node_timeout = Duration::from_millis(120);
        plan
    }
}

// ---- Programs

const NAME: &str = "rwlock";

impl World {
    pub(super) fn new_rwlock(&self, c: usize, engine: &Engine) -> Option<RwLock> {
        self.plan.rwlocks?;
        let max_ttl = self.terms_of(c).max_ttl;
        Some(RwLock::new(engine.clone(), NAME.into(), max_ttl))
    }

    pub(super) fn ask_to_read_or_write(
        &mut self,
        c: usize,
        t: usize,
        mut lock: RwLock,
        ttl: Duration,
    ) {
        let Some(rwlocks) = self.plan.rwlocks else {
            return;
        };
        if let Some(delay) = self.lock_delay(c, ttl) {
            lock = lock.lock_delay(delay);
        }
        let hold = self.hold(ttl);
        let (first, others) = rwlocks.reads;
        let reads = self.dice.percent(if c == 0 { first } else { others });
        let wait = Duration::from_millis(self.dice.range(20, 400));
        let (what, call, bound): (_, Call<Option<Lease>>, _) = match self.dice.below(10) {
            n if n <= 4 || self.plan.patient => match reads {
                true => ("read", some(lock.read()), None),
                false => ("write", some(lock.write()), None),
            },
            5..=6 => {
                let lock = lock.wait_timeout(wait);
                match reads {
                    true => ("read within", some(lock.read()), Some(nanos(wait))),
                    false => ("write within", some(lock.write()), Some(nanos(wait))),
                }
            }
            _ => {
                let bound = Some(self.one_attempt());
                match reads {
                    true => ("try_read", Box::pin(lock.try_read()), bound),
                    false => ("try_write", Box::pin(lock.try_write()), bound),
                }
            }
        };
        self.ask(c, t, Demand::new(what, NAME, call, bound), hold, false);
    }

    /// Tests the lock after the faults.
    pub(super) fn probe_rwlock(&mut self, c: usize) -> bool {
        let Some(lock) = self.clients[c].tasks[0].rwlock.clone() else {
            return false;
        };
        let lock = lock.ttl(Duration::from_millis(self.plan.ttl.1));
        let lock = lock.wait_timeout(Duration::from_secs(5));
        let (what, call) = match c % 2 {
            0 => ("write (probe)", some(lock.write())),
            _ => ("read (probe)", some(lock.read())),
        };
        let bound = Some(6_000 * MS);
        self.ask(c, 0, Demand::new(what, NAME, call, bound), 5 * MS, true);
        true
    }

    /// How the lease was granted. One caller of its side has got in.
    pub(super) fn share_of(&mut self, op: &Operation) -> Share {
        let share = match op.what {
            "read" | "read within" | "try_read" | "read (probe)" => Share::Reader,
            _ => Share::Alone,
        };
        if self.plan.rwlocks.is_some() {
            self.checks.progress(side(share));
        }
        share
    }

    /// A writer was granted the lock. Counts how often other waiters were overtaken.
    pub(super) fn overtakes(&mut self, op: &Operation, share: Share) -> Held {
        let most = self.plan.rwlocks.and_then(|rwlocks| rwlocks.overtaken);
        let (Some(most), Share::Alone) = (most, share) else {
            return Ok(());
        };
        for task in self.clients.iter_mut().flat_map(|client| &mut client.tasks) {
            if let Stage::Asking { pending, .. } = &mut task.stage
                && pending.op.asked_at < op.asked_at
            {
                pending.overtaken += 1;
                overtaken::check(&pending.op, op, pending.overtaken, most)?;
                self.stats.most_overtaken = self.stats.most_overtaken.max(pending.overtaken);
            }
        }
        Ok(())
    }

    /// Notes one more reader.
    pub(super) fn reads(
        &mut self,
        op: &Operation,
        token: FencingToken,
        strict: bool,
    ) -> Result<Thing, Violation> {
        if strict {
            self.checks.granted_to_read(op)?;
        }
        self.stats.shared += 1;
        let readers = self.checks.leases.iter();
        let readers = readers.filter(|lease| lease.share == Share::Reader).count();
        self.stats.most_readers = self.stats.most_readers.max(readers);
        Ok(Thing {
            name: op.name.clone(),
            token,
            read: None,
        })
    }

    /// Lets a writer become a reader sometimes. It has written before that.
    pub(super) fn step_down_or_wait(
        &mut self,
        c: usize,
        t: usize,
        lease: &Lease,
        id: u64,
        things: &mut [Thing],
    ) -> Held {
        let often = self.plan.rwlocks.map_or(0, |rwlocks| rwlocks.downgrades);
        let writes = things.iter().any(|thing| thing.read.is_some());
        if often == 0 || !writes || !self.dice.percent(often) {
            return Ok(());
        }
        self.update(c, things)?;
        self.checks.share(id);
        self.stats.downgraded += 1;
        let op = self.operation(c, "downgrade", NAME);
        if self.tracing() {
            self.trace(format!("c{c}: {op}"));
        }
        let bound = Some(self.one_request());
        let pending = self.pending(c, t, op, Box::pin(lease.downgrade()), bound);
        self.clients[c].tasks[t].extending.push(pending);
        Ok(())
    }

    /// Measures how long a caller waits for a lock that is free. Also measures how long no waiting reader gets in, and
    /// no waiting writer.
    pub(super) fn look_for_idle_rwlocks(&mut self, quiet: u64, bound: u64) -> Held {
        let Some(rwlocks) = self.plan.rwlocks else {
            return Ok(());
        };
        let [reads, writes] = ["read", "write"].map(|what| self.waiting_for(what, NAME));
        let is_held = self.checks.leases.iter().any(|lease| lease.op.name == NAME);
        let waits = reads.clone().or(writes.clone()).filter(|_| !is_held);
        let stall = self.checks.stalls.entry(NAME.into()).or_default();
        stall.look(self.now, waits, quiet, bound)?;
        self.stats.longest_stall = self.stats.longest_stall.max(stall.longest / MS);
        for (share, waits) in [(Share::Reader, reads), (Share::Alone, writes)] {
            let stall = self.checks.stalls.entry(side(share).into()).or_default();
            stall.look(self.now, waits, quiet, rwlocks.kept_out)?;
            let longest = stall.longest / MS;
            self.stats.longest_kept_out = self.stats.longest_kept_out.max(longest);
        }
        Ok(())
    }
}

/// The name of the readers, or of the writers, for checks.
fn side(share: Share) -> &'static str {
    match share {
        Share::Reader => "rwlock (readers)",
        Share::Alone => "rwlock (writers)",
    }
}

// ---- Checks of nodes' answers

impl World {
    /// Checks that the counter of a read-write lock never goes back on a node.
    pub(crate) fn note_rwlock(
        &mut self,
        s: usize,
        target: &Target,
        reply: &Answer,
        time: u64,
    ) -> Held {
        let (counter, is_new) = match reply {
            Answer::Granted(counter) => (*counter, target.side() == Some(Side::Writer)),
            Answer::Held { counter, .. } => (*counter, false),
            Answer::Raised(counter) => {
                self.stats.raises += 1;
                (*counter, false)
            }
            Answer::Repaired(true) => {
                self.stats.repaired += 1;
                return Ok(());
            }
            _ => return Ok(()),
        };
        let name = target.name().as_str();
        let counters = &mut self.servers[s].counters;
        counters.seen(s, name, counter, time, is_new)
    }

    /// Checks that a node that votes has readers or a writer, not both. (Nodes in quarantine are not checked. If their
    /// clocks are set back, expired leases are there again.)
    pub(crate) fn look_at_sides(&self, s: usize, time: u64) -> Held {
        if self.plan.rwlocks.is_none() || !self.servers[s].votes() {
            return Ok(());
        }
        let all: Vec<(&Entry, Side)> = (self.servers[s].store.rwlocks().holders(time))
            .map(|(_, entry, side)| (entry, side))
            .collect();
        let of = |side| move |(_, it): &&(&Entry, Side)| *it == side;
        let writer = all.iter().find(of(Side::Writer));
        let readers: Vec<&str> = (all.iter().filter(of(Side::Reader)))
            .map(|(entry, _)| entry.as_str())
            .collect();
        sides::check(s, writer.map(|(entry, _)| entry.as_str()), &readers)
    }
}
