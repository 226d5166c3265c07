//! What goes between clients and servers about several names at once: what is looked at, and what a trace says of it.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    invariants::{Held, whole},
    network::short,
    world::World,
};
use crate::{
    base::{
        name::{Name, show},
        owner::Entry,
    },
    node::{answer::Answer, several},
};

impl World {
    /// What a node said about several names: all of them have one counter now, and it never goes back.
    pub(crate) fn note_several(
        &mut self,
        s: usize,
        command: &several::Command,
        reply: &Answer,
        time: u64,
    ) -> Held {
        match (command, reply) {
            (several::Command::Acquire { names, entry, .. }, Answer::Granted(counter)) => {
                for name in names.iter() {
                    let counters = &mut self.servers[s].counters;
                    counters.seen(s, name.as_str(), *counter, time, true)?;
                }
                self.checks.stood(s, entry.as_str(), *counter);
            }
            (several::Command::Raise { entry, .. }, Answer::Raised(counter)) => {
                self.stats.raises += 1;
                self.checks.stood(s, entry.as_str(), *counter);
            }
            (_, Answer::Repaired(true)) => self.stats.repaired += 1,
            _ => {}
        }
        Ok(())
    }

    /// These are asked for together.
    pub(crate) fn note_set(&mut self, command: &several::Command) {
        if let several::Command::Acquire { names, entry, .. } = command {
            self.checks.asked(entry.as_str(), self.now);
            self.checks.sets.insert(entry.clone(), Arc::clone(names));
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
                whole::check(s, entry.as_str(), held, names.len())?;
            }
        }
        Ok(())
    }
}

/// All that a command is about.
pub(crate) fn names_of(command: &several::Command) -> &[Name] {
    match command {
        several::Command::Acquire { names, .. }
        | several::Command::Raise { names, .. }
        | several::Command::Extend { names, .. }
        | several::Command::Repair { names, .. }
        | several::Command::Release { names, .. } => names,
    }
}

/// For the text of a trace.
pub(crate) fn brief_several(command: &several::Command) -> String {
    let names = show(names_of(command));
    match command {
        several::Command::Acquire {
            entry, ttl, floor, ..
        } => format!(
            "ACQUIRE [{names}] {} {ttl:?} p={floor}",
            short(entry.as_str())
        ),
        several::Command::Raise { entry, token, .. } => {
            format!("RAISE [{names}] {} {token}", short(entry.as_str()))
        }
        several::Command::Extend { entry, ttl, .. } => {
            format!("EXTEND [{names}] {} {ttl:?}", short(entry.as_str()))
        }
        several::Command::Repair {
            entry, ttl, token, ..
        } => format!("REPAIR [{names}] {} {ttl:?} {token}", short(entry.as_str())),
        several::Command::Release { entry, .. } => {
            format!("RELEASE [{names}] {}", short(entry.as_str()))
        }
    }
}
