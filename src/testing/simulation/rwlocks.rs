//! What goes between clients and servers about read-write locks: what is looked at, and what a trace says of it.

use super::{
    invariants::{Held, sides},
    network::short,
    world::World,
};
use crate::{
    base::owner::Entry,
    node::{
        answer::Answer,
        rwlock::{self, Side},
    },
};

impl World {
    /// What a node said about a read-write lock: its counter never goes back.
    pub(crate) fn note_rwlock(
        &mut self,
        s: usize,
        command: &rwlock::Command,
        reply: &Answer,
        time: u64,
    ) -> Held {
        let writes = matches!(command, rwlock::Command::Write { .. });
        let (counter, is_new) = match reply {
            Answer::Granted(counter) => (*counter, writes),
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
        let name = command.of().as_str();
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

/// For the text of a trace.
pub(crate) fn brief_rwlock(command: &rwlock::Command) -> String {
    let name = command.of();
    let waits = |wait: &Option<rwlock::Wait>| {
        let wait = wait.as_ref();
        wait.map_or(String::new(), |wait| {
            format!(" waits as {}", short(wait.entry.as_str()))
        })
    };
    match command {
        rwlock::Command::Read {
            entry,
            ttl,
            floor,
            wait,
            ..
        } => format!(
            "READ {name} {} {ttl:?} p={floor}{}",
            short(entry.as_str()),
            waits(wait)
        ),
        rwlock::Command::Write {
            entry,
            ttl,
            floor,
            wait,
            ..
        } => format!(
            "WRITE {name} {} {ttl:?} p={floor}{}",
            short(entry.as_str()),
            waits(wait)
        ),
        rwlock::Command::Raise { entry, token, .. } => {
            format!("RAISE {name} {} {token}", short(entry.as_str()))
        }
        rwlock::Command::Extend {
            entry, side, ttl, ..
        } => format!("EXTEND {name} {} {side:?} {ttl:?}", short(entry.as_str())),
        rwlock::Command::Repair {
            entry,
            side,
            ttl,
            token,
            ..
        } => format!(
            "REPAIR {name} {} {side:?} {ttl:?} {token}",
            short(entry.as_str())
        ),
        rwlock::Command::Release {
            entry,
            wait,
            window,
            ..
        } => {
            let wait = wait.as_ref().map(|wait| short(wait.as_str()));
            let entry = short(entry.as_str());
            format!("RELEASE {name} {entry} waits no more: {wait:?} window {window:?}")
        }
        rwlock::Command::Inspect { .. } => format!("INSPECT {name}"),
        rwlock::Command::Evict { .. } => format!("EVICT {name}"),
    }
}
