//! One who asks for a slot of a semaphore: what the nodes say goes in, and what is to be done next comes out.

mod act;
mod answers;
mod verdict;

use std::time::Duration;

use super::{
    view::{Held, View},
    words::{Ask, Step},
};
use crate::{
    base::{clock::Tick, limit::Limit, rules::Rules},
    protocol::{
        ballot::validity::{notice, valid_until},
        queue::terms::Terms,
    },
};

/// After a node failed to answer it is asked again this much later, if it may be asked then.
const AFTER_A_FAULT: Duration = Duration::from_millis(250);
/// Nobody looks more often than this, whatever is due.
const SHORTEST_REST: Duration = Duration::from_micros(500);
/// Who gave back what it had tries again within so many round trips.
const APART: u32 = 16;
/// Where so many slots are free on a majority, those who got in each other's way are tried for at once: it is not likely
/// to happen again.
const PLENTY: usize = 4;
/// So often in a row.
const STRAIGHT: u32 = 4;
/// So often a slot is tried for in a row before everything is given back.
const MOVES: u32 = 12;

/// Where a random number of at most this comes from.
pub(crate) type UpTo<'a> = &'a mut dyn FnMut(u64) -> u64;

/// One who asks for a slot.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Its place in line.
    pub(crate) ticket: u64,
    pub(crate) terms: Terms,
    pub(crate) limit: Limit,
    /// The limit was met before, and forgotten since: a newer one is followed.
    has_met: bool,
    /// It takes a place in line where nothing is free.
    waits: bool,
    views: Box<[View]>,
    needed: usize,
    has_begun: bool,
    /// A majority has answered once.
    was_answered: bool,
    /// When the nodes were asked last for a slot.
    round_at: Tick,
    /// When to stop waiting for the rest of them.
    settle_at: Option<Tick>,
    /// How often a slot was tried for in a row.
    moves: u32,
    /// The slot that is being tried for.
    trying: Option<u32>,
    /// What the counters of which slot are being raised to.
    raise: Option<(u32, u64)>,
    /// Slots of which a node said that they are free.
    hints: Vec<u32>,
    /// When to try again for any.
    retry_at: Option<Tick>,
    /// When to look again, where nothing is in sight and something may be free: whatever comes in sight does not wait for that.
    look_at: Option<Tick>,
    /// How often that was done.
    looks: u32,
    rules: Rules,
}

/// Only the last one is followed. A node may send more, so they are bounded.
pub(super) const MOST_HINTS: usize = 16;

impl Seat {
    /// `needed`: Q of how many nodes.
    pub(crate) fn new(
        ticket: u64,
        terms: Terms,
        limit: Limit,
        waits: bool,
        (nodes, needed): (usize, usize),
        rules: Rules,
    ) -> Self {
        Self {
            ticket,
            terms,
            limit,
            has_met: false,
            waits,
            views: vec![View::default(); nodes].into(),
            needed,
            has_begun: false,
            was_answered: false,
            round_at: Tick::default(),
            settle_at: None,
            moves: 0,
            trying: None,
            raise: None,
            hints: Vec::new(),
            retry_at: None,
            look_at: None,
            looks: 0,
            rules,
        }
    }

    /// The same for who has met a limit before.
    pub(crate) fn has_met(self, has_met: bool) -> Self {
        Self { has_met, ..self }
    }

    /// The same place in line, of which no node knows.
    pub(crate) fn anew(&self, now: Tick) -> Self {
        let all = (self.views.len(), self.needed);
        let mut seat = Self::new(
            self.ticket,
            self.terms,
            self.limit,
            self.waits,
            all,
            self.rules,
        );
        (seat.has_met, seat.has_begun, seat.was_answered) = (self.has_met, true, true);
        seat.ask_all(now);
        seat
    }

    // ---- what follows -----------------------------------------------------------------------

    /// What is to be done now; to be asked for until it is no more than a rest, or the end. What it says is to be
    /// sent counts as sent.
    pub(crate) fn next(&mut self, now: Tick, up_to: UpTo<'_>) -> Step {
        if !self.has_begun {
            return self.begin(now, up_to);
        }
        self.lapse(now);
        self.was_answered |= self.answers() >= self.needed;
        if let Some(step) = self.look_at_the_limit(now, up_to) {
            return step;
        }
        if let Some(won) = self.won(now) {
            return Step::Won(won);
        }
        if self.is_open(now) {
            return self.rest(now, self.settle_at);
        }
        let asked = self.views.iter().filter(|view| view.is_awaited).count();
        if !self.was_answered && self.answers() + asked < self.needed {
            return Step::NoQuorum;
        }
        self.settle_at = None;
        self.act(now, up_to)
    }

    /// Asks for any slot. Everybody begins elsewhere, and goes on in steps of another length.
    pub(super) fn begin(&mut self, now: Tick, up_to: UpTo<'_>) -> Step {
        self.has_begun = true;
        let slots = u64::from(self.limit.slots);
        let want = up_to((slots * slots).saturating_sub(1));
        self.take(now, Ask::Pick(u32::try_from(want).unwrap_or(0)))
    }

    /// Whether a majority has answered at any time.
    pub(crate) fn was_answered(&self) -> bool {
        self.was_answered
    }

    /// The nodes that may know us: they have to be told when we leave.
    pub(crate) fn asked(&self) -> impl Iterator<Item = usize> + '_ {
        let views = self.views.iter().enumerate();
        views.filter_map(|(node, view)| view.was_asked.then_some(node))
    }

    /// The nodes that have a slot for us, and its counter.
    pub(crate) fn held(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let views = self.views.iter().enumerate();
        views.filter_map(|(node, view)| Some((node, view.mine()?.1)))
    }

    /// The nodes whose answers are waited for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = usize> + '_ {
        let views = self.views.iter().enumerate();
        views.filter_map(|(node, view)| (view.is_awaited || view.is_raising).then_some(node))
    }

    /// The greatest limit that a majority has told; none until one has answered.
    pub(crate) fn told(&self) -> Option<Limit> {
        let slots = self.limit.slots;
        let told = |view: &View| {
            let known = view.known.as_ref().map(|known| Limit {
                version: known.version,
                slots,
            });
            view.conflict.or(known)
        };
        let told: Vec<Limit> = self.views.iter().filter_map(told).collect();
        let (first, rest) = told.split_first()?;
        let greater = |one: Limit, other: &Limit| match other.beats(one, self.rules) {
            true => *other,
            false => one,
        };
        (told.len() >= self.needed).then(|| rest.iter().fold(*first, greater))
    }

    // ---- inside -----------------------------------------------------------------------------

    /// How many nodes have answered what they were asked last.
    pub(super) fn answers(&self) -> usize {
        let views = self.views.iter();
        let answered = |view: &&View| view.known.is_some() || view.conflict.is_some();
        views.filter(answered).count()
    }

    pub(super) fn held_nodes(&self) -> impl Iterator<Item = usize> + '_ {
        let views = self.views.iter().enumerate();
        views.filter_map(|(node, view)| {
            let may_hold = view.held != Held::No || view.is_awaited || view.mine().is_some();
            (may_hold && !view.is_silent).then_some(node)
        })
    }

    /// Asks for a slot: all that may be asked and do not have it for us.
    pub(super) fn take(&mut self, now: Tick, ask: Ask) -> Step {
        let want = match ask {
            Ask::Move { want, .. } => Some(want),
            Ask::Pick(_) | Ask::Stay => None,
        };
        let views = self.views.iter().enumerate();
        let nodes: Vec<usize> = views
            .filter(|(_, view)| !view.is_silent && want.is_none_or(|want| !view.has(want)))
            .map(|(node, _)| node)
            .collect();
        self.trying = want;
        (self.round_at, self.settle_at, self.raise) = (now, None, None);
        self.sent(now, &nodes, true);
        Step::Take(nodes, ask)
    }

    pub(super) fn sent(&mut self, now: Tick, nodes: &[usize], takes: bool) {
        for node in nodes {
            if let Some(view) = self.views.get_mut(*node) {
                view.ticket = self.ticket;
                view.asked(now, takes);
            }
        }
    }

    pub(super) fn give_back(&mut self, now: Tick, nodes: Vec<usize>) -> Step {
        (self.trying, self.moves, self.raise) = (None, 0, None);
        for node in &nodes {
            if let Some(view) = self.views.get_mut(*node) {
                view.yielded(now);
                view.held = Held::No;
                view.ask_at = Some(now.plus(self.terms.behind()));
            }
        }
        Step::Yield(nodes)
    }

    /// Nothing is to be done before this, or before what was granted is too old.
    pub(super) fn rest(&self, now: Tick, due: Option<Tick>) -> Step {
        let ttl = self.terms.ttl;
        let granted = self.views.iter().filter(|view| view.mine().is_some());
        let lapses = granted.map(|view| valid_until(view.asked_at, ttl).minus(notice(ttl)));
        let next = lapses.chain(due).min();
        Step::Rest(next.map(|at| at.max(now.plus(SHORTEST_REST))))
    }
}

#[cfg(test)]
mod tests;
