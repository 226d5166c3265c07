//! One who waits in line: what the nodes say goes in, and what is to be done next comes out.

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

/// After a node failed to answer it is asked again this much later, if it may be asked then.
const AFTER_A_FAULT: Duration = Duration::from_millis(250);
/// Nobody looks more often than this, whatever is due.
const SHORTEST_REST: Duration = Duration::from_micros(500);

const NEVER: Tick = Tick::from_nanos(u64::MAX);

/// One place in line.
#[derive(Debug)]
pub(crate) struct Place {
    /// The order of the line.
    pub(crate) ticket: u64,
    /// It is taken only behind all others: nobody has said yet with which tickets they stand there.
    pub(crate) only_last: bool,
    pub(crate) terms: Terms,
    votes: Votes,
    beats: Box<[Beat]>,
    /// Grants of which the giving back got lost: node and request.
    owed: Vec<(usize, u64)>,
    /// When the nodes that have not voted are asked, as another one has.
    hasten_at: Option<Tick>,
    /// When all nodes were last asked because one called.
    called_at: Option<Tick>,
    /// Only while tokens are unequal: nearly no place ever needs it, and so has no room for it.
    unequal: Option<Box<Unequal>>,
    rules: Rules,
}

impl Place {
    /// Takes a place. It asks all of the nodes first.
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

    /// The same place, which is taken only behind all others.
    pub(crate) fn only_last(mut self) -> Self {
        self.only_last = true;
        self
    }

    /// The same place, of which no node knows. It asks from then on.
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
        let is_first = beat.is_first();
        let sent = beat.ended(now);
        // Who is new asks once more soon. Until then the node need not tell us that we are next.
        let is_new = sent.is_some_and(|(asked, _)| asked == 1) && self.rules.hold(Rule::SecondAsk);
        let was_partial = self.votes.is_partial();
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
                if is_first {
                    beat.never_asked();
                }
                // Otherwise the place stands by what others have said: it is taken here too.
                if !self.only_last {
                    beat.now(now);
                }
            }
            Position::Taken { seq, token } => {
                beat.has = Has::Unknown;
                if self.votes.was_yielded(node, seq) && self.rules.hold(Rule::YieldedIsOver) {
                    // The node was never told, or not yet: it is told once more, which changes nothing then. And it is asked
                    // whether it has heard of it.
                    beat.by(next_beat(now, self.terms.as_head()));
                    self.owed.push((node, seq));
                    return;
                }
                match sent {
                    Some((_, t0)) if self.votes.taken(node, seq, token, t0, self.terms.ttl) => {
                        self.voted(now, node, was_partial);
                    }
                    Some(_) => {}
                    // Nobody knows when that was asked for: it is asked for again.
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
                // A hand-over by this very request came after this answer, though it may be read before.
                self.votes
                    .lost(node, sent.map_or(u64::MAX, |(asked, _)| asked));
                beat.near(now, rank == 0);
                let is_partial = self.votes.is_partial();
                // Who cannot be called finds out by itself that it is the head, before what is kept for it is over.
                let every = match (beat.is_near(), beat.is_deaf) {
                    // What follows from it changes while others give way.
                    (_, false) if is_partial => self.terms.as_head(),
                    (true, true) => self.terms.as_head() / 2,
                    (true, false) => self.terms.as_head_for(beat.near_for(now)),
                    (false, true) => self.terms.as_head(),
                    (false, false) if is_new => self.terms.as_head(),
                    (false, false) => self.terms.behind(),
                };
                if self.rules.hold(Rule::JoinAgain) {
                    beat.by(next_beat(now, every));
                    // Whoever was called may have vanished, and those between with it: the node has to be asked to call
                    // the next.
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
                // A holder that did not wait has no ticket, and may be an attempt that is given up. One that renews
                // is none, and has to be put back where we hold.
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

    /// A node did not answer, or with an error.
    pub(crate) fn unanswered(&mut self, now: Tick, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.ended(now);
            beat.has = Has::Silent;
            beat.by(now.plus(AFTER_A_FAULT));
        }
    }

    /// Whether a node can call us.
    pub(crate) fn hears(&mut self, node: usize, hears: bool) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.is_deaf = !hears;
        }
    }

    /// A node may not be asked now. When it may be, it [comes back](Self::came_back).
    pub(crate) fn refused(&mut self, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.has = Has::Silent;
            beat.unsent();
        }
    }

    /// What was to be given back cannot be sent: the node may not be asked now. What is on its way there may still be
    /// answered.
    pub(crate) fn unreached(&mut self, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.has = Has::Silent;
            beat.never();
        }
    }

    /// A node does not vote any more. What it was asked may still be answered.
    pub(crate) fn went(&mut self, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.has = Has::Silent;
        }
    }

    /// A node may be asked, perhaps again, and does not know us any more.
    pub(crate) fn came_back(&mut self, now: Tick, node: usize) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.has = Has::Unknown;
            beat.entered = Entered::Unknown;
            beat.now(now);
        }
    }

    /// A node hands over, unasked.
    pub(crate) fn handed(&mut self, now: Tick, node: usize, seq: u64, token: u64) {
        let was_partial = self.votes.is_partial();
        let term = self.terms.term();
        match self.votes.pushed(node, seq, token, term, now) {
            true => self.voted(now, node, was_partial),
            false if self.votes.was_yielded(node, seq) => {}
            // Sent so long ago that it is worth nothing: the node says it again, for as long as we ask.
            false => self.ask(now, node),
        }
    }

    /// A node keeps it for us, and waits for us to ask.
    pub(crate) fn called(&mut self, now: Tick, node: usize) {
        let recently = |at: Tick| now < at.plus(self.terms.votes_follow());
        if self.called_at.is_some_and(recently) {
            return self.ask(now, node);
        }
        self.called_at = Some(now);
        self.ask_the_others(now);
    }

    /// We are next there: it should hear of us now, and again after this.
    pub(crate) fn told_next(&mut self, now: Tick, node: usize, after: Duration) {
        if let Some(beat) = self.beats.get_mut(node) {
            beat.told_next(now, self.terms.as_head(), after);
        }
    }

    /// A node's answer to a raise; none: it did not raise.
    pub(crate) fn raised(&mut self, now: Tick, node: usize, counter: Option<u64>) {
        match counter {
            Some(counter) => self.votes.raised(node, counter),
            None => {
                self.votes.lost(node, u64::MAX);
                // It may not know us any more.
                self.ask(now, node);
            }
        }
    }

    // ---- what follows -----------------------------------------------------------------------

    /// What is to be done now; to be asked for until it is a rest.
    pub(crate) fn next(&mut self, now: Tick) -> Step {
        for node in self.votes.lapse(now) {
            // It may not know us any more.
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
                // With the next majority it begins anew, to what those can be raised to.
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

    /// The nodes that may know us: they have to be told when we leave.
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

    /// Whom to ask now. Who hears of one that is due asks those too that are nearly so: it is one request.
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

/// The next time to ask, at most this much later, on a grid: so those of many who wait leave together.
fn next_beat(now: Tick, every: Duration) -> Tick {
    let at = now.plus(every);
    let step = Tick::default().plus(every / 8).nanos().max(1);
    Tick::from_nanos(at.nanos() - at.nanos() % step)
}

// ---- Input and output of a place

/// A node's answer to a request of a waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Position {
    /// This waiter has it, by the request with this number.
    Taken { seq: u64, token: u64 },
    /// It is another's.
    Behind {
        /// How many stand before us.
        rank: u64,
        /// For how much longer; none: without an end.
        remaining: Option<Duration>,
        /// The ticket that it came with; 0: it did not wait.
        ticket: u64,
        /// Its entry comes before this waiter's, which decides between equal tickets.
        is_first: bool,
        /// It is free, and kept for a waiter that was called.
        is_reserved: bool,
        /// A number for its entry, where that is known.
        holder: u32,
    },
    /// It gives no place: we would come before others.
    Refused,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// These nodes are to be asked by the request with this number.
    Ask(Vec<usize>, u64),
    /// These grants are to be given back: node and request.
    GiveWay(Vec<(usize, u64)>),
    /// The counters for these grants are to be raised to this token.
    Raise(u64, Vec<(usize, u64)>),
    Won(Won),
    /// Others came before: this place is given up, and another taken behind all that were named.
    Again,
    /// Too few nodes say anything of this place: it is given up, and the lock asked for as if nobody waited.
    Unheard,
    /// Nothing before this.
    Rest(Option<Tick>),
}

/// The state of a place while tokens are unequal.
#[derive(Debug, Default)]
struct Unequal {
    /// When to stop waiting for the rest.
    settle_at: Option<Tick>,
    /// Until when a raise may take.
    raise_until: Option<Tick>,
    /// Grants that came while others were being raised: to which token, and node and request.
    late: Vec<(u64, (usize, u64))>,
}

// ---- Split grants: which waiter yields

impl Place {
    /// A place that is to be the last stands once a majority has it: so nobody stood on a majority before whom it comes. Where one node
    /// refuses it, a majority has to have said with which tickets others stand there.
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

    /// One more node has handed over: the others follow soon, or are asked.
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
            // Earlier answers may be over by now: another waiter had all nodes.
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

    /// True if others must go first. Either this waiter has some nodes, and those that it may still get are too few for a
    /// majority unless earlier waiters give way. Or another one has a majority.
    fn is_blocked(&self) -> bool {
        let ours = self.beats.len() - self.others().count();
        if ours == 0 {
            return false;
        }
        let open = self.others().filter(|has| has.may_be_ours()).count();
        let too_few = ours + open < self.votes.needed();
        too_few && self.others().any(|has| has == Has::Before) || self.is_won_by_another()
    }

    /// True if a majority names one holder. That is a lease, and gives way to nobody.
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

    /// Asks nodes that have not voted though others have, and asks nodes again whose vote is over.
    fn look_at_votes(&mut self, now: Tick) {
        if !self.votes.is_partial() {
            self.hasten_at = None;
        } else if self.hasten_at.is_some_and(|at| at <= now) {
            // Once for these votes: a call, a hand-over or a beat follows.
            self.hasten_at = Some(NEVER);
            self.ask_the_others(now);
        }
    }

    /// A majority has handed over with unequal tokens. It waits for the rest for one more round trip, and raises then.
    fn split(&mut self, now: Tick) -> Option<Step> {
        if !self.votes.is_raised() {
            // Never for so long that what we have may be over.
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
