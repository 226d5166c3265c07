//! One who waits in line: what it puts to the nodes, and when its wait is over.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use super::last::Last;
use crate::{
    Error, Report,
    claim::{Ask, Place as Registration},
    clock::Tick,
    engine::{
        grant::Grant,
        net::Net,
        patience::Failure,
        rollback::roll_back,
        round::{self, Request},
        wishes::waiter::Waiter,
    },
    lease::upkeep::Good,
    line::place::Place,
    node::{
        session::{RoundId, Session},
        status::NodeState,
    },
    owner::Entry,
    rules::Rule,
};

/// While there is no majority it is looked after this often.
const LOOK: Duration = Duration::from_millis(500);
/// One who waits in line.
pub(super) struct InLine {
    pub(super) waiter: Box<Waiter>,
    pub(super) round: RoundId,
    pub(super) entry: Entry,
    pub(super) place: Place,
    /// What each node has said last.
    pub(super) last: Last,
    /// The largest counter in any answer.
    pub(super) counter: u64,
    /// Since when no majority hears it, while none does.
    pub(super) alone_since: Option<Tick>,
    /// When to look next whether there is one.
    pub(super) look_at: Option<Tick>,
}

impl InLine {
    pub(super) fn saw(&mut self, counter: u64) {
        self.counter = self.counter.max(counter);
        self.waiter.wish.seen.fetch_max(counter, Relaxed);
    }

    /// Whether no majority votes. It asks nobody then: what a minority has handed to it shall end.
    pub(super) fn is_alone(&mut self, net: &Net) -> bool {
        let has_a_majority = net.has_a_majority();
        if has_a_majority && self.is_heard(net) || !net.holds(Rule::StandAside) {
            self.alone_since = None;
            return false;
        }
        self.alone_since.get_or_insert(net.now);
        !has_a_majority
    }

    /// Whether Q of those that vote have not refused it.
    fn is_heard(&self, net: &Net) -> bool {
        if !self.last.is_any_silent() {
            return true;
        }
        let states = net.states().enumerate();
        let hear = states
            .filter(|(node, state)| *state == NodeState::Voting && !self.last.is_silent(*node));
        hear.count() >= net.needed
    }

    /// It has left all nodes, and is to be put in line again under this name: when a majority votes again; or after a term, in
    /// which others are served, where one votes of which some refuse it.
    pub(super) fn put_aside(&mut self, net: &mut Net, entry: Entry) {
        let again_at = match net.has_a_majority() {
            true => net.now.plus(self.place.terms.term()),
            false => net.now,
        };
        (self.round, self.entry) = (net.new_round(), entry);
        self.place = self.place.anew(again_at);
        self.last = Last::new(net.total());
        self.alone_since = None;
    }

    /// Until when nodes may know it, while it is alone. (For a moment it is when all connections were cut: the nodes are
    /// not back at once.)
    pub(super) fn aside_at(&self) -> Option<Tick> {
        let since = self.alone_since?;
        self.place.asked().next()?;
        Some(since.plus(self.place.terms.term() / 2))
    }

    /// As the nodes are told of us.
    fn registration(&self, net: &Net, seq: u64, hears: bool) -> Registration {
        let terms = &self.place.terms;
        // Who cannot be called asks from time to time: it is kept for that long.
        let claim = match hears {
            true => terms.claim(),
            false => terms.claim().max(terms.term() / 2),
        };
        let channel = match hears {
            true => net.settings.channel.clone(),
            false => "".into(),
        };
        Registration {
            entry: self.entry.clone(),
            seq,
            ticket: self.place.ticket,
            term: terms.term(),
            lock_delay: self.waiter.wish.lock_delay,
            life: terms.life,
            claim,
            channel,
        }
    }

    pub(super) fn ask(&mut self, net: &mut Net, nodes: &[usize], seq: u64) {
        let ask = Ask {
            ttl: self.waiter.wish.node_ttl(),
            floor: net.floor(self.counter),
            max_ttl: net.fleet().max_ttl(),
        };
        let tag = Request::Join.of(self.round);
        for hears in [true, false] {
            let some = nodes.iter().copied();
            let some: Vec<usize> = some
                .filter(|node| self.hears(net, *node) == hears)
                .collect();
            if some.is_empty() {
                continue;
            }
            let registration = self.registration(net, seq, hears);
            let operation = self.waiter.wish.claim.join(registration, ask);
            for node in &some {
                self.place.hears(*node, hears);
            }
            for (node, silence) in round::ask(net, tag, &operation, some) {
                self.place.refused(node);
                self.last.set(node, Err(silence));
            }
        }
    }

    fn hears(&self, net: &Net, node: usize) -> bool {
        let session = net.sessions().get(node);
        !net.settings.channel.is_empty() && session.is_some_and(Session::hears)
    }

    pub(super) fn give_way(&mut self, net: &mut Net, given: &[(usize, u64)]) {
        let (floor, max_ttl) = (net.floor(self.counter), net.fleet().max_ttl());
        let tag = Request::GiveWay.of(self.round);
        for (node, seq) in given {
            let registration = self.registration(net, *seq, self.hears(net, *node));
            let operation = self
                .waiter
                .wish
                .claim
                .give_way(registration, floor, max_ttl);
            for (node, _) in round::ask(net, tag, &operation, [*node]) {
                self.place.unreached(node);
            }
        }
    }

    pub(super) fn raise(&mut self, net: &mut Net, token: u64, behind: &[(usize, u64)]) {
        let max_ttl = net.fleet().max_ttl();
        let tag = Request::Raise.of(self.round);
        for (node, seq) in behind {
            let claim = &self.waiter.wish.claim;
            let operation = claim.raise(&self.entry, *seq, token, max_ttl);
            round::ask(net, tag, &operation, [*node]);
        }
    }

    pub(super) fn grant(self, now: Tick, token: u64, good: Good) -> Grant {
        Grant {
            stands_for: self.waiter.wish.node_ttl().max(self.place.terms.life),
            wish: self.waiter.wish,
            round: self.round,
            token,
            since: now,
            good,
            asked: self.place.asked().collect(),
            held: self.place.held().collect(),
            raising: Vec::new(),
            entry: self.entry,
        }
    }

    pub(super) fn take_back(&self, net: &mut Net) {
        let asked: Vec<usize> = self.place.asked().collect();
        let granted = self.place.held().map(|(node, _)| node);
        let (wish, seen) = (&self.waiter.wish, self.counter);
        let kept = (seen, wish.node_ttl().max(self.place.terms.life));
        roll_back(
            net,
            &wish.claim,
            &self.entry,
            asked.into_iter(),
            granted,
            kept,
        );
    }

    /// Why it waits no more: its time is over, or there has been no majority for too long.
    pub(super) fn is_over(&mut self, net: &mut Net) -> Option<Error> {
        let of = |wanted: fn(&NodeState) -> bool| net.states().filter(wanted).count();
        let voting = of(|state| *state == NodeState::Voting);
        if net.has_a_majority() {
            self.look_at = None;
            self.waiter.patience.has_a_majority();
            let ends = self.waiter.patience.is_over(net.now);
            return ends.then(|| Error::Held(self.report(net, self.last.free_in())));
        }
        let quarantined = of(|state| matches!(state, NodeState::Quarantined(_)));
        let report = self.report(net, Some(net.try_again(net.needed)));
        let (failure, error) = match voting + quarantined >= net.needed {
            true => (Failure::Quarantined, Error::Quarantined(report)),
            false => (Failure::NoQuorum, Error::NoQuorum(report)),
        };
        self.look_at = Some(net.now.plus(LOOK));
        let goes_on = self.waiter.goes_on(net, failure, &error);
        (!goes_on).then_some(error)
    }

    /// The evidence: what each node has said last, or why it says nothing.
    fn report(&self, net: &Net, retry_after: Option<Duration>) -> Report {
        let mut answers = self.last.answers();
        for (node, state) in net.states().enumerate() {
            if let Some(silence) = state.silence() {
                answers.set(node, Err(silence));
            }
        }
        let name = self.waiter.wish.name().as_str();
        answers.report(name, net.needed, &net.settings.nodes, retry_after)
    }
}
