//! An acquisition in the queue of a mutex: its requests to the nodes, and the end of its wait.

use super::common::{Common, Outcome, can_push, pushing};
use crate::{
    Silence,
    base::{clock::Tick, owner::Entry},
    engine::{
        acquire::{contended::hash, waiter::Waiter},
        cluster::Cluster,
        grant::Won,
        rollback::wait_life,
        round,
        timers::Key,
    },
    lease::upkeep::Good,
    node::{
        Says,
        answer::Answer,
        request::{self, Target, Verb, Waiting},
        session::Purpose,
    },
    protocol::queue::{
        place::{Place, Position, Step},
        terms::Terms,
        votes,
    },
};

pub(in crate::engine::acquire) struct MutexQueue {
    pub(super) common: Common,
    pub(super) place: Place,
}

impl MutexQueue {
    /// `counter` is the greatest that was seen. `None`: it takes a place only behind all others.
    pub(in crate::engine::acquire) fn new(
        cluster: &mut Cluster,
        waiter: &Waiter,
        owner: Entry,
        ticket: u64,
        counter: Option<u64>,
    ) -> Self {
        // A lost push costs a writer more than a waiter for a mutex, so its life is shorter. (Before there was a turn,
        // a writer was told of each release.)
        let life = match waiter.for_writer {
            Some(_) => wait_life(cluster).min(cluster.fleet().max_ttl()),
            None => cluster.fleet().max_ttl(),
        };
        let terms = Terms::new(waiter.acquisition.request.ttl, life, cluster.round_trip());
        let place = Place::new(
            cluster.now,
            ticket,
            terms,
            cluster.total(),
            cluster.settings.rules,
        );
        let place = match counter {
            Some(_) => place,
            None => place.only_last(),
        };
        Self {
            common: Common::new(cluster, owner, counter.unwrap_or(0)),
            place,
        }
    }

    // ---- answers ----------------------------------------------------------------------------

    /// Handles a node's answer to a JOIN. Returns the ticket that the node named, of the last waiter or of the holder,
    /// or 0.
    pub(super) fn joined(
        &mut self,
        cluster: &Cluster,
        waiter: &Waiter,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> u64 {
        let (now, mut named) = (cluster.now, 0);
        match &answer {
            Ok(Answer::Taken { counter, seq }) => {
                self.common.saw(waiter, *counter);
                let (seq, token) = (*seq, *counter);
                let taken = Position::Taken { seq, token };
                self.place.answered(now, node, taken);
            }
            Ok(Answer::InLine { rank, ahead }) => {
                let holder = ahead.holder.as_deref();
                let owner = self.common.owner.as_str();
                let behind = Position::Behind {
                    rank: *rank,
                    remaining: ahead.remaining,
                    ticket: ahead.ticket,
                    is_first: holder.is_some_and(|other| *other < *owner),
                    is_reserved: ahead.is_reserved,
                    holder: holder.map_or(0, hash),
                };
                self.place.answered(now, node, behind);
            }
            Ok(Answer::Held {
                counter, ticket, ..
            }) => {
                self.common.saw(waiter, *counter);
                named = *ticket;
                self.place.answered(now, node, Position::Refused);
            }
            Ok(_) | Err(_) => self.place.unanswered(now, node),
        }
        self.common.reach.last.set(node, answer);
        named
    }

    /// Handles a node's answer to a RAISE.
    pub(super) fn raised(
        &mut self,
        cluster: &Cluster,
        waiter: &Waiter,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        match answer {
            Ok(Answer::Raised(counter)) => {
                self.common.saw(waiter, counter);
                self.place.raised(cluster.now, node, Some(counter));
            }
            Ok(_) => self.place.raised(cluster.now, node, None),
            Err(_) => {}
        }
    }

    pub(super) fn pushed(&mut self, cluster: &Cluster, waiter: &Waiter, node: usize, says: &Says) {
        match says {
            Says::Granted { seq, token, .. } => {
                self.common.saw(waiter, *token);
                self.place.handed(cluster.now, node, *seq, *token);
            }
            Says::Called => self.place.called(cluster.now, node),
            Says::Next { after } => self.place.told_next(cluster.now, node, *after),
            // Only semaphores and read-write locks get these pushes.
            Says::Free { .. } | Says::Freed => {}
        }
    }

    // ---- what follows -----------------------------------------------------------------------

    /// Does everything that can be done now.
    pub(super) fn advance(&mut self, cluster: &mut Cluster, waiter: &mut Waiter) -> Outcome {
        let is_alone = self.common.reach.check_alone(cluster);
        let is_aside = self.aside_at().is_some_and(|at| at <= cluster.now);
        if waiter.for_writer.is_some() {
            let is_refused = !is_alone && self.common.reach.is_unheard();
            if is_refused || is_aside {
                return Outcome::NoTurn;
            }
        }
        // A waiter that does not reach a majority for long must not hold up the others. It leaves the nodes that know
        // it.
        if is_aside {
            return Outcome::NewOwner;
        }
        loop {
            let step = match is_alone {
                true if self.place.only_last => Step::Unheard,
                true => Step::Rest(None),
                false => self.place.next(cluster.now),
            };
            match step {
                Step::Ask(nodes, seq) => self.ask(cluster, waiter, &nodes, seq),
                Step::GiveWay(given) => self.give_way(cluster, waiter, &given),
                Step::Raise(token, behind) => self.raise(cluster, waiter, token, &behind),
                Step::Again => return Outcome::NewPlace,
                Step::Unheard => return Outcome::Attempt,
                Step::Won(won) => {
                    return Outcome::Won(Box::new(self.won(cluster, waiter, &won)));
                }
                Step::Rest(at) => return self.wait(cluster, waiter, at),
            }
        }
    }

    /// Waits until this time, or until something else is due.
    fn wait(&mut self, cluster: &mut Cluster, waiter: &mut Waiter, until: Option<Tick>) -> Outcome {
        let reach = &mut self.common.reach;
        let mut error = None;
        if self.place.only_last {
            error = reach.check_cut_short(cluster, waiter);
        } else {
            waiter.patience.joined();
        }
        if let Some(error) = error.or_else(|| reach.check_over(cluster, waiter)) {
            return Outcome::Over(error);
        }
        let look_at = reach.look_at;
        let all = [until, waiter.acquisition.end(), look_at, self.aside_at()];
        if let Some(at) = all.into_iter().flatten().min() {
            cluster
                .timers
                .at(Key::Acquisition(waiter.acquisition.id), at);
        }
        Outcome::Waits
    }

    /// It was rolled back, and joins the queue again under this owner. If no majority votes, it joins when one votes
    /// again. If a majority votes but some of those nodes refuse this waiter, it joins after a term, in which others
    /// are served.
    pub(super) fn set_owner(&mut self, cluster: &mut Cluster, owner: Entry) {
        let again_at = match cluster.has_a_majority() {
            true => cluster.now.plus(self.place.terms.term()),
            false => cluster.now,
        };
        self.common.set_owner(cluster, owner);
        self.place = self.place.anew(again_at);
    }

    /// The time at which this waiter leaves the nodes that know it. `None` while a majority hears it.
    fn aside_at(&self) -> Option<Tick> {
        self.place.asked().next()?;
        self.common.reach.aside_at(self.place.terms.term())
    }

    // ---- requests ---------------------------------------------------------------------------

    fn registration(
        &self,
        cluster: &Cluster,
        waiter: &Waiter,
        seq: u64,
        can_push: bool,
    ) -> Waiting {
        let terms = &self.place.terms;
        // A waiter that cannot be called asks from time to time. The node keeps the lock for it for that long.
        let claim = match can_push {
            true => terms.claim(),
            false => terms.claim().max(terms.term() / 2),
        };
        let channel = match can_push {
            true => cluster.settings.channel.clone(),
            false => "".into(),
        };
        Waiting::Queue(request::Place {
            seq,
            ticket: self.place.ticket,
            only_last: self.place.only_last,
            term: terms.term(),
            lock_delay: waiter.acquisition.request.lock_delay,
            life: terms.life,
            claim,
            channel,
        })
    }

    fn ask(&mut self, cluster: &mut Cluster, waiter: &Waiter, nodes: &[usize], seq: u64) {
        // All nodes get the same p, so that tokens that are granted at once are equal.
        let (ttl, floor) = (
            waiter.acquisition.node_ttl(),
            cluster.floor(self.common.counter),
        );
        let tag = Purpose::Join.of(self.common.round);
        for can_push in [true, false] {
            let some = pushing(cluster, nodes, can_push);
            if some.is_empty() {
                continue;
            }
            let wait = self.registration(cluster, waiter, seq, can_push);
            let join = Verb::Acquire { ttl, floor, wait };
            let operation = target(waiter).operation(&self.common.owner, join);
            for node in &some {
                self.place.set_can_push(*node, can_push);
            }
            for (node, silence) in round::ask(cluster, tag, &operation, some) {
                self.place.mark_unsent(node);
                self.common.reach.last.set(node, Err(silence));
            }
        }
    }

    fn give_way(&mut self, cluster: &mut Cluster, waiter: &Waiter, given: &[(usize, u64)]) {
        let floor = cluster.floor(self.common.counter);
        let tag = Purpose::GiveWay.of(self.common.round);
        for (node, seq) in given {
            let wait = self.registration(cluster, waiter, *seq, can_push(cluster, *node));
            let give_way = Verb::Yield { floor, wait };
            let operation = target(waiter).operation(&self.common.owner, give_way);
            for (node, _) in round::ask(cluster, tag, &operation, [*node]) {
                self.place.unreached(node);
            }
        }
    }

    fn raise(&self, cluster: &mut Cluster, waiter: &Waiter, token: u64, behind: &[(usize, u64)]) {
        let tag = Purpose::Raise.of(self.common.round);
        for (node, seq) in behind {
            let raise = Verb::Raise { seq: *seq, token };
            let operation = target(waiter).operation(&self.common.owner, raise);
            round::ask(cluster, tag, &operation, [*node]);
        }
    }

    pub(super) fn roll_back(&self, cluster: &mut Cluster, waiter: &Waiter) {
        let (asked, granted) = (self.place.asked(), self.place.held());
        let granted = granted.map(|(node, _)| node);
        let life = waiter.acquisition.node_ttl().max(self.place.terms.life);
        let target = target(waiter);
        self.common
            .roll_back(cluster, &target, asked, granted, life);
    }

    fn won(&self, cluster: &Cluster, waiter: &Waiter, won: &votes::Won) -> Won {
        debug_assert!(won.end > cluster.now, "its validity is over");
        Won {
            stands_for: waiter.acquisition.node_ttl().max(self.place.terms.life),
            target: target(waiter),
            round: self.common.round,
            token: won.token,
            since: cluster.now,
            good: Good {
                until: won.end,
                notice: won.notice,
                is_provisional: won.is_provisional,
                is_partial: self.place.held().count() < self.place.asked().count(),
            },
            asked: self.place.asked().collect(),
            held: self.place.held().collect(),
            raising: Vec::new(),
            lacking: Vec::new(),
            limit: None,
            entry: self.common.owner.clone(),
            waited: None,
        }
    }
}

fn target(waiter: &Waiter) -> Target {
    Target::mutex(waiter.acquisition.name().clone())
}
