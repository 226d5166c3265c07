//! What goes between clients and servers about slots: what is looked at, and what a trace says of it.

use super::{invariants::Held, network::short, world::World};
use crate::{base::limit::Limit, node::answer::Answer, node::slots};

impl World {
    /// What a node said about slots: its counters and its limits never go back.
    pub(crate) fn note_slots(
        &mut self,
        s: usize,
        command: &slots::Command,
        reply: &Answer,
        time: u64,
    ) -> Held {
        let pool = command.pool();
        let name = format!("{} {:?}", pool.name, pool.family);
        let server = &mut self.servers[s];
        let (limit, counter) = match (command, reply) {
            (slots::Command::Take { limit, .. }, Answer::Slots { mine, version, .. }) => {
                let version = *version;
                (Some(Limit { version, ..*limit }), *mine)
            }
            (slots::Command::Raise { slot, .. }, Answer::Raised(counter)) => {
                self.stats.raises += 1;
                (None, Some((*slot, *counter)))
            }
            (_, Answer::Conflict(limit) | Answer::Limit(limit)) => (Some(*limit), None),
            (_, Answer::Yielded) => {
                self.stats.yields += 1;
                (None, None)
            }
            (_, Answer::Repaired(true)) => {
                self.stats.repaired += 1;
                (None, None)
            }
            _ => (None, None),
        };
        if let Some(limit) = limit {
            let max_ttl = self.plan.terms.max_ttl;
            // Where more than three quarters of its time are left, it is not written anew.
            let kept = u64::try_from(max_ttl.as_micros()).unwrap_or(u64::MAX) * 3;
            server.limits.said(s, &name, limit, time, kept)?;
        }
        // Other counters go with their slots, and those go by age.
        if let (slots::Family::Permits, Some((slot, counter))) = (pool.family, counter) {
            let name = format!("{name}/{slot}");
            server.counters.seen(s, &name, counter, time, false)?;
        }
        Ok(())
    }
}

/// For the text of a trace.
pub(crate) fn brief_slots(command: &slots::Command) -> String {
    let whose = match command.pool().family {
        slots::Family::Permits => "",
        slots::Family::Gatherers => " (gathers)",
        slots::Family::Units { .. } => " (units)",
    };
    match command {
        slots::Command::Take {
            place,
            limit,
            mode,
            want,
            floor,
            ..
        } => format!(
            "TAKE{whose} {} ticket {} {mode:?} {want:?} p={floor} limit {}:{}",
            short(place.entry.as_str()),
            place.ticket,
            limit.version,
            limit.slots
        ),
        slots::Command::Raise {
            entry, slot, token, ..
        } => format!("RAISE{whose} {} {slot} {token}", short(entry.as_str())),
        slots::Command::Extend {
            entry, slot, ttl, ..
        } => format!("EXTEND{whose} {} {slot} {ttl:?}", short(entry.as_str())),
        slots::Command::Repair {
            entry,
            slot,
            ttl,
            token,
            ..
        } => format!(
            "REPAIR{whose} {} {slot} {ttl:?} {token}",
            short(entry.as_str())
        ),
        slots::Command::Release { entry, keep, .. } => {
            format!("RELEASE{whose} {} keep {keep:?}", short(entry.as_str()))
        }
        slots::Command::Yield { place, .. } => {
            format!("YIELD{whose} {}", short(place.entry.as_str()))
        }
        slots::Command::Resize { limit, .. } => {
            format!("RESIZE{whose} {}:{}", limit.version, limit.slots)
        }
        slots::Command::Inspect { .. } => format!("INSPECT{whose}"),
    }
}
