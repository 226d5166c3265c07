//! The knowledge that a search for a slot has of one node.

use crate::base::{clock::Tick, limit::Limit};
use crate::node::answer::Slots;

/// Says if something of this search stands on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Held {
    #[default]
    No,
    Yes,
    /// A request was lost, so it is not known.
    Unknown,
}

/// One node.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// The number of requests that are not answered.
    pub(super) pending: u32,
    /// The last of them may take a slot, and its answer is waited for.
    pub(super) is_awaited: bool,
    pub(super) was_asked: bool,
    /// The time at which the oldest unanswered request was sent, or the last request if all are answered. An answer
    /// counts from this time. (It is not known which of several requests an answer belongs to, because some may have
    /// been taken back unsent.)
    pub(super) asked_at: Tick,
    /// Its last answer, unless something was sent to it since.
    pub(super) known: Option<Slots>,
    /// The node has another limit.
    pub(super) conflict: Option<Limit>,
    pub(super) held: Held,
    /// Its counter is being raised.
    pub(super) is_raising: bool,
    /// The node does not answer, or may not be asked.
    pub(super) is_silent: bool,
    /// The node cannot push to this process.
    pub(super) is_deaf: bool,
    /// When to ask it again.
    pub(super) ask_at: Option<Tick>,
    /// The ticket in the last request to it.
    pub(super) ticket: u64,
}

impl View {
    /// A TAKE was sent. `takes` is true if it may take a slot.
    pub(super) fn asked(&mut self, now: Tick, takes: bool) {
        self.sent(now);
        self.was_asked = true;
        self.is_awaited |= takes;
        self.ask_at = None;
        self.is_raising = false;
        self.conflict = None;
        self.known = None;
    }

    fn sent(&mut self, now: Tick) {
        if self.pending == 0 {
            self.asked_at = now;
        }
        self.pending += 1;
    }

    /// A YIELD was sent.
    pub(super) fn yielded(&mut self, now: Tick) {
        self.sent(now);
        self.is_awaited = false;
        self.is_raising = false;
        self.known = None;
    }

    /// One request was answered, or will not be. Returns true if it was the last one.
    pub(super) fn ended(&mut self) -> bool {
        self.pending = self.pending.saturating_sub(1);
        let is_last = self.pending == 0;
        if is_last {
            self.is_awaited = false;
        }
        is_last
    }

    /// The request was not sent at all.
    pub(super) fn unsent(&mut self) {
        self.ended();
        self.is_silent = true;
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// The slot that the node has for this search, and its counter.
    pub(super) fn mine(&self) -> Option<(u32, u64)> {
        self.known.as_ref()?.mine
    }

    pub(super) fn has(&self, slot: u32) -> bool {
        self.mine().is_some_and(|(mine, _)| mine == slot)
    }

    /// Returns true if the node has this slot for this search, or could give it.
    pub(super) fn offers(&self, slot: u32) -> bool {
        let free = |known: &Slots| known.may_take && !known.taken.has(slot);
        self.has(slot) || self.known.as_ref().is_some_and(free)
    }

    pub(super) fn is_taken(&self, slot: u32) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.taken.has(slot))
    }

    /// Returns true if a slot is taken whose number is at or above this limit.
    pub(super) fn has_above(&self, limit: u32) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.taken.above(limit.saturating_sub(1)) > 0)
    }

    /// Returns true if this search is in the queue there with a smaller ticket than this one, and the node was not told
    /// this one yet.
    pub(super) fn lags(&self, ticket: u64) -> bool {
        let stands = self.known.as_ref().map_or(0, |known| known.ticket);
        self.mine().is_none() && stands > 0 && stands < ticket && self.ticket < ticket
    }

    pub(super) fn may_take(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.may_take)
    }
}
