//! Schedules in which many read or write one read-write lock.

use std::time::Duration;

use super::{Fault, MS, NETWORK, Plan, SECOND};
use crate::testing::simulation::dice::Dice;

/// How read-write locks are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rwlocks {
    /// How many of a hundred calls read: of the first client, and of the others.
    pub(crate) reads: (u64, u64),
    /// As often in a hundred a writer that looks at its lease becomes a reader.
    pub(crate) downgrades: u64,
    /// Of those who wait to read, or to write, one gets in within this, whoever comes and goes meanwhile, ns.
    pub(crate) kept_out: u64,
    /// The number of writers that may get the lock while a caller that asked earlier still waits. `None`: any number.
    pub(crate) overtaken: Option<u64>,
}

impl Plan {
    /// Readers and writers in all mixtures, and nothing is wrong.
    pub(super) fn rwlocks(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        plan.read_and_write(dice);
        plan.clients.resize(3, plan.clients[0].clone());
        plan.tasks = usize::try_from(dice.range(1, 3)).unwrap_or(2);
        plan.terms.max_ttl = Duration::from_secs(4);
        plan.ttl = (400, 2_500);
        // Some 10 ms, or 40.
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

    /// So many readers that one is always there, and few who write; or the reverse.
    pub(super) fn rwlock_crowd(dice: &mut Dice) -> Self {
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

    /// Many who write, and some who read; all wait to the end.
    pub(super) fn rwlock_writers(dice: &mut Dice) -> Self {
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

    pub(super) fn rwlock_pushes(dice: &mut Dice) -> Self {
        let mut plan = Self::rwlocks(dice).only(&[(4, Fault::Deafen), (1, Fault::SetWall)]);
        plan.pushes = (dice.range(0, 40), dice.range(0, 30), dice.range(0, 20));
        plan.deaf = [0, 0, 20][dice.index(3)];
        plan.fault_every = dice.range(20, 200) * MS;
        plan
    }

    pub(super) fn rwlock_storm(dice: &mut Dice) -> Self {
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

    /// Each reaches other servers than the others.
    pub(super) fn rwlock_partial(dice: &mut Dice) -> Self {
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
    pub(super) fn rwlock_gone(dice: &mut Dice) -> Self {
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
        // What died was held for its ttl and its lock-delay, and counts as held no more.
        plan.stall = Some(2_500 * MS);
        plan.of_the_two(|rwlocks| rwlocks.kept_out = 3 * SECOND);
        plan
    }

    /// Nothing expires: who leaves has to tell.
    pub(super) fn rwlock_lasting(dice: &mut Dice) -> Self {
        let mut plan = Self::lasting(dice);
        plan.faults = NETWORK.to_vec();
        plan.read_and_write(dice);
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = 2;
        plan
    }

    /// Many answers take about as long as is waited for them.
    pub(super) fn rwlock_sluggish(dice: &mut Dice) -> Self {
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

    /// Operators free the lock under those who read and write.
    pub(super) fn rwlock_evicted(dice: &mut Dice) -> Self {
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
