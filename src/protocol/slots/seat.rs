//! The search for a slot of a semaphore. The nodes' answers go in, and the next step comes out.

use std::time::Duration;

use crate::{
    base::{
        clock::Tick,
        limit::Limit,
        majority::majority,
        rules::{Rule, Rules},
        taken::Taken,
    },
    node::answer::Slots,
    protocol::{
        ballot::validity::{notice, valid_until},
        queue::{beats::ROUNDING, terms::Terms},
        slots::{
            choose,
            view::{Held, View},
            words::{Ask, Step, Won},
        },
    },
};

/// A node that failed to answer is asked again after this time, if it may be asked then.
const AFTER_A_FAULT: Duration = Duration::from_millis(250);
/// The shortest time between two looks.
const SHORTEST_REST: Duration = Duration::from_micros(500);
/// A search that gave its slots back tries again within this number of round trips.
const APART: u32 = 16;
/// If this number of slots is free on a majority, a search tries again at once after a collision, because another
/// collision is not likely.
const PLENTY: usize = 4;
/// The greatest number of such tries in a row.
const STRAIGHT: u32 = 4;
/// The greatest number of tries for a slot in a row. After them everything is given back.
const MOVES: u32 = 12;

/// A source of random numbers: it returns a number from 0 to its argument.
pub(crate) type UpTo<'a> = &'a mut dyn FnMut(u64) -> u64;

/// One search for a slot.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Its place in the queue.
    pub(crate) ticket: u64,
    pub(crate) terms: Terms,
    pub(crate) limit: Limit,
    /// A limit was met before and has been forgotten since, so a newer limit is followed.
    has_met: bool,
    /// The search takes a place in the queue if no slot is free.
    waits: bool,
    views: Box<[View]>,
    needed: usize,
    has_begun: bool,
    /// A majority has answered at some time.
    was_answered: bool,
    /// The time at which the nodes were last asked for a slot.
    round_at: Tick,
    /// When to stop waiting for the other answers.
    settle_at: Option<Tick>,
    /// The number of tries for a slot in a row.
    moves: u32,
    /// The slot that is being tried for.
    trying: Option<u32>,
    /// The slot whose counters are being raised, and the value.
    raise: Option<(u32, u64)>,
    /// Slots that a node has said to be free.
    hints: Vec<u32>,
    /// When to try again for any slot.
    retry_at: Option<Tick>,
    /// The time of the next look. It is set while no free slot is known although one may be free. A slot that becomes
    /// known does not wait for it.
    look_at: Option<Tick>,
    /// The number of such looks.
    looks: u32,
    rules: Rules,
}

/// Only the last hint is followed. A node may send more, so their number is bounded.
pub(super) const MOST_HINTS: usize = 16;

impl Seat {
    pub(crate) fn new(ticket: u64, terms: Terms, limit: Limit, nodes: usize, rules: Rules) -> Self {
        Self {
            ticket,
            terms,
            limit,
            has_met: false,
            waits: true,
            views: vec![View::default(); nodes].into(),
            needed: majority(nodes),
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

    /// The same search, with or without a place in the queue.
    pub(crate) fn waits(self, waits: bool) -> Self {
        Self { waits, ..self }
    }

    /// The same search, for a semaphore that has met a limit before.
    pub(crate) fn has_met(self, has_met: bool) -> Self {
        Self { has_met, ..self }
    }

    /// The same place in the queue, of which no node knows.
    pub(crate) fn anew(&self, now: Tick) -> Self {
        let mut seat = Self::new(
            self.ticket,
            self.terms,
            self.limit,
            self.views.len(),
            self.rules,
        );
        seat = seat.waits(self.waits).has_met(self.has_met);
        (seat.has_begun, seat.was_answered) = (true, true);
        seat.ask_all(now);
        seat
    }

    // ---- what follows -----------------------------------------------------------------------

    /// The next step. Must be called until it returns a rest or the end. The requests of a step count as sent.
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
        if self.await_more(now) {
            return self.rest(now, self.settle_at);
        }
        let asked = self.views.iter().filter(|view| view.is_awaited).count();
        if !self.was_answered && self.answers() + asked < self.needed {
            return Step::NoQuorum;
        }
        self.settle_at = None;
        self.act(now, up_to)
    }

    /// Asks for any slot. Each search begins with another slot, and goes on in steps of another length.
    pub(super) fn begin(&mut self, now: Tick, up_to: UpTo<'_>) -> Step {
        self.has_begun = true;
        let slots = u64::from(self.limit.slots);
        let want = up_to((slots * slots).saturating_sub(1));
        self.take(now, Ask::Pick(u32::try_from(want).unwrap_or(0)))
    }

    /// Returns true if a majority has answered at some time.
    pub(crate) fn was_answered(&self) -> bool {
        self.was_answered
    }

    /// The nodes that may know this search. They have to be told when it ends.
    pub(crate) fn asked(&self) -> impl Iterator<Item = usize> + '_ {
        let views = self.views.iter().enumerate();
        views.filter_map(|(node, view)| view.was_asked.then_some(node))
    }

    /// The nodes that have a slot for this search, and its counter.
    pub(crate) fn held(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let views = self.views.iter().enumerate();
        views.filter_map(|(node, view)| Some((node, view.mine()?.1)))
    }

    /// The nodes whose answers are waited for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = usize> + '_ {
        let views = self.views.iter().enumerate();
        views.filter_map(|(node, view)| (view.is_awaited || view.is_raising).then_some(node))
    }

    /// The greatest limit among the answers. `None` until a majority has answered.
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

    /// The number of nodes that have answered the last request.
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

    /// Asks for a slot. All nodes are asked that may be asked and do not have it for this search.
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

    /// Rests until `due`, or until a vote is too old to count.
    pub(super) fn rest(&self, now: Tick, due: Option<Tick>) -> Step {
        let ttl = self.terms.ttl;
        let granted = self.views.iter().filter(|view| view.mine().is_some());
        let lapses = granted.map(|view| valid_until(view.asked_at, ttl).minus(notice(ttl)));
        let next = lapses.chain(due).min();
        Step::Rest(next.map(|at| at.max(now.plus(SHORTEST_REST))))
    }
}

// ---- Answers of nodes

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
        // A later request may take back the vote in this answer.
        if !is_last && forgets {
            return;
        }
        view.held = match slots.mine {
            Some(_) => Held::Yes,
            None => Held::No,
        };
        if may_call && slots.mine.is_none() {
            // A waiter that cannot be called asks from time to time. One that may take a slot asks when the next slot
            // ends.
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

    /// The node has another limit, and has done nothing.
    pub(crate) fn conflicts(&mut self, node: usize, limit: Limit) {
        if let Some(view) = self.views.get_mut(node) {
            view.is_silent = false;
            if view.ended() {
                view.conflict = Some(limit);
            }
        }
    }

    /// The node has taken the slot back.
    pub(crate) fn yielded(&mut self, now: Tick, node: usize) {
        let every = self.terms.behind();
        if let Some(view) = self.views.get_mut(node)
            && view.ended()
        {
            view.held = Held::No;
            let at = now.plus(every);
            view.ask_at = Some(view.ask_at.map_or(at, |before| before.min(at)));
        }
    }

    /// A node's answer to a raise. `None` if the node did not raise.
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
            // Only exactly the token counts: a greater counter belongs to another owner's token.
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

    /// A node did not answer, or answered with an error.
    pub(crate) fn unanswered(&mut self, now: Tick, node: usize) {
        if let Some(view) = self.views.get_mut(node) {
            view.ended();
            view.is_silent = true;
            view.held = Held::Unknown;
            view.known = None;
            view.ask_at = Some(now.plus(AFTER_A_FAULT));
        }
    }

    /// A node's answer is not waited for any more.
    pub(crate) fn answered_late(&mut self, node: usize) {
        if let Some(view) = self.views.get_mut(node) {
            view.is_awaited = false;
            view.is_raising = false;
            view.is_silent = true;
        }
    }

    /// A node may not be asked now. [`came_back`](Self::came_back) says when it may be.
    pub(crate) fn mark_unsent(&mut self, node: usize) {
        if let Some(view) = self.views.get_mut(node) {
            view.unsent();
            view.ask_at = None;
        }
    }

    /// Notes if this node can push to this process.
    pub(crate) fn set_can_push(&mut self, node: usize, can_push: bool) {
        if let Some(view) = self.views.get_mut(node) {
            view.is_deaf = !can_push;
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

    /// A node may be asked, perhaps again, and does not know this search any more.
    pub(crate) fn came_back(&mut self, now: Tick, node: usize) {
        let has_begun = self.has_begun;
        if let Some(view) = self.views.get_mut(node) {
            view.is_silent = false;
            view.known = None;
            view.ask_at = has_begun.then_some(now);
        }
    }

    /// A node calls: this slot is free there.
    pub(crate) fn slot_freed(&mut self, slot: u32) {
        let is_news = self.trying != Some(slot) && !self.hints.contains(&slot);
        if is_news && self.waits && self.hints.len() < MOST_HINTS {
            self.hints.push(slot);
        }
    }

    /// A node has to be asked after this time.
    pub(crate) fn ask(&mut self, now: Tick, node: usize, after: Duration) {
        if let Some(view) = self.views.get_mut(node) {
            let at = now.plus(after);
            view.ask_at = Some(view.ask_at.map_or(at, |before| before.min(at)));
        }
    }

    /// A waiter in front was called there, and has the time `after` to come. The node, which counts in whole ms, only
    /// then passes over it.
    pub(crate) fn told_next(&mut self, now: Tick, node: usize, after: Duration) {
        self.ask(now, node, after.saturating_add(ROUNDING));
    }
}

// ---- Verdict: is the slot won, and is the limit still the one that was asked with

impl Seat {
    /// Drops votes that were granted too long ago to be of use.
    fn lapse(&mut self, now: Tick) {
        let ttl = self.terms.ttl;
        for view in &mut self.views {
            let end = valid_until(view.asked_at, ttl).minus(notice(ttl));
            if view.mine().is_some() && now >= end {
                view.known = None;
                view.ask_at = Some(now);
            }
        }
    }

    /// Handles another limit, if Q nodes have answered and it is the greatest. A newer limit is followed.
    fn look_at_the_limit(&mut self, now: Tick, up_to: UpTo<'_>) -> Option<Step> {
        let told = self.told()?;
        if told.slots == self.limit.slots {
            self.limit.version = self.limit.version.max(told.version);
            // Nodes with another limit have not heard of this one. They hear of it when they are asked again.
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
        // Answers that were given under the old limit are no votes.
        for view in &mut self.views {
            view.conflict = None;
        }
        self.hints.clear();
        self.has_begun = false;
        let held: Vec<usize> = self.held_nodes().collect();
        self.views.iter_mut().for_each(|view| view.known = None);
        Some(match held.is_empty() {
            true => self.begin(now, up_to),
            // It begins again after that.
            false => self.give_back(now, held),
        })
    }

    /// The slot that Q nodes have for this search with one token, if it fits.
    fn won(&self, now: Tick) -> Option<Won> {
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

    /// Returns true if this slot and the slots taken above it are within the limit. They can only exceed it while the
    /// limit shrinks.
    fn fits(&self, slot: u32, voters: &[&View]) -> bool {
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

    /// Returns true while the search waits for more answers. It waits until none could change the outcome. After a
    /// majority has answered, it waits at most as long again as that took.
    fn await_more(&mut self, now: Tick) -> bool {
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

// ---- Next step: raise tokens, move to a slot, roll back, or wait

impl Seat {
    fn act(&mut self, now: Tick, up_to: UpTo<'_>) -> Step {
        let wants = self.moves < MOVES;
        if let Some(step) = self.raise().filter(|_| wants) {
            return step;
        }
        let limit = self.limit.slots;
        let target = choose::target(&self.views, self.needed, limit, up_to);
        let step = target
            .filter(|_| wants)
            .and_then(|(want, token)| self.try_for(now, want, Some(token)));
        if let Some(step) = step {
            return step;
        }
        // If many slots are free, nothing is given back first. A search that rests, or that was called to a slot, gives
        // back.
        let rests = self.retry_at.or(self.look_at).is_some();
        let may = self.waits && !rests && self.hints.is_empty();
        let plenty = match may && self.moves < STRAIGHT {
            true => self.free(up_to).filter(|(_, count)| *count >= PLENTY),
            false => None,
        };
        let step = plenty.and_then(|(want, _)| self.try_for(now, want, None));
        if let Some(step) = step {
            return step;
        }
        let mut held: Vec<usize> = self.held_nodes().collect();
        if !self.rules.hold(Rule::YieldAllSlots) {
            held.pop();
        }
        if !held.is_empty() || !self.waits {
            if !self.waits {
                return match self.answers() >= self.needed {
                    true => Step::Refused,
                    false => Step::NoQuorum,
                };
            }
            self.retry_at = Some(now.plus(random(self.apart(1), up_to)));
            return self.give_back(now, held);
        }
        self.trying = None;
        self.moves = 0;
        if let Some(want) = self.hints.pop() {
            self.hints.clear();
            if want < limit {
                return self.take(now, Ask::Move { want, floor: None });
            }
            // The limit has grown.
            self.ask_all(now);
        }
        self.wait(now, up_to)
    }

    /// Tries for a slot. Returns `None` if all nodes have it already: then it did not fit, or its tokens could not be
    /// made equal.
    fn try_for(&mut self, now: Tick, want: u32, floor: Option<u64>) -> Option<Step> {
        self.moves += 1;
        let step = self.take(now, Ask::Move { want, floor });
        let is_asked = !matches!(&step, Step::Take(nodes, _) if nodes.is_empty());
        is_asked.then_some(step)
    }

    /// Waits without any slot. Tries again if one may be free, and asks the nodes from time to time so that they go on
    /// counting it as alive.
    fn wait(&mut self, now: Tick, up_to: UpTo<'_>) -> Step {
        let limit = self.limit.slots;
        let in_front = self.views.iter().filter(|view| view.may_take()).count() >= self.needed;
        let free = match in_front {
            true => self.free(up_to),
            false => None,
        };
        let is_over = |rest: Option<Tick>| rest.is_some_and(|at| at <= now);
        match (free, is_over(self.retry_at)) {
            (Some((want, _)), true) => {
                (self.retry_at, self.look_at, self.looks) = (None, None, 0);
                self.moves += 1;
                return self.take(now, Ask::Move { want, floor: None });
            }
            (Some((_, count)), false) => {
                let at = now.plus(random(self.apart(count), up_to));
                self.retry_at.get_or_insert(at);
                self.look_at = None;
            }
            (None, true) => {
                // Owners without a majority give slots back, and no push says so.
                self.retry_at = None;
                self.ask_all(now);
            }
            (None, false) if is_over(self.look_at) => {
                self.look_at = None;
                self.ask_all(now);
            }
            (None, false) => {
                let unsettled = in_front && !choose::is_full(&self.views, self.needed, limit);
                if self.retry_at.or(self.look_at).is_none() && unsettled {
                    self.looks = self.looks.saturating_add(1);
                    let doubled = self.apart(1) * 2_u32.pow(self.looks.min(8));
                    let within = doubled.min(self.terms.term() / 2);
                    self.look_at = Some(now.plus(within / 2 + random(within / 2, up_to)));
                }
            }
        }
        let views = self.views.iter().enumerate();
        let due: Vec<usize> = views
            .filter_map(|(node, view)| {
                let is_due = view.ask_at.is_some_and(|at| at <= now.plus(SHORTEST_REST))
                    || view.lags(self.ticket);
                is_due.then_some(node)
            })
            .collect();
        if due.is_empty() {
            let asks = self.views.iter().filter_map(|view| view.ask_at);
            return self.rest(now, asks.chain(self.retry_at).chain(self.look_at).min());
        }
        self.sent(now, &due, false);
        Step::Take(due, Ask::Stay)
    }

    /// If Q nodes have a slot for this search with unequal tokens, and it was not raised yet, starts the raise.
    fn raise(&mut self) -> Option<Step> {
        let mut slots: Vec<u32> = self
            .views
            .iter()
            .filter_map(View::mine)
            .map(|(s, _)| s)
            .collect();
        slots.sort_unstable();
        slots.dedup();
        for slot in slots {
            let of = self.views.iter().filter_map(View::mine);
            let mut tokens: Vec<u64> = of.filter_map(|(s, t)| (s == slot).then_some(t)).collect();
            tokens.sort_unstable();
            // The smallest token that Q nodes can be raised to.
            let Some(token) = self.needed.checked_sub(1).and_then(|nth| tokens.get(nth)) else {
                continue;
            };
            let token = *token;
            if slot >= self.limit.slots || self.raise == Some((slot, token)) {
                continue;
            }
            let behind = |view: &View| view.mine().is_some_and(|(s, t)| s == slot && t < token);
            let mut nodes = Vec::new();
            for (node, view) in self.views.iter_mut().enumerate() {
                if behind(view) && !view.is_pending() {
                    view.is_raising = true;
                    nodes.push(node);
                }
            }
            if nodes.is_empty() {
                continue;
            }
            self.raise = Some((slot, token));
            self.moves += 1;
            return Some(Step::Raise(slot, token, nodes));
        }
        None
    }

    /// A slot that a majority would give, chosen at random, and how many there are. While the limit shrinks, a slot
    /// counts only if it fits in with the slots that are taken above it.
    fn free(&self, up_to: UpTo<'_>) -> Option<(u32, usize)> {
        let limit = self.limit.slots;
        let known: Vec<&View> = self.views.iter().filter(|v| v.known.is_some()).collect();
        let shrinks = known.iter().any(|view| view.has_above(limit));
        let fits = |slot| !shrinks || self.fits(slot, &known);
        choose::free(&self.views, self.needed, limit, fits, up_to)
    }

    /// The time within which a search tries again after a collision. It is shorter if more slots are free. After nodes
    /// were silent the round trip seems long, so the time has a bound.
    fn apart(&self, free: usize) -> Duration {
        let (one, ttl) = (self.terms.round_trip, self.terms.ttl);
        let within = one * APART / u32::try_from(free).unwrap_or(APART);
        within.min((ttl / 8).max(one * 2))
    }

    fn ask_all(&mut self, now: Tick) {
        for view in &mut self.views {
            if !view.is_silent && !view.is_awaited {
                view.ask_at = Some(now);
            }
        }
    }
}

fn random(within: Duration, up_to: UpTo<'_>) -> Duration {
    let most = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(up_to(most))
}

#[cfg(test)]
mod tests;
