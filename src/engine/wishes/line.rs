//! The wishes that wait in line (protocol §5), and what travels between them and the nodes. What follows from what
//! is [`crate::protocol::queue`].

mod in_line;
mod lately;

use std::collections::HashMap;

use self::{
    in_line::InLine,
    lately::{Lately, number},
};
use crate::{
    Error, FencingToken, Silence,
    base::{ids::ById, name::Name, owner::Entry},
    engine::{
        attempt::new_owner,
        event::WishId,
        grant::Grant,
        net::Net,
        rollback::wait_life,
        timers::Key,
        wishes::{
            standing::Standing,
            waiter::{Counts, Waiter},
        },
    },
    lease::upkeep::Good,
    node::{Push, Says, answer::Answer, request::Target, session::RoundId, status::NodeState},
    protocol::queue::{
        place::{Place, Position, Step},
        terms::Terms,
    },
};

/// All who wait in line.
#[derive(Default)]
pub(super) struct Line {
    waiting: ById<WishId, Box<InLine>>,
    rounds: ById<RoundId, WishId>,
    entries: HashMap<Entry, WishId>,
    last_ticket: u64,
    lately: Lately,
    /// The queues of those who ask no more, one for each.
    decided: Vec<Target>,
    /// The nodes that may be asked, when that was last looked at.
    voting: Vec<bool>,
}

/// What follows for one who waits.
pub(super) enum Follows {
    Nothing,
    Won(Box<Grant>),
    /// It is a writer's turn: that is granted, and the writer asks for its lock.
    Turn(Box<Waiter>, Box<Grant>),
    /// It waits no more, and is told so.
    Over(Box<Waiter>, Error),
    /// It asks for the lock as if nobody waited.
    Ask(Box<Waiter>),
}

impl Line {
    /// A node's answer to a request of one who waits.
    pub(super) fn joined(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> Follows {
        let Some((id, one)) = self.by_round(round) else {
            return Follows::Nothing;
        };
        let now = net.now;
        let mut named = 0;
        match &answer {
            Ok(Answer::Taken { counter, seq }) => {
                one.saw(*counter);
                let (seq, token) = (*seq, *counter);
                one.place
                    .answered(now, node, Position::Taken { seq, token });
            }
            Ok(Answer::InLine { rank, ahead }) => {
                let is_first = ahead
                    .holder
                    .as_deref()
                    .is_some_and(|other| *other < *one.entry.as_str());
                let behind = Position::Behind {
                    rank: *rank,
                    remaining: ahead.remaining,
                    ticket: ahead.ticket,
                    is_first,
                    is_reserved: ahead.is_reserved,
                    holder: ahead.holder.as_deref().map_or(0, number),
                };
                one.place.answered(now, node, behind);
            }
            Ok(Answer::Held {
                counter, ticket, ..
            }) => {
                one.saw(*counter);
                named = *ticket;
                one.place.answered(now, node, Position::Refused);
            }
            Ok(_) | Err(_) => one.place.unanswered(now, node),
        }
        one.standing.last.set(node, answer);
        self.last_ticket = self.last_ticket.max(named);
        self.look(net, id)
    }

    /// A node's answer to a raise of one who waits.
    pub(super) fn raised(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> Follows {
        let Some((id, one)) = self.by_round(round) else {
            return Follows::Nothing;
        };
        match answer {
            Ok(Answer::Raised(counter)) => {
                one.saw(counter);
                one.place.raised(net.now, node, Some(counter));
            }
            Ok(_) => one.place.raised(net.now, node, None),
            Err(_) => {}
        }
        self.look(net, id)
    }

    /// A node says something unasked.
    pub(super) fn pushed(&mut self, net: &mut Net, node: usize, push: Push) -> Follows {
        let Some(id) = self.entries.get(&push.entry).copied() else {
            return Follows::Nothing;
        };
        let Some(one) = self.waiting.get_mut(&id) else {
            return Follows::Nothing;
        };
        let now = net.now;
        match push.says {
            Says::Granted { seq, token, .. } => {
                one.saw(token);
                one.place.handed(now, node, seq, token);
            }
            Says::Called => one.place.called(now, node),
            Says::Next { after } => one.place.told_next(now, node, after),
            // Only semaphores and read-write locks are told this.
            Says::Free { .. } | Says::Freed => {}
        }
        self.look(net, id)
    }

    pub(super) fn has(&self, id: WishId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Whether it is the round of one who waits.
    pub(super) fn knows(&self, round: RoundId) -> bool {
        self.rounds.contains_key(&round)
    }

    /// The nodes that have come back, each for everybody who waits.
    pub(super) fn look_at_nodes(&mut self, net: &Net) -> Vec<WishId> {
        let voting = net.states().map(|state| state == NodeState::Voting);
        let before = std::mem::replace(&mut self.voting, voting.collect());
        let was = |node: usize| before.get(node).copied().unwrap_or(false);
        let now_voting = self.voting.iter().enumerate();
        let back: Vec<usize> = now_voting
            .filter_map(|(node, voting)| (*voting && !was(node)).then_some(node))
            .collect();
        let gone: Vec<usize> = (0..self.voting.len())
            .filter(|node| was(*node) && !self.is_voting(*node))
            .collect();
        if back.is_empty() && gone.is_empty() {
            return Vec::new();
        }
        for one in self.waiting.values_mut() {
            for node in &gone {
                one.place.went(*node);
            }
            for node in &back {
                one.place.came_back(net.now, *node);
            }
        }
        self.ids()
    }

    /// It waits no more; what it may have left on the nodes is taken back. None: it does not wait in line.
    pub(super) fn leave(&mut self, net: &mut Net, id: WishId) -> Option<Box<Waiter>> {
        let mut one = self.take(net, id)?;
        one.take_back(net);
        self.decided
            .extend(one.waiter.counts_no_more(Counts::Joins));
        Some(one.waiter)
    }

    /// All who wait, oldest first.
    pub(super) fn ids(&self) -> Vec<WishId> {
        let mut ids: Vec<WishId> = self.waiting.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// What is kept of them.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.rounds.len() + self.entries.len()
    }

    // ---- inside -----------------------------------------------------------------------------

    fn is_voting(&self, node: usize) -> bool {
        self.voting.get(node).copied().unwrap_or(false)
    }

    fn by_round(&mut self, round: RoundId) -> Option<(WishId, &mut InLine)> {
        let id = *self.rounds.get(&round)?;
        let one = self.waiting.get_mut(&id)?;
        Some((id, one))
    }

    fn take(&mut self, net: &mut Net, id: WishId) -> Option<Box<InLine>> {
        let one = self.waiting.remove(&id)?;
        net.timers.cancel(Key::Wish(id));
        self.rounds.remove(&one.round);
        self.entries.remove(&one.entry);
        Some(one)
    }

    /// One that reaches no majority for long must not keep the others from theirs: it leaves the nodes that know it. When
    /// a majority votes again it takes the same place, under another name, since a RELEASE that is still owed would end
    /// the old one.
    fn stand_aside(&mut self, net: &mut Net, id: WishId) -> Result<(), Error> {
        let Some(one) = self.waiting.get_mut(&id) else {
            return Ok(());
        };
        if one.aside_at().is_none_or(|at| net.now < at) {
            return Ok(());
        }
        let entry = new_owner(net, id)?;
        one.take_back(net);
        self.rounds.remove(&one.round);
        self.entries.remove(&one.entry);
        one.put_aside(net, entry);
        self.rounds.insert(one.round, id);
        self.entries.insert(one.entry.clone(), id);
        Ok(())
    }

    /// Does what is to be done for one, until nothing is.
    pub(super) fn look(&mut self, net: &mut Net, id: WishId) -> Follows {
        let Some(one) = self.waiting.get_mut(&id) else {
            return Follows::Nothing;
        };
        if one.waiter.is_gone() {
            return match self.leave(net, id) {
                Some(waiter) => Follows::Over(waiter, Error::Closed),
                None => Follows::Nothing,
            };
        }
        let is_alone = one.standing.check_alone(net);
        if one.waiter.writer.is_some() && one.cannot_stand(net, is_alone) {
            return match self.leave(net, id) {
                Some(waiter) => Follows::Ask(waiter),
                None => Follows::Nothing,
            };
        }
        if let Err(error) = self.stand_aside(net, id) {
            return match self.leave(net, id) {
                Some(waiter) => Follows::Over(waiter, error),
                None => Follows::Nothing,
            };
        }
        let Some(one) = self.waiting.get_mut(&id) else {
            return Follows::Nothing;
        };
        loop {
            let step = match is_alone {
                true if one.place.only_last => Step::Unheard,
                true => Step::Rest(None),
                false => one.place.next(net.now),
            };
            match step {
                Step::Ask(nodes, seq) => one.ask(net, &nodes, seq),
                Step::GiveWay(given) => one.give_way(net, &given),
                Step::Raise(token, behind) => one.raise(net, token, &behind),
                Step::Again => return self.again(net, id),
                Step::Unheard => {
                    let Some(one) = self.take(net, id) else {
                        return Follows::Nothing;
                    };
                    one.take_back(net);
                    self.lately.freed(one.waiter.wish.name());
                    return Follows::Ask(one.waiter);
                }
                Step::Won(won) => {
                    let Some(mut one) = self.take(net, id) else {
                        return Follows::Nothing;
                    };
                    self.decided
                        .extend(one.waiter.counts_no_more(Counts::Joins));
                    let name = one.waiter.wish.name();
                    match won.is_provisional {
                        true => self.lately.stands(name, net.now),
                        false => self.lately.freed(name),
                    }
                    let good = Good {
                        until: won.end,
                        notice: won.notice,
                        is_provisional: won.is_provisional,
                        is_partial: one.place.held().count() < one.place.asked().count(),
                    };
                    one.waiter.joined();
                    let writer = one.waiter.writer.take();
                    let grant = Box::new(one.grant(net.now, won.token, good));
                    return match writer {
                        Some(writer) => Follows::Turn(writer, grant),
                        None => Follows::Won(grant),
                    };
                }
                Step::Rest(at) => {
                    let mut error = None;
                    if one.place.only_last {
                        error = one.standing.check_cut_short(net, &mut one.waiter);
                    } else {
                        one.waiter.joined();
                        self.decided
                            .extend(one.waiter.counts_no_more(Counts::Joins));
                    }
                    let over = || one.standing.check_over(net, &mut one.waiter);
                    if let Some(error) = error.or_else(over) {
                        return match self.leave(net, id) {
                            Some(waiter) => Follows::Over(waiter, error),
                            None => Follows::Nothing,
                        };
                    }
                    let end = one.waiter.wish.end();
                    let all = [at, end, one.standing.look_at, one.aside_at()];
                    if let Some(at) = all.into_iter().flatten().min() {
                        net.timers.at(Key::Wish(id), at);
                    }
                    return Follows::Nothing;
                }
            }
        }
    }
}

// ---- Joining the queue: after an attempt that was refused, or at once on contended names

impl Line {
    /// True if somebody queued for this lock a moment ago, so that an attempt would be refused.
    pub(in crate::engine::wishes) fn stands(&self, net: &Net, name: &Name) -> bool {
        net.has_a_majority() && self.lately.has(name, net.now)
    }

    /// Takes a place behind an attempt that was refused. `ticket`: the largest that any node has named; `counter`: the largest
    /// counter.
    pub(in crate::engine::wishes) fn enter(
        &mut self,
        net: &mut Net,
        waiter: Box<Waiter>,
        ticket: u64,
        counter: u64,
    ) -> Follows {
        self.last_ticket = self.last_ticket.max(ticket);
        self.lately.stands(waiter.wish.name(), net.now);
        self.take_place(net, waiter, false, counter)
    }

    /// The same without an attempt, if it comes behind all others.
    pub(in crate::engine::wishes) fn enter_last(
        &mut self,
        net: &mut Net,
        waiter: Box<Waiter>,
    ) -> Follows {
        self.take_place(net, waiter, true, 0)
    }

    /// The same behind an attempt for something else, which has named nobody who stands there.
    pub(in crate::engine::wishes) fn enter_unseen(
        &mut self,
        net: &mut Net,
        waiter: Box<Waiter>,
    ) -> Follows {
        self.lately.stands(waiter.wish.name(), net.now);
        self.enter_last(net, waiter)
    }

    fn take_place(
        &mut self,
        net: &mut Net,
        mut waiter: Box<Waiter>,
        only_last: bool,
        counter: u64,
    ) -> Follows {
        let entry = match new_owner(net, waiter.wish.id) {
            Ok(entry) => entry,
            Err(error) => {
                self.decided.extend(waiter.counts_no_more(Counts::Joins));
                return Follows::Over(waiter, error);
            }
        };
        let after = self.last_ticket.saturating_add(1);
        let ticket = net.clock.wall_us().max(after).min(FencingToken::MAX);
        self.last_ticket = ticket;
        let wish = &waiter.wish;
        // A lost push costs a writer more than a waiter for a mutex: it was told of each release before there was a turn.
        let life = match waiter.writer {
            Some(_) => wait_life(net).min(net.fleet().max_ttl()),
            None => net.fleet().max_ttl(),
        };
        let terms = Terms::new(wish.ttl, life, net.round_trip());
        let mut place = Place::new(net.now, ticket, terms, net.total(), net.settings.rules);
        if only_last {
            place = place.only_last();
        }
        let (id, round) = (wish.id, net.new_round());
        self.rounds.insert(round, id);
        self.entries.insert(entry.clone(), id);
        let in_line = InLine {
            waiter,
            round,
            entry,
            place,
            standing: Standing::new(net.total()),
            counter,
        };
        self.waiting.insert(id, Box::new(in_line));
        self.look(net, id)
    }

    /// Others came before one that was to be the last: what some nodes may know of it is taken back, and behind that it takes a
    /// place behind all that were named.
    fn again(&mut self, net: &mut Net, id: WishId) -> Follows {
        let Some(one) = self.take(net, id) else {
            return Follows::Nothing;
        };
        one.take_back(net);
        let counter = one.counter;
        self.take_place(net, one.waiter, false, counter)
    }

    /// The queues of acquisitions that asked for a place and are answered, one for each.
    pub(in crate::engine::wishes) fn decided(&mut self) -> Vec<Target> {
        std::mem::take(&mut self.decided)
    }
}
