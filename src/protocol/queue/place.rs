//! One waiter in a queue: the nodes' answers go in, and the next step comes out.

use std::time::Duration;

use crate::{
    base::{
        clock::Tick,
        majority::majority,
        rules::{Rule, Rules},
    },
    protocol::queue::{
        beats::{Beat, Entered, Has, ROUNDING},
        terms::Terms,
        votes::{Verdict, Votes, Won},
    },
};

/// A node that failed to answer is asked again after this time, if it may be asked then.
const AFTER_A_FAULT: Duration = Duration::from_millis(250);
/// The shortest rest of a place.
const SHORTEST_REST: Duration = Duration::from_micros(500);

const NEVER: Tick = Tick::from_nanos(u64::MAX);

/// One place in the queue.
#[derive(Debug)]
pub(crate) struct Place {
    /// The order of the queue.
    pub(crate) ticket: u64,
    /// The place is taken only behind all others. It is set while no node has named their tickets.
    pub(crate) only_last: bool,
    pub(crate) terms: Terms,
    votes: Votes,
    beats: Box<[Beat]>,
    /// Grants whose YIELD got lost: node and request.
    owed: Vec<(usize, u64)>,
    /// Another node has voted. At this time the nodes that have not voted are asked.
    hasten_at: Option<Tick>,
    /// The last time at which all nodes were asked because one of them called.
    called_at: Option<Tick>,
    /// Only set while tokens are unequal. Almost no place ever needs it, so it is boxed.
    unequal: Option<Box<Unequal>>,
    rules: Rules,
}

impl Place {
    /// Takes a place. All nodes are asked first.
    pub(crate) fn new(now: Tick, ticket: u64, terms: Terms, nodes: usize, rules: Rules) -> Self {
        let mut place = Self {
            ticket,
            only_last: false,
            terms,
            votes: Votes::new(majority(nodes), rules),
            beats: vec![Beat::default(); nodes].into(),
            owed: Vec::new(),
            hasten_at: None,
            called_at: None,
            unequal: None,
            rules,
        };
        for beat in &mut place.beats {
            beat.now(now);
        }
        place
    }

    /// The same place, taken only behind all others.
    pub(crate) fn only_last(mut self) -> Self {
        self.only_last = true;
        self
    }

    /// A copy of the place of which no node knows. It asks from then on.
    pub(crate) fn anew(&self, at: Tick) -> Self {
        Self {
            only_last: self.only_last,
            ..Self::new(at, self.ticket, self.terms, self.beats.len(), self.rules)
        }
    }

    // ---- what nodes say ---------------------------------------------------------------------

    pub(crate) fn answered(&mut self, now: Tick, node: usize, answer: Position) {
        let Some(beat) = self.beats.get_mut(node) else {
            return;
        };
        let never_answered = beat.is_first();
        let sent = beat.ended(now);
        // A waiter that is new asks once more soon. Until then the node need not tell it that it is next.
        let is_new = sent.is_some_and(|(asked, _)| asked == 1) && self.rules.hold(Rule::SecondAsk);
        let was_partial = self.votes.is_any_given();
        if self.only_last {
            beat.entered = match answer {
                Position::Refused => Entered::No,
                Position::Taken { .. } | Position::Behind { .. } => Entered::Yes,
            };
        }
        match answer {
            Position::Refused => {
                self.votes
                    .lost(node, sent.map_or(u64::MAX, |(asked, _)| asked));
                if never_answered {
                    beat.never_asked();
                }
                // By the answers of the others the place stands, so it is taken here too.
                if !self.only_last {
                    beat.now(now);
                }
            }
            Position::Taken { seq, token } => {
                beat.has = Has::Unknown;
                if self.votes.was_yielded(node, seq) && self.rules.hold(Rule::YieldedIsOver) {
                    // The node has not heard of the YIELD, or not yet. It is sent again, which changes nothing if the
                    // node has heard of it. The node is also asked again, to see if it has.
                    beat.by(next_beat(now, self.terms.as_head()));
                    self.owed.push((node, seq));
                    return;
                }
                match sent {
                    Some((_, t0)) if self.votes.taken(node, seq, token, t0, self.terms.ttl) => {
                        self.voted(now, node, was_partial);
                    }
                    Some(_) => {}
                    // It is not known when that grant was asked for, so the node is asked again.
                    None => self.ask(now, node),
                }
            }
            Position::Behind {
                rank,
                remaining,
                ticket,
                is_first,
                is_reserved,
                holder,
            } => {
                // A hand-over by this very request came after this answer, though it may be read before it.
                self.votes
                    .lost(node, sent.map_or(u64::MAX, |(asked, _)| asked));
                beat.near(now, rank == 0);
                let is_partial = self.votes.is_any_given();
                // A waiter that cannot be called finds out by itself that it is the first, before the node stops
                // keeping the lock for it.
                let every = match (beat.is_near(), beat.is_deaf) {
                    // The result may change while others give way.
                    (_, false) if is_partial => self.terms.as_head(),
                    (true, true) => self.terms.as_head() / 2,
                    (true, false) => self.terms.as_head_for(beat.near_for(now)),
                    (false, true) => self.terms.as_head(),
                    (false, false) if is_new => self.terms.as_head(),
                    (false, false) => self.terms.behind(),
                };
                if self.rules.hold(Rule::JoinAgain) {
                    beat.by(next_beat(now, every));
                    // The waiter that was called may have vanished, and those between it and this one too. The node has
                    // to be asked so that it calls the next one.
                    if let (true, Some(left)) = (rank <= 1 || is_reserved, remaining) {
                        // A free lock that could not be handed over is asked for from time to time.
                        let left = if left.is_zero() {
                            self.terms.claim()
                        } else {
                            left
                        };
                        beat.by(now.plus(left).plus(ROUNDING));
                    }
                }
                let left = remaining.filter(|left| ticket == 0 && !left.is_zero());
                // A holder that did not wait has no ticket. It may be an attempt that is given up. A holder that renews
                // is not one, and its lock may have to be repaired on nodes that this waiter holds.
                let is_before = match ticket {
                    0 => beat.replace_end(left.map(|left| now.plus(left))),
                    _ if ticket == self.ticket => is_first,
                    _ => ticket < self.ticket,
                };
                beat.has = match (is_before, left) {
                    (true, _) => Has::Before,
                    (false, Some(_)) => Has::Another,
                    (false, None) => Has::Behind,
                };
                beat.holder = if is_reserved || ticket == 0 {
                    0
                } else {
                    holder
                };
            }
        }
    }

    /// A node did not answer, or answered with an error.
    pub(crate) fn unanswered(&mut self, now: Tick, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.ended(now);
            beat.has = Has::Silent;
            beat.by(now.plus(AFTER_A_FAULT));
        }
    }

    /// Notes if this node can push to this process.
    pub(crate) fn set_can_push(&mut self, node: usize, can_push: bool) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.is_deaf = !can_push;
        }
    }

    /// A node may not be asked now. [`came_back`](Self::came_back) says when it may be.
    pub(crate) fn mark_unsent(&mut self, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.has = Has::Silent;
            beat.unsent();
        }
    }

    /// A YIELD cannot be sent, because the node may not be asked now. A request that is on its way there may still be
    /// answered.
    pub(crate) fn unreached(&mut self, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.has = Has::Silent;
            beat.never();
        }
    }

    /// A node does not vote any more. A request that it was sent may still be answered.
    pub(crate) fn went(&mut self, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.has = Has::Silent;
        }
    }

    /// A node may be asked, perhaps again, and does not know this waiter any more.
    pub(crate) fn came_back(&mut self, now: Tick, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.has = Has::Unknown;
            beat.entered = Entered::Unknown;
            beat.now(now);
        }
    }

    /// A node hands over by a push.
    pub(crate) fn handed(&mut self, now: Tick, node: usize, seq: u64, token: u64) {
        let was_partial = self.votes.is_any_given();
        let term = self.terms.term();
        match self.votes.pushed(node, seq, token, term, now) {
            true => self.voted(now, node, was_partial),
            false if self.votes.was_yielded(node, seq) => {}
            // The request was sent so long ago that the hand-over is worth nothing. The node says it again, as long as
            // it is asked.
            false => self.ask(now, node),
        }
    }

    /// A node keeps the lock for this waiter, and waits for it to ask.
    pub(crate) fn called(&mut self, now: Tick, node: usize) {
        let recently = |at: Tick| now < at.plus(self.terms.votes_follow());
        if self.called_at.is_some_and(recently) {
            return self.ask(now, node);
        }
        self.called_at = Some(now);
        self.ask_the_others(now);
    }

    /// A node says that this waiter is next. The node should hear from it now, and again after this time.
    pub(crate) fn told_next(&mut self, now: Tick, node: usize, after: Duration) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.told_next(now, self.terms.as_head(), after);
        }
    }

    /// A node's answer to a raise. `None` if the node did not raise.
    pub(crate) fn raised(&mut self, now: Tick, node: usize, counter: Option<u64>) {
        match counter {
            Some(counter) => self.votes.raised(node, counter),
            None => {
                self.votes.lost(node, u64::MAX);
                // The node may not know this waiter any more.
                self.ask(now, node);
            }
        }
    }

    // ---- what follows -----------------------------------------------------------------------

    /// The next step. Must be called again until it is a rest.
    pub(crate) fn next(&mut self, now: Tick) -> Step {
        for node in self.votes.lapse(now) {
            // The node may not know this waiter any more.
            self.went(node);
            self.ask(now, node);
        }
        match self.votes.verdict(now) {
            Verdict::Won(won) => return Step::Won(won),
            Verdict::Split => {
                if let Some(raise) = self.split(now) {
                    return raise;
                }
            }
            Verdict::Open => {
                let was_split = self.unequal.as_mut().is_some_and(|unequal| {
                    unequal.raise_until = None;
                    unequal.settle_at.take().is_some()
                });
                // With the next majority a raise begins again, to a token that those nodes can reach.
                self.votes.end_raise();
                // Votes that are renewed one after the other may never be a majority for long enough.
                let others_first = self.others().any(|has| has == Has::Before);
                if was_split && others_first && self.rules.hold(Rule::YieldAll) {
                    return Step::GiveWay(self.give_way(now));
                }
            }
        }
        if self.is_blocked() && self.rules.hold(Rule::YieldAll) {
            return Step::GiveWay(self.give_way(now));
        }
        if let Some(step) = self.enter(now) {
            return step;
        }
        if !self.owed.is_empty() {
            return Step::GiveWay(std::mem::take(&mut self.owed));
        }
        if let Some((token, grant)) = self.unequal.as_mut().and_then(|it| it.late.pop()) {
            return Step::Raise(token, vec![grant]);
        }
        self.look_at_votes(now);
        let nodes: Vec<usize> = self.due(now).collect();
        if nodes.is_empty() {
            return Step::Rest(self.rest(now));
        }
        let seq = self.votes.request(now);
        for node in &nodes {
            if let Some(beat) = self.beats.get_mut(*node) {
                beat.sent(now, seq);
            }
        }
        Step::Ask(nodes, seq)
    }

    /// The nodes that may know this waiter. They have to be told when it leaves.
    pub(crate) fn asked(&self) -> impl Iterator<Item = usize> + '_ {
        let beats = self.beats.iter().enumerate();
        beats.filter_map(|(node, beat)| beat.was_asked().then_some(node))
    }

    /// The nodes that have handed over, and their tokens.
    pub(crate) fn held(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.votes.held()
    }

    // ---- inside -----------------------------------------------------------------------------

    fn ask(&mut self, now: Tick, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.now(now);
        }
    }

    fn ask_the_others(&mut self, now: Tick) {
        for node in 0..self.beats.len() {
            if !self.votes.has(node) {
                self.ask(now, node);
            }
        }
    }

    /// The nodes to ask now. Because beats are on a grid, nodes that are due at about the same time share one request.
    fn due(&self, now: Tick) -> impl Iterator<Item = usize> + '_ {
        let beats = self.beats.iter().enumerate();
        beats.filter_map(move |(node, beat)| beat.is_due(now).then_some(node))
    }

    fn rest(&self, now: Tick) -> Option<Tick> {
        let beats = self.beats.iter().filter_map(Beat::due);
        let hasten = self.hasten_at.filter(|at| *at != NEVER);
        let unequal = self.unequal.as_ref();
        let own = [
            hasten,
            unequal.and_then(|it| it.settle_at),
            unequal.and_then(|it| it.raise_until),
            self.votes.next_lapse(),
        ];
        let next = beats.chain(own.into_iter().flatten()).min();
        next.map(|at| at.max(now.plus(SHORTEST_REST)))
    }
}

/// The next time to ask, at most `every` later, rounded down to a grid. So the requests of many waiters leave together.
fn next_beat(now: Tick, every: Duration) -> Tick {
    let at = now.plus(every);
    let step = Tick::default().plus(every / 8).nanos().max(1);
    Tick::from_nanos(at.nanos() - at.nanos() % step)
}

// ---- Input and output of a place

/// A node's answer to a request of a waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Position {
    /// This waiter has the lock there, by the request with this number.
    Taken { seq: u64, token: u64 },
    /// The waiter does not have it there.
    Behind {
        /// The number of waiters before this one.
        rank: u64,
        /// For how much longer it is held. `None` if that has no end.
        remaining: Option<Duration>,
        /// The ticket with which the holder came. 0 if it did not wait.
        ticket: u64,
        /// The holder's entry comes before this waiter's, which decides between equal tickets.
        is_first: bool,
        /// It is free, and kept for a waiter that was called.
        is_reserved: bool,
        /// A number for the holder's entry, if that is known.
        holder: u32,
    },
    /// The node gives no place, because this waiter would come before others.
    Refused,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask these nodes, by the request with this number.
    Ask(Vec<usize>, u64),
    /// Give back these grants: node and request.
    GiveWay(Vec<(usize, u64)>),
    /// Raise the counters for these grants to this token.
    Raise(u64, Vec<(usize, u64)>),
    Won(Won),
    /// Other waiters came before. Give up this place, and take another behind all that were named.
    Again,
    /// Too few nodes say anything about this place. Give it up, and make an attempt as if nobody waited.
    Unheard,
    /// Nothing to do before this time.
    Rest(Option<Tick>),
}

/// The state of a place while tokens are unequal.
#[derive(Debug, Default)]
struct Unequal {
    /// When to stop waiting for the other votes.
    settle_at: Option<Tick>,
    /// The time by which a raise must be done.
    raise_until: Option<Tick>,
    /// Grants that came while others were being raised: the token to raise them to, and node and request.
    late: Vec<(u64, (usize, u64))>,
}

// ---- Split grants: which waiter yields

impl Place {
    /// A place behind all others stands once a majority has given it. Then no other waiter stood on a majority before
    /// it, so it overtakes nobody. If one node refuses it, a majority must have answered, so that the tickets of the
    /// others are known.
    fn enter(&mut self, now: Tick) -> Option<Step> {
        if !self.only_last {
            return None;
        }
        let of = |is: fn(&Beat) -> bool| self.beats.iter().filter(|beat| is(beat)).count();
        let entered = of(|beat| beat.entered == Entered::Yes);
        let refused = of(|beat| beat.entered == Entered::No);
        let needed = self.votes.needed();
        if entered >= needed {
            self.only_last = false;
            for beat in &mut self.beats {
                if std::mem::take(&mut beat.entered) == Entered::No {
                    beat.now(now);
                }
            }
            return None;
        }
        if refused > 0 && entered + refused >= needed {
            return Some(Step::Again);
        }
        let open = of(Beat::is_open);
        (entered + refused + open < needed).then_some(Step::Unheard)
    }

    /// One more node has handed over. The others follow soon, or are asked.
    fn voted(&mut self, now: Tick, node: usize, was_partial: bool) {
        if let Some((token, seq)) = self.votes.is_late(node) {
            let unequal = self.unequal.get_or_insert_default();
            unequal.late.push((token, (node, seq)));
        }
        let follow = now.plus(self.terms.votes_follow());
        self.hasten_at.get_or_insert(follow);
        if let Some(beat) = self.beats.get_mut(node) {
            (beat.has, beat.holder) = (Has::Unknown, 0);
        }
        if !was_partial {
            // Earlier answers may be out of date by now, because another waiter had all nodes.
            for beat in &mut self.beats {
                beat.holder = 0;
                if beat.has != Has::Silent {
                    beat.has = Has::Unknown;
                }
            }
        }
    }

    /// The holders on the nodes that this waiter does not have.
    fn others(&self) -> impl Iterator<Item = Has> + '_ {
        let beats = self.beats.iter().enumerate();
        beats.filter_map(|(node, beat)| (!self.votes.has(node)).then_some(beat.has))
    }

    /// Returns true if others must go first. Either this waiter has some nodes, but those that it may still get are too
    /// few for a majority unless earlier waiters give way. Or another waiter has a majority.
    fn is_blocked(&self) -> bool {
        let ours = self.beats.len() - self.others().count();
        if ours == 0 {
            return false;
        }
        let open = self.others().filter(|has| has.may_be_ours()).count();
        let too_few = ours + open < self.votes.needed();
        too_few && self.others().any(|has| has == Has::Before) || self.is_won_by_another()
    }

    /// Returns true if a majority names one holder. That is a lease, which gives way to nobody.
    fn is_won_by_another(&self) -> bool {
        let named = |holder: u32| {
            let same = self.beats.iter().filter(|beat| beat.holder == holder);
            same.count() >= self.votes.needed()
        };
        let mut holders = self.beats.iter().map(|beat| beat.holder);
        holders.any(|holder| holder != 0 && named(holder))
    }

    fn give_way(&mut self, now: Tick) -> Vec<(usize, u64)> {
        (self.hasten_at, self.unequal) = (None, None);
        let given = self.votes.give_way();
        for (node, _) in &given {
            if let Some(beat) = self.beats.get_mut(*node) {
                beat.by(next_beat(now, self.terms.as_head()));
            }
        }
        given
    }

    /// Asks the nodes that have not voted although others have.
    fn look_at_votes(&mut self, now: Tick) {
        if !self.votes.is_any_given() {
            self.hasten_at = None;
        } else if self.hasten_at.is_some_and(|at| at <= now) {
            // They are asked once for these votes. A call, a hand-over or a beat follows.
            self.hasten_at = Some(NEVER);
            self.ask_the_others(now);
        }
    }

    /// A majority has handed over with unequal tokens. Waits for the others for one more round trip, and then raises.
    fn split(&mut self, now: Tick) -> Option<Step> {
        if !self.votes.is_raised() {
            // The wait must not be so long that the votes run out.
            let left = self.votes.next_lapse().map(|at| at.since(now) / 2);
            let patience = left.map_or(self.terms.round_trip, |left| {
                left.min(self.terms.round_trip)
            });
            let unequal = self.unequal.get_or_insert_default();
            let settle_at = *unequal.settle_at.get_or_insert(now.plus(patience));
            let all = (0..self.beats.len()).all(|node| self.votes.has(node));
            if now < settle_at && !all {
                return None;
            }
            unequal.raise_until = Some(now.plus(self.terms.votes_follow() * 2));
            let (token, behind) = self.votes.raise();
            return Some(Step::Raise(token, behind));
        }
        let raise_until = self.unequal.as_ref().and_then(|it| it.raise_until);
        if raise_until.is_some_and(|until| until <= now) {
            let given = self.give_way(now);
            return (!given.is_empty()).then_some(Step::GiveWay(given));
        }
        None
    }
}

#[cfg(test)]
mod tests;
