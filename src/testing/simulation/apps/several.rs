//! What programs do with several names at once: they lock some of those that others lock one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    Mutex,
    testing::simulation::{
        checks::parts_of,
        invariants::{Held, Operation},
        profile::MS,
        world::World,
    },
};

/// So many at once.
const FEWEST: u64 = 2;
const MOST: u64 = 4;

impl World {
    /// Some of the names, in whatever order; or none of that.
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

    /// Where somebody waits for names of which none is held, for how long that goes on.
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

/// As the library shows them.
pub(super) fn in_order(names: &str) -> String {
    let mut names: Vec<&str> = parts_of(names).collect();
    names.sort_unstable();
    names.join(", ")
}
