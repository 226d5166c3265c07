//! Finds calls that wait for longer than a ttl for a lock that the same task won before, and that this quorum still
//! holds. Such a call waits for ever, in silence, unless the task has given its lease to another one. So the log has a
//! hint. Tasks that wait for each other are none of its business.
//!
//! It costs a look at the waiting calls, at most once a second, and at the leases once for each call that waits that
//! long.

use std::{collections::HashMap, mem, time::Duration};

use super::{
    acquire::Acquisitions,
    cluster::Cluster,
    event::{Acquisition, Caller, Wait},
    holdings::Holdings,
    wants::waits_for,
};
use crate::base::{clock::Tick, name::Name, owner::label_of};

/// The shortest wait that is logged, and the shortest time between two looks.
const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct OwnHolder {
    /// The next look, and the last one.
    due: Option<Tick>,
    looked_at: Tick,
}

/// The time from which on the wait is worth a line in the log. `None` if it ends before.
pub(super) fn is_long_at(acquisition: &Acquisition) -> Option<Tick> {
    let at = acquisition
        .asked_at
        .plus(acquisition.request.ttl.max(SECOND));
    let is_longer = acquisition.end().is_none_or(|end| at < end);
    (acquisition.request.wait != Wait::Never && is_longer).then_some(at)
}

impl OwnHolder {
    /// A call begins beside these.
    pub(super) fn begins(&mut self, acquisitions: &Acquisitions, acquisition: &Acquisition) {
        if acquisitions.is_empty() {
            self.due = None;
        }
        let at = is_long_at(acquisition);
        self.due = [self.due, at].into_iter().flatten().min();
    }

    /// The time of the next look.
    pub(super) fn due(&self, acquisitions: &Acquisitions) -> Option<Tick> {
        self.due.filter(|_| !acquisitions.is_empty())
    }

    /// Looks at the calls that have waited for long by now.
    pub(super) fn look(
        &mut self,
        cluster: &mut Cluster,
        acquisitions: &Acquisitions,
        holdings: &Holdings,
    ) {
        let now = cluster.now;
        let last = mem::replace(&mut self.looked_at, now);
        let mut next: Option<Tick> = None;
        let mut long: HashMap<Caller, Vec<&Acquisition>> = HashMap::new();
        for acquisition in acquisitions.waiting() {
            match is_long_at(acquisition) {
                Some(at) if at > now => next = Some(next.map_or(at, |next| next.min(at))),
                // Each call is looked at once.
                Some(at) if at > last => long
                    .entry(acquisition.caller)
                    .or_default()
                    .push(acquisition),
                _ => {}
            }
        }
        if !long.is_empty() {
            for lease in holdings.of_callers(now, |caller| long.contains_key(&caller)) {
                for acquisition in long.get(&lease.caller).into_iter().flatten() {
                    let (kind, names) = waits_for(&acquisition.request.wants);
                    let is_held = |name: &&Name| {
                        !name.is_own() && kind == lease.kind && lease.names.contains(name)
                    };
                    if lease.since < acquisition.asked_at
                        && let Some(name) = names.iter().find(is_held)
                    {
                        let waiter = acquisition.request.label.as_ref();
                        let waiter = waiter.unwrap_or(&cluster.settings.label).as_str();
                        let (holder, held_for) = (label_of(lease.entry), now.since(lease.since));
                        let journal = &mut cluster.journal;
                        journal.waits_for_itself(now, name, holder, waiter, held_for);
                    }
                }
            }
        }
        self.due = next.map(|next| next.max(now.plus(SECOND)));
    }
}
