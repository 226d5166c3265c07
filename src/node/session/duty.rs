//! Releases that the node has not confirmed yet. A release is dropped when what it would free has expired.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::step::Tag;
use crate::{
    base::{clock::Tick, ids::ById, owner::Entry, shrink::Shrink as _},
    node::{Operation, request::Request},
};

/// How long after an error a release is sent again.
const RETRY: Duration = Duration::from_millis(200);
/// The shortest time between two searches for expired releases.
const EXPIRY: Duration = Duration::from_millis(50);

/// One release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DutyId(u64);

#[derive(Default)]
pub(super) struct Duties {
    by_id: ById<DutyId, Duty>,
    retries: BTreeSet<(Tick, DutyId)>,
    /// Releases that were answered while an older connection might still bring what they free.
    doubted: BTreeSet<DutyId>,
    /// Nothing expires before this time.
    next_expiry: Option<Tick>,
    last: u64,
}

struct Duty {
    operation: Arc<Operation>,
    until: Tick,
    /// The round that waits for the answer.
    tag: Option<Tag>,
    /// The time at which it is sent again. `None` while it is on its way, or before it was first sent.
    retry_at: Option<Tick>,
    /// It was sent at once, and nothing has gone wrong since.
    is_prompt: bool,
    /// The error that the node answered.
    error: Option<String>,
}

impl Duties {
    pub(super) fn add(
        &mut self,
        operation: Arc<Operation>,
        until: Tick,
        tag: Option<Tag>,
        is_prompt: bool,
    ) -> DutyId {
        self.last += 1;
        self.next_expiry = Some(self.next_expiry.map_or(until, |at| at.min(until)));
        let id = DutyId(self.last);
        let duty = Duty {
            operation,
            until,
            tag,
            retry_at: None,
            is_prompt,
            error: None,
        };
        self.by_id.insert(id, duty);
        id
    }

    /// Marks it as sent and returns what to send.
    pub(super) fn sent(&mut self, id: DutyId) -> Option<Arc<Operation>> {
        let duty = self.by_id.get_mut(&id)?;
        self.doubted.remove(&id);
        if let Some(at) = duty.retry_at.take() {
            self.retries.remove(&(at, id));
        }
        Some(Arc::clone(&duty.operation))
    }

    /// Returns true if its answer can be expected as soon as that of any other request.
    pub(super) fn is_prompt(&self, id: DutyId) -> bool {
        self.by_id.get(&id).is_some_and(|duty| duty.is_prompt)
    }

    pub(super) fn is_owed(&self, id: DutyId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// It was answered, or has nothing to free. Returns the round that waits for the answer.
    pub(super) fn done(&mut self, id: DutyId) -> Option<Tag> {
        let duty = self.by_id.remove(&id)?;
        self.by_id.shrink_if_empty();
        if let Some(at) = duty.retry_at {
            self.retries.remove(&(at, id));
        }
        duty.tag
    }

    /// It was answered, but what it frees may still come.
    pub(super) fn doubt(&mut self, id: DutyId) {
        if let Some(duty) = self.by_id.get_mut(&id) {
            duty.is_prompt = false;
            self.doubted.insert(id);
        }
    }

    /// The releases that were answered in doubt and free an entry for which `is` holds.
    pub(super) fn doubted(&self, is: impl Fn(&Entry) -> bool) -> Vec<DutyId> {
        let frees = |id: &DutyId| {
            let entry = self
                .by_id
                .get(id)?
                .operation
                .command()
                .entry_that(Request::frees)?;
            is(entry).then_some(*id)
        };
        self.doubted.iter().filter_map(frees).collect()
    }

    /// It was answered by an error.
    pub(super) fn failed(&mut self, id: DutyId, now: Tick, error: Option<String>) {
        self.retry(id, now.plus(RETRY));
        if let Some(duty) = self.by_id.get_mut(&id) {
            duty.error = error;
        }
    }

    /// The error in the last answer to it.
    pub(super) fn error(&self, id: DutyId) -> Option<&String> {
        self.by_id.get(&id)?.error.as_ref()
    }

    /// It is sent later than it was asked for. Nobody waits longer for its answer because of that.
    pub(super) fn delayed(&mut self, id: DutyId) {
        if let Some(duty) = self.by_id.get_mut(&id) {
            duty.is_prompt = false;
        }
    }

    /// It did not reach the node.
    pub(super) fn unsent(&mut self, id: DutyId, now: Tick) {
        self.retry(id, now);
    }

    fn retry(&mut self, id: DutyId, at: Tick) {
        if let Some(duty) = self.by_id.get_mut(&id) {
            debug_assert!(duty.retry_at.is_none(), "it is sent again already");
            duty.retry_at = Some(at);
            duty.is_prompt = false;
            self.retries.insert((at, id));
        }
    }

    /// Drops what has expired by now. This looks at every duty, so it is done at most once in [`EXPIRY`]. Keeping the
    /// duties sorted by their end would cost more, because most are answered long before.
    pub(super) fn expire(&mut self, now: Tick) {
        if self.next_expiry.is_none_or(|at| at > now) {
            return;
        }
        let mut next: Option<Tick> = None;
        self.by_id.retain(|_, duty| {
            let is_owed = duty.until > now;
            if is_owed {
                next = Some(next.map_or(duty.until, |at| at.min(duty.until)));
            }
            is_owed
        });
        self.retries.retain(|(_, id)| self.by_id.contains_key(id));
        self.doubted.retain(|id| self.by_id.contains_key(id));
        self.next_expiry = next.map(|at| at.max(now.plus(EXPIRY)));
    }

    /// The releases that have to be sent again now.
    pub(super) fn due(&self, now: Tick) -> Vec<DutyId> {
        let due = self.retries.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, id)| *id).collect()
    }

    /// Returns true if any was sent whose answer has still to come.
    pub(super) fn is_any_under_way(&self) -> bool {
        let others = self.retries.len() + self.doubted.len();
        debug_assert!(others <= self.by_id.len(), "a duty counts twice");
        self.by_id.len() > others
    }

    /// The entries that may still stand on the node.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        let commands = self.by_id.values().map(|duty| duty.operation.command());
        commands.filter_map(|command| command.entry_that(Request::frees))
    }

    /// All releases, oldest first.
    pub(super) fn unanswered(&self) -> Vec<DutyId> {
        let mut ids: Vec<_> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn next_retry(&self) -> Option<Tick> {
        self.retries.first().map(|(at, _)| *at)
    }

    pub(super) fn next_expiry(&self) -> Option<Tick> {
        self.next_expiry
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
