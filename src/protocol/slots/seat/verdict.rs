//! What follows from the votes for a slot: whether it is won, and whether the limit is still the one that was asked with.

use super::{SHORTEST_REST, Seat, UpTo};
use crate::{
    base::{clock::Tick, rules::Rule, taken::Taken},
    protocol::{
        ballot::validity::{notice, valid_until},
        slots::{
            view::View,
            words::{Step, Won},
        },
    },
};

impl Seat {
    /// What was granted too long ago to be of use is no vote any more.
    pub(super) fn lapse(&mut self, now: Tick) {
        let ttl = self.terms.ttl;
        for view in &mut self.views {
            let end = valid_until(view.asked_at, ttl).minus(notice(ttl));
            if view.mine().is_some() && now >= end {
                view.known = None;
                view.ask_at = Some(now);
            }
        }
    }

    /// Another limit, if Q nodes have answered and it is the greatest: it is followed if it is a newer one.
    pub(super) fn look_at_the_limit(&mut self, now: Tick, up_to: UpTo<'_>) -> Option<Step> {
        let told = self.told()?;
        if told.slots == self.limit.slots {
            self.limit.version = self.limit.version.max(told.version);
            // Those that differ have not heard of it yet; they do when they are asked again.
            for view in self.views.iter_mut().filter(|view| view.conflict.is_some()) {
                view.ask_at.get_or_insert(now);
            }
            return None;
        }
        let follows = told.follows(self.limit, self.rules) || self.has_met && told.version > 1;
        if !follows {
            return Some(Step::Conflict(told));
        }
        self.limit = told;
        // What was said of the old one is no vote.
        for view in &mut self.views {
            view.conflict = None;
        }
        self.hints.clear();
        self.has_begun = false;
        let held: Vec<usize> = self.held_nodes().collect();
        self.views.iter_mut().for_each(|view| view.known = None);
        Some(match held.is_empty() {
            true => self.begin(now, up_to),
            // It begins anew behind that.
            false => self.give_back(now, held),
        })
    }

    /// The slot that Q nodes have for us with one token, if it fits.
    pub(super) fn won(&self, now: Tick) -> Option<Won> {
        let ttl = self.terms.ttl;
        let mut votes: Vec<(u32, u64)> = self.views.iter().filter_map(View::mine).collect();
        votes.sort_unstable();
        votes.dedup();
        let counts = |view: &&View, vote: (u32, u64)| match self.rules.hold(Rule::NumberedSlots) {
            true => view.mine() == Some(vote),
            false => view.mine().is_some(),
        };
        for vote in votes {
            let of_it: Vec<&View> = self.views.iter().filter(|v| counts(v, vote)).collect();
            let mut sent: Vec<Tick> = of_it.iter().map(|view| view.asked_at).collect();
            sent.sort_unstable_by(|one, other| other.cmp(one));
            let Some(since) = self.needed.checked_sub(1).and_then(|last| sent.get(last)) else {
                continue;
            };
            let end = valid_until(*since, ttl);
            if now >= end.minus(notice(ttl)) || !self.fits(vote.0, &of_it) {
                continue;
            }
            let others = self.views.iter().enumerate();
            let others = others.filter(|(_, view)| {
                view.was_asked && !view.is_pending() && !counts(view, vote) && !view.has(vote.0)
            });
            let held = self.views.iter().enumerate();
            let held = held.filter_map(|(node, view)| {
                let (slot, token) = view.mine()?;
                (slot == vote.0 || counts(&view, vote)).then_some((node, token))
            });
            return Some(Won {
                slot: vote.0,
                token: vote.1,
                since: *since,
                end,
                held: held.collect(),
                others: others.map(|(node, _)| node).collect(),
            });
        }
        None
    }

    /// Whether this slot, and what is taken above it, are no more than the limit. It is not only while the limit shrinks.
    pub(super) fn fits(&self, slot: u32, voters: &[&View]) -> bool {
        if !self.rules.hold(Rule::LimitAtGrant) {
            return true;
        }
        if self
            .told()
            .is_some_and(|told| told.slots != self.limit.slots)
        {
            return false;
        }
        let known = voters.iter().filter_map(|view| view.known.as_ref());
        let above = match self.rules.hold(Rule::CountAbove) {
            true => {
                let mut union = Taken::default();
                known.for_each(|known| union.add(&known.taken));
                union.above(slot)
            }
            false => known
                .map(|known| known.taken.above(slot))
                .max()
                .unwrap_or(0),
        };
        slot.saturating_add(above) < self.limit.slots
    }

    /// Whether answers are waited for: until nothing that they may say would change what follows, or for one more reply
    /// time after a majority has answered.
    pub(super) fn is_open(&mut self, now: Tick) -> bool {
        let awaited = self.awaited().count();
        if awaited == 0 {
            return false;
        }
        if self.answers() < self.needed {
            return self.answers() + awaited >= self.needed || self.was_answered;
        }
        let took = now.since(self.round_at);
        let settle_at = *self
            .settle_at
            .get_or_insert(now.plus(took.max(SHORTEST_REST)));
        let votes = |slot: u32| self.views.iter().filter(|view| view.has(slot)).count();
        let mine = self
            .views
            .iter()
            .filter_map(View::mine)
            .map(|(slot, _)| slot);
        let most = mine.map(votes).max().unwrap_or(0);
        now < settle_at && most + awaited >= self.needed
    }
}
