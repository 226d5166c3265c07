//! Checks of nodes' answers about slots.

use super::{invariants::Held, world::World};
use crate::{
    base::limit::Limit,
    node::{
        answer::Answer,
        request::{Family, Pool, Request, Seat, Verb},
    },
};

impl World {
    /// What a node said about slots: its counters and its limits never go back.
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
            (Answer::Slots { mine, version, .. }, Some(Seat { limit, .. })) => {
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
            // Where more than three quarters of its time are left, it is not written anew.
            let kept = u64::try_from(max_ttl.as_micros()).unwrap_or(u64::MAX) * 3;
            server.limits.said(s, &name, limit, time, kept)?;
        }
        // Other counters go with their slots, and those go by age.
        if let (Family::Permits, Some((slot, counter))) = (pool.family, counter) {
            let name = format!("{name}/{slot}");
            server.counters.seen(s, &name, counter, time, false)?;
        }
        Ok(())
    }
}
