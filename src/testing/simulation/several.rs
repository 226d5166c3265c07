//! Checks of requests for several names at once.

use std::collections::BTreeMap;

use super::{
    invariants::{Held, whole},
    world::World,
};
use crate::base::{name::Names, owner::Entry};

impl World {
    /// These are asked for together.
    pub(crate) fn note_set(&mut self, entry: &Entry, names: &Names) {
        if names.one().is_none() {
            self.checks.sets.insert(entry.clone(), names.clone());
        }
    }

    /// A node that votes has all names of a set for its holder, or none. (Where a clock is set back in its quarantine, what was
    /// over is there again, but for the names that others have had since.)
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
