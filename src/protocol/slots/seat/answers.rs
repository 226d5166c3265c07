//! What the nodes say to one who asks for a slot.

use std::time::Duration;

use super::{AFTER_A_FAULT, MOST_HINTS, Seat};
use crate::{
    base::{clock::Tick, limit::Limit, rules::Rule},
    protocol::{
        queue::beats::ROUNDING,
        slots::{view::Held, words::Slots},
    },
};

impl Seat {
    pub(crate) fn answered(&mut self, now: Tick, node: usize, slots: Slots) {
        let forgets = self.rules.hold(Rule::MoveForgets);
        let (may_call, term) = (self.waits, self.terms);
        let Some(view) = self.views.get_mut(node) else {
            return;
        };
        let is_last = view.ended();
        view.is_silent = false;
        self.ticket = self.ticket.max(slots.ticket);
        // What was sent behind it may take back what it says.
        if !is_last && forgets {
            return;
        }
        view.held = match slots.mine {
            Some(_) => Held::Yes,
            None => Held::No,
        };
        if may_call && slots.mine.is_none() {
            // Who cannot be called asks from time to time. Who may take what becomes free looks when that is due.
            let every = match (view.is_deaf, slots.may_take) {
                (true, true) => term.as_head(),
                (true, false) => term.term(),
                (false, _) => term.behind(),
            };
            let due = slots.next_free.filter(|_| slots.may_take);
            let at = now.plus(every);
            let at = due.map_or(at, |left| at.min(now.plus(left).plus(ROUNDING)));
            view.ask_at = Some(view.ask_at.map_or(at, |before| before.min(at)));
        }
        view.known = Some(slots);
    }

    /// Another limit stands there, and nothing was done.
    pub(crate) fn conflicts(&mut self, node: usize, limit: Limit) {
        if let Some(view) = self.views.get_mut(node) {
            view.is_silent = false;
            if view.ended() {
                view.conflict = Some(limit);
            }
        }
    }

    /// What was given back there is no longer ours.
    pub(crate) fn has_yielded(&mut self, now: Tick, node: usize) {
        let every = self.terms.behind();
        if let Some(view) = self.views.get_mut(node)
            && view.ended()
        {
            view.held = Held::No;
            let at = now.plus(every);
            view.ask_at = Some(view.ask_at.map_or(at, |before| before.min(at)));
        }
    }

    /// A node's answer to a raise; none: it did not raise.
    pub(crate) fn raised(&mut self, now: Tick, node: usize, counter: Option<u64>) {
        let (raise, exact) = (self.raise, self.rules.hold(Rule::ExactAck));
        let Some(view) = self.views.get_mut(node) else {
            return;
        };
        if !std::mem::take(&mut view.is_raising) {
            return;
        }
        let Some((slot, token)) = raise.filter(|(slot, _)| view.has(*slot)) else {
            return;
        };
        match (counter, view.known.as_mut()) {
            // Exactly the token: a greater counter belongs to somebody else's.
            (Some(counter), Some(known)) => {
                let counter = if exact { counter } else { token };
                known.mine = Some((slot, counter));
            }
            _ => {
                view.known = None;
                view.held = Held::Unknown;
                view.ask_at = Some(now);
            }
        }
    }

    /// A node did not answer, or with an error.
    pub(crate) fn unanswered(&mut self, now: Tick, node: usize) {
        if let Some(view) = self.views.get_mut(node) {
            view.ended();
            view.is_silent = true;
            view.held = Held::Unknown;
            view.known = None;
            view.ask_at = Some(now.plus(AFTER_A_FAULT));
        }
    }

    /// A node's answer is waited for no more.
    pub(crate) fn is_late(&mut self, node: usize) {
        if let Some(view) = self.views.get_mut(node) {
            view.is_awaited = false;
            view.is_raising = false;
            view.is_silent = true;
        }
    }

    /// A node may not be asked now. When it may be, it [comes back](Self::came_back).
    pub(crate) fn refused(&mut self, node: usize) {
        if let Some(view) = self.views.get_mut(node) {
            view.unsent();
            view.ask_at = None;
        }
    }

    /// Whether a node can call us.
    pub(crate) fn hears(&mut self, node: usize, hears: bool) {
        if let Some(view) = self.views.get_mut(node) {
            view.is_deaf = !hears;
        }
    }

    /// A node does not vote any more.
    pub(crate) fn went(&mut self, node: usize) {
        if let Some(view) = self.views.get_mut(node) {
            view.is_silent = true;
            view.known = None;
            view.ask_at = None;
            view.is_awaited = false;
        }
    }

    /// A node may be asked, perhaps again, and does not know us any more.
    pub(crate) fn came_back(&mut self, now: Tick, node: usize) {
        let has_begun = self.has_begun;
        if let Some(view) = self.views.get_mut(node) {
            view.is_silent = false;
            view.known = None;
            view.ask_at = has_begun.then_some(now);
        }
    }

    /// A node calls: this slot is free there.
    pub(crate) fn is_free(&mut self, slot: u32) {
        let is_news = self.trying != Some(slot) && !self.hints.contains(&slot);
        if is_news && self.waits && self.hints.len() < MOST_HINTS {
            self.hints.push(slot);
        }
    }

    /// A node is to be asked: now, or after this.
    pub(crate) fn ask(&mut self, now: Tick, node: usize, after: Duration) {
        if let Some(view) = self.views.get_mut(node) {
            let at = now.plus(after);
            view.ask_at = Some(view.ask_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Somebody in front was called there, and has so long to come. The node passes over it only after that, in whole ms.
    pub(crate) fn is_next(&mut self, now: Tick, node: usize, after: Duration) {
        self.ask(now, node, after.saturating_add(ROUNDING));
    }
}
