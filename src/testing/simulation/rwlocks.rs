//! Checks of nodes' answers about read-write locks.

use super::{
    invariants::{Held, sides},
    world::World,
};
use crate::{
    base::owner::Entry,
    node::{
        answer::Answer,
        request::{Side, Target},
    },
};

impl World {
    /// What a node said about a read-write lock: its counter never goes back.
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

    /// A node that votes has readers or a writer. (Where a clock is set back in its quarantine, who was over is there again.)
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
