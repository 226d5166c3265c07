//! One who waits in line: what it puts to the nodes, and when its wait is over.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    base::{clock::Tick, owner::Entry},
    engine::{
        grant::Grant,
        net::Net,
        rollback::roll_back,
        round,
        wishes::{standing::Standing, waiter::Waiter},
    },
    lease::upkeep::Good,
    node::{
        request::{self, Target, Verb, Waiting},
        session::{Purpose, RoundId, Session},
    },
    protocol::queue::place::Place,
};

/// One who waits in line.
pub(super) struct InLine {
    pub(super) waiter: Box<Waiter>,
    pub(super) round: RoundId,
    pub(super) entry: Entry,
    pub(super) place: Place,
    pub(super) standing: Standing,
    /// The largest counter in any answer.
    pub(super) counter: u64,
}

impl InLine {
    pub(super) fn saw(&mut self, counter: u64) {
        self.counter = self.counter.max(counter);
        self.waiter.wish.seen.fetch_max(counter, Relaxed);
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
        self.standing = Standing::new(net.total());
    }

    /// Until when nodes may know it, while it is alone.
    pub(super) fn aside_at(&self) -> Option<Tick> {
        self.place.asked().next()?;
        self.standing.aside_at(self.place.terms.term())
    }

    /// A majority votes and too few of it register it, or there has been none for long. A writer asks for its lock without its turn
    /// then.
    pub(super) fn cannot_stand(&self, net: &Net, is_alone: bool) -> bool {
        let is_refused = !is_alone && self.standing.is_unheard();
        is_refused || self.aside_at().is_some_and(|at| at <= net.now)
    }

    fn target(&self) -> Target {
        Target::mutex(self.waiter.wish.name().clone())
    }

    /// As the nodes are told of us.
    fn registration(&self, net: &Net, seq: u64, hears: bool) -> Waiting {
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
        Waiting::Queue(request::Place {
            seq,
            ticket: self.place.ticket,
            only_last: self.place.only_last,
            term: terms.term(),
            lock_delay: self.waiter.wish.lock_delay,
            life: terms.life,
            claim,
            channel,
        })
    }

    pub(super) fn ask(&mut self, net: &mut Net, nodes: &[usize], seq: u64) {
        // One p for all nodes: tokens that are granted at once are equal then.
        let (ttl, floor) = (self.waiter.wish.node_ttl(), net.floor(self.counter));
        let tag = Purpose::Join.of(self.round);
        for hears in [true, false] {
            let some = nodes.iter().copied();
            let some: Vec<usize> = some
                .filter(|node| self.hears(net, *node) == hears)
                .collect();
            if some.is_empty() {
                continue;
            }
            let wait = self.registration(net, seq, hears);
            let join = Verb::Acquire { ttl, floor, wait };
            let operation = self.target().ask(&self.entry, join);
            for node in &some {
                self.place.hears(*node, hears);
            }
            for (node, silence) in round::ask(net, tag, &operation, some) {
                self.place.refused(node);
                self.standing.last.set(node, Err(silence));
            }
        }
    }

    fn hears(&self, net: &Net, node: usize) -> bool {
        let session = net.sessions().get(node);
        !net.settings.channel.is_empty() && session.is_some_and(Session::hears)
    }

    pub(super) fn give_way(&mut self, net: &mut Net, given: &[(usize, u64)]) {
        let floor = net.floor(self.counter);
        let tag = Purpose::GiveWay.of(self.round);
        for (node, seq) in given {
            let wait = self.registration(net, *seq, self.hears(net, *node));
            let give_way = Verb::Yield { floor, wait };
            let operation = self.target().ask(&self.entry, give_way);
            for (node, _) in round::ask(net, tag, &operation, [*node]) {
                self.place.unreached(node);
            }
        }
    }

    pub(super) fn raise(&mut self, net: &mut Net, token: u64, behind: &[(usize, u64)]) {
        let tag = Purpose::Raise.of(self.round);
        for (node, seq) in behind {
            let raise = Verb::Raise { seq: *seq, token };
            let operation = self.target().ask(&self.entry, raise);
            round::ask(net, tag, &operation, [*node]);
        }
    }

    pub(super) fn grant(self, now: Tick, token: u64, good: Good) -> Grant {
        Grant {
            stands_for: self.waiter.wish.node_ttl().max(self.place.terms.life),
            target: self.target(),
            wish: self.waiter.wish,
            round: self.round,
            token,
            since: now,
            good,
            asked: self.place.asked().collect(),
            held: self.place.held().collect(),
            raising: Vec::new(),
            lacking: Vec::new(),
            entry: self.entry,
            waited: None,
        }
    }

    pub(super) fn take_back(&self, net: &mut Net) {
        let asked: Vec<usize> = self.place.asked().collect();
        let granted = self.place.held().map(|(node, _)| node);
        let ttl = self.waiter.wish.node_ttl().max(self.place.terms.life);
        let release = net.release(self.counter, None);
        let release = self.target().ask(&self.entry, release);
        roll_back(net, &release, ttl, asked.into_iter(), granted);
    }
}
