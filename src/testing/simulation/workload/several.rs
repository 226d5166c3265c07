//! Several names at once: schedules in which some tasks lock names together that others lock one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    Mutex,
    base::{name::Names, owner::Entry},
    testing::simulation::{
        checks::parts_of,
        dice::Dice,
        invariants::{Held, Operation, whole},
        profile::{Fault, MS, NETWORK, Plan},
        world::World,
    },
};

// ---- Schedules

impl Plan {
    /// Sets that overlap, in any order, without faults.
    pub(crate) fn several_calm(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        plan.together(dice);
        plan.terms.max_ttl = Duration::from_secs(4);
        plan.ttl = (400, 2_500);
        // About 10 ms.
        plan.hold = 15;
        plan.lock_delay = Duration::from_millis(500);
        plan.slow = (0, 0);
        plan.abandons = false;
        plan.stall = Some(400 * MS);
        plan
    }

    fn together(&mut self, dice: &mut Dice) {
        self.names = [2, 3, 5][dice.index(3)];
        self.several = [30, 60, 100][dice.index(3)];
        self.clients.resize(4, self.clients[0].clone());
        self.tasks = usize::try_from(dice.range(1, 2)).unwrap_or(1);
        self.think = 10 * MS;
    }

    pub(crate) fn several_pushes(dice: &mut Dice) -> Self {
        let mut plan = Self::several_calm(dice).only(&[(4, Fault::Deafen), (1, Fault::SetWall)]);
        plan.pushes = (dice.range(0, 40), dice.range(0, 30), dice.range(0, 20));
        plan.deaf = [0, 0, 20][dice.index(3)];
        plan.fault_every = dice.range(20, 200) * MS;
        // As in the queues of single names.
        plan.stall = Some(8_000 * MS);
        plan
    }

    pub(crate) fn several_storm(dice: &mut Dice) -> Self {
        let servers = [3, 3, 5][dice.index(3)];
        let mut plan = Self::stormy(dice, servers).and(&[(4, Fault::Crash), (8, Fault::Stop)]);
        plan.together(dice);
        plan.hold = [300, 1_500][dice.index(2)];
        plan.pushes = (5, 5, 5);
        plan.fault_every = dice.range(30, 150) * MS;
        plan
    }

    /// Each client reaches other servers than the others.
    pub(crate) fn several_partial(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (12, Fault::Partition),
            (2, Fault::Cut),
            (1, Fault::SetWall),
        ]);
        plan.together(dice);
        plan.terms.max_ttl = Duration::from_secs(2);
        plan.ttl = (500, 1_500);
        plan.hold = [60, 800][dice.index(2)];
        plan.delay = dice.range(3, 15) * MS;
        plan.pushes = (dice.range(0, 5), dice.range(0, 30), dice.range(0, 10));
        plan.fault_every = dice.range(20, 80) * MS;
        plan
    }

    /// Nothing expires, so a client that leaves must tell the servers.
    pub(crate) fn several_lasting(dice: &mut Dice) -> Self {
        let mut plan = Self::lasting(dice);
        plan.faults = NETWORK.to_vec();
        plan.together(dice);
        plan
    }

    /// Many answers take about as long as a client waits for them.
    pub(crate) fn several_sluggish(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (6, Fault::Cut),
            (2, Fault::Pause),
            (3, Fault::SetWall),
            (1, Fault::Stop),
        ]);
        plan.together(dice);
        plan.node_timeout = Duration::from_millis([20, 100][dice.index(2)]);
        plan.delay = dice.range(8, 20) * MS;
        plan.slow = (dice.range(40, 300), 100 * MS);
        plan.hold = 300;
        plan.fault_every = dice.range(40, 100) * MS;
        plan
    }

    /// Operators free single names of a set that is held together.
    pub(crate) fn several_evicted(dice: &mut Dice) -> Self {
        let mut plan = Self::base(dice, 3).only(&[
            (10, Fault::Partition),
            (2, Fault::Cut),
            (1, Fault::SetWall),
        ]);
        plan.together(dice);
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

/// The least and the greatest number of names at once.
const FEWEST: u64 = 2;
const MOST: u64 = 4;

impl World {
    /// A mutex of some of the names, in any order. `None`: this call takes one name.
    pub(super) fn several(&mut self, c: usize) -> Option<Mutex> {
        let often = self.plan.several;
        if often == 0 || !self.dice.percent(often) {
            return None;
        }
        let mut names: Vec<usize> = (0..self.plan.names).collect();
        let most = MOST.min(names.len() as u64);
        let many = self.dice.range(FEWEST, most);
        let mut some = Vec::new();
        for _ in 0..many {
            some.push(names.swap_remove(self.dice.index(names.len())));
        }
        Some(self.together(c, &some))
    }

    /// All names at once.
    pub(super) fn all_together(&self, c: usize) -> Mutex {
        let all: Vec<usize> = (0..self.plan.names).collect();
        self.together(c, &all)
    }

    fn together(&self, c: usize, names: &[usize]) -> Mutex {
        let names = names.iter().map(|n| Arc::from(format!("lock-{n}")));
        let engine = self.clients[c].engine.clone();
        Mutex::of_several(engine, names.collect(), self.terms_of(c).max_ttl)
    }

    /// Measures for how long nobody holds any of the names that a caller waits for together.
    pub(super) fn look_for_idle_sets(&mut self, quiet: u64, bound: u64) -> Held {
        if self.plan.several == 0 {
            return Ok(());
        }
        let is_set = |op: &&Operation| op.what == "lock" && parts_of(&op.name).nth(1).is_some();
        let waiting = self.waiting().filter(is_set);
        let waiting: BTreeMap<String, Operation> =
            waiting.map(|op| (op.name.clone(), op.clone())).collect();
        let known = self.checks.stalls.keys();
        let known = known.filter(|name| parts_of(name).nth(1).is_some());
        let sets: BTreeSet<String> = known.chain(waiting.keys()).cloned().collect();
        for set in sets {
            let mut held = self.checks.leases.iter();
            let is_held = held.any(|lease| parts_of(&set).any(|name| name == lease.op.name));
            let waits = waiting.get(&set).filter(|_| !is_held).cloned();
            let stall = self.checks.stalls.entry(set).or_default();
            stall.look(self.now, waits, quiet, bound)?;
            self.stats.longest_stall = self.stats.longest_stall.max(stall.longest / MS);
        }
        Ok(())
    }
}

/// Sorts the names as the library shows them.
pub(super) fn in_order(names: &str) -> String {
    let mut names: Vec<&str> = parts_of(names).collect();
    names.sort_unstable();
    names.join(", ")
}

// ---- Checks of nodes' answers

impl World {
    /// Notes names that are asked for together.
    pub(crate) fn note_set(&mut self, entry: &Entry, names: &Names) {
        if names.one().is_none() {
            self.checks.sets.insert(entry.clone(), names.clone());
        }
    }

    /// Checks that a node that votes has all names of a set for its holder, or none of them. (Nodes in quarantine are
    /// not checked. If their clocks are set back, expired names are there again, except those that others have had
    /// since.)
    pub(crate) fn look_at_sets(&self, s: usize, time: u64) -> Held {
        if self.plan.several == 0 || self.plan.operators || !self.servers[s].votes() {
            return Ok(());
        }
        let mut held: BTreeMap<&Entry, usize> = BTreeMap::new();
        for (_, entry, _) in self.servers[s].store.locks(time) {
            *held.entry(entry).or_default() += 1;
        }
        for (entry, held) in held {
            if let Some(names) = self.checks.sets.get(entry) {
                whole::check(s, entry.as_str(), held, names.all().len())?;
            }
        }
        Ok(())
    }
}
