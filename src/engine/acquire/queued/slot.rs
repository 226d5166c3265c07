//! A search for a slot of a semaphore: its requests to the nodes, and the end of its wait.

use std::time::Duration;

use super::common::{Common, Outcome, can_push, pushing};
use crate::{
    Error, LimitConflict, Silence,
    base::{clock::Tick, limit::Agreed, owner::Entry, rules::Rule},
    engine::{
        acquire::{
            patience::Past,
            waiter::{After, Waiter},
        },
        cluster::{Cluster, SHORTEST_PAUSE},
        event::Wait,
        grant::Won,
        round,
        timers::Key,
        wants::{Slot, too_many},
    },
    lease::upkeep::Good,
    node::{
        Operation, Says,
        answer::Answer,
        request::{self, Mode, Question, Target, Verb, Waiting},
        session::Purpose,
        status::NodeState,
    },
    protocol::{
        ballot::{acquire::Failure, validity::notice},
        queue::terms::Terms,
        slots::{
            seat::Seat,
            words::{self, Ask, Step},
        },
    },
};

/// The fleet forgets an unused semaphore after this many times `max_ttl`.
const FORGOTTEN_AFTER: u32 = 4;

pub(in crate::engine::acquire) struct SlotSearch {
    pub(super) common: Common,
    slot: Slot,
    pub(super) seat: Seat,
    began_at: Tick,
    /// The time at which it begins again.
    rests_until: Option<Tick>,
    /// A majority has answered, so it is in the queue.
    pub(super) is_in_line: bool,
    /// Nodes that were not asked, because they have not been watched for long enough for this kind of slot.
    young: Vec<usize>,
}

impl SlotSearch {
    pub(in crate::engine::acquire) fn new(
        cluster: &mut Cluster,
        waiter: &Waiter,
        slot: Slot,
        owner: Entry,
        ticket: u64,
    ) -> Self {
        Self {
            seat: seat(cluster, waiter, &slot.agreed, ticket),
            common: Common::new(cluster, owner, 0),
            slot,
            began_at: cluster.now,
            rests_until: None,
            is_in_line: false,
            young: Vec::new(),
        }
    }

    /// Begins to search. Nodes that do not vote are not asked. If too few nodes vote, no node is asked, so nothing has
    /// to be taken back. (A search that is in the queue waits until enough nodes vote, and then asks the others.)
    pub(in crate::engine::acquire) fn begin(&mut self, cluster: &Cluster, waiter: &mut Waiter) {
        waiter.patience.attempt();
        let enough = cluster.has_a_majority();
        for (node, state) in cluster.states().enumerate() {
            if let Some(silence) = state.silence() {
                self.common.reach.last.set(node, Err(silence));
                self.seat.went(node);
            } else if !enough && !self.is_in_line {
                self.seat.went(node);
            }
        }
    }

    fn too_young(&self, cluster: &Cluster, node: usize) -> Option<Duration> {
        cluster.too_young(node, self.slot.pool.family.history())
    }

    /// Asks the young nodes that have been watched for long enough by now. Sets a timer for the others.
    fn look_at_the_young(&mut self, cluster: &mut Cluster, waiter: &Waiter) {
        for node in std::mem::take(&mut self.young) {
            let votes = cluster.states().nth(node) == Some(NodeState::Voting);
            match self.too_young(cluster, node) {
                Some(left) if votes => {
                    let at = cluster.now.plus(left);
                    cluster
                        .timers
                        .at(Key::Acquisition(waiter.acquisition.id), at);
                    self.young.push(node);
                }
                _ if votes => self.seat.came_back(cluster.now, node),
                // It is looked at when it votes again.
                _ => {}
            }
        }
    }

    /// The error for units of a rate limit while too few nodes have been watched for long enough, but enough will be.
    pub(in crate::engine::acquire) fn needs_history(
        &self,
        cluster: &Cluster,
        waiter: &Waiter,
    ) -> Option<Error> {
        let name = waiter.acquisition.name().as_str();
        cluster.needs_history(name, self.slot.pool.family.history())
    }

    // ---- answers ----------------------------------------------------------------------------

    /// Handles a node's answer to a TAKE.
    pub(super) fn took(
        &mut self,
        cluster: &Cluster,
        waiter: &Waiter,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        self.common.reach.last.set(node, answer.clone());
        match answer {
            Ok(Answer::Slots(slots)) => {
                self.common
                    .saw(waiter, slots.mine.map_or(0, |(_, counter)| counter));
                self.seat.answered(cluster.now, node, slots);
            }
            Ok(Answer::Conflict(limit)) => self.seat.conflicts(node, limit),
            Ok(_) | Err(_) => self.seat.unanswered(cluster.now, node),
        }
    }

    /// Handles a node's answer to a YIELD.
    pub(super) fn yielded(
        &mut self,
        cluster: &Cluster,
        node: usize,
        answer: &Result<Answer, Silence>,
    ) {
        match answer {
            Ok(Answer::Yielded) => self.seat.yielded(cluster.now, node),
            _ => self.seat.unanswered(cluster.now, node),
        }
    }

    /// Handles a node's answer to a RAISE.
    pub(super) fn raised(
        &mut self,
        cluster: &Cluster,
        node: usize,
        answer: &Result<Answer, Silence>,
    ) {
        let counter = match answer {
            Ok(Answer::Raised(counter)) => Some(*counter),
            _ => None,
        };
        self.seat.raised(cluster.now, node, counter);
    }

    pub(super) fn pushed(&mut self, cluster: &Cluster, node: usize, says: &Says) {
        match says {
            Says::Free { slot } => self.seat.slot_freed(*slot),
            Says::Called => self.seat.ask(cluster.now, node, Duration::ZERO),
            Says::Next { after } => self.seat.told_next(cluster.now, node, *after),
            // Only locks get these pushes.
            Says::Granted { .. } | Says::Freed => {}
        }
    }

    /// The answers are due: nodes that are late are not waited for any more.
    pub(super) fn answers_due(&mut self, cluster: &mut Cluster) {
        let outstanding: Vec<usize> = self.seat.awaited().collect();
        let outstanding = outstanding.into_iter().map(|node| (node, None));
        for (node, silence) in round::due(cluster, self.common.tag(), outstanding) {
            self.answered_late(node, silence);
        }
    }

    fn answered_late(&mut self, node: usize, silence: Silence) {
        self.common.reach.last.set(node, Err(silence));
        self.seat.answered_late(node);
    }

    // ---- what follows -----------------------------------------------------------------------

    /// Does everything that can be done now.
    pub(super) fn advance(&mut self, cluster: &mut Cluster, waiter: &mut Waiter) -> Outcome {
        if self.check_begins_anew(cluster) {
            return Outcome::NewOwner;
        }
        self.look_at_the_young(cluster, waiter);
        let rests =
            self.rests_until.is_some() || self.is_in_line && self.common.reach.check_alone(cluster);
        loop {
            let step = match rests {
                true => Step::Rest(None),
                false => self.next(cluster, waiter),
            };
            // Several slots at once are not possible if the limit has become smaller than their number.
            let (limit, of) = (self.seat.limit.slots, self.slot.of);
            if of > limit {
                return Outcome::Over(too_many(of, limit));
            }
            match step {
                Step::Take(nodes, ask) => self.ask(cluster, waiter, &nodes, ask),
                Step::Yield(nodes) => self.give_back(cluster, waiter, &nodes),
                Step::Raise(slot, token, nodes) => self.raise(cluster, slot, token, &nodes),
                Step::Won(won) => return Outcome::Won(Box::new(self.won(cluster, waiter, won))),
                Step::Refused => return Outcome::Over(self.held(cluster, waiter)),
                Step::NoQuorum => return self.lacks_a_quorum(cluster, waiter),
                Step::Conflict(found) => {
                    let name = waiter.acquisition.name();
                    return Outcome::Over(Error::LimitConflict(LimitConflict {
                        asked: self.slot.agreed.made(),
                        found: found.slots,
                        report: self.common.reach.report(cluster, name, None),
                    }));
                }
                Step::Rest(at) => return self.wait(cluster, waiter, at),
            }
        }
    }

    fn next(&mut self, cluster: &mut Cluster, waiter: &mut Waiter) -> Step {
        let end = waiter.acquisition.attempt_end();
        if end.is_some_and(|end| end <= cluster.now) && !self.seat.was_answered() {
            // The wait has ended by the caller's own clock, so this needs no evidence from the nodes.
            let awaited: Vec<usize> = self.seat.awaited().collect();
            for node in awaited {
                self.answered_late(node, Silence::WaitOver);
            }
        }
        let chance = &mut cluster.chance;
        let step = self.seat.next(cluster.now, &mut |most| chance.up_to(most));
        if self.seat.was_answered() && waits(waiter) && !self.is_in_line {
            self.is_in_line = true;
            waiter.patience.joined();
        }
        if let Some(limit) = self.seat.told() {
            self.slot
                .agreed
                .set(limit, cluster.now, cluster.settings.rules);
        }
        step
    }

    // ---- requests ---------------------------------------------------------------------------

    /// Asks these nodes, except those that are too young. No other function sends a request that takes a slot.
    fn ask(&mut self, cluster: &mut Cluster, waiter: &Waiter, nodes: &[usize], ask: Ask) {
        let (mut old, mut young) = (Vec::with_capacity(nodes.len()), Vec::new());
        for node in nodes {
            match self.too_young(cluster, *node) {
                None => old.push(*node),
                Some(left) => young.push((*node, left)),
            }
        }
        for (node, left) in young {
            self.unasked(node, Silence::Quarantined(left));
            if !self.young.contains(&node) {
                self.young.push(node);
            }
            let at = cluster.now.plus(left);
            cluster
                .timers
                .at(Key::Acquisition(waiter.acquisition.id), at);
        }
        let (mode, slot, floor) = match ask {
            Ask::Pick(want) => (Mode::Pick, Some(want), None),
            Ask::Move { want, floor } => (Mode::Move, Some(want), floor),
            Ask::Stay => (Mode::Move, None, None),
        };
        let floor = match cluster.rule_holds(Rule::MoveMints) {
            true => floor,
            false => floor.map(|floor| floor.saturating_sub(1)),
        };
        let (ttl, floor) = (
            waiter.acquisition.node_ttl(),
            floor.unwrap_or_else(|| cluster.floor(self.common.counter)),
        );
        let target = self.target(slot);
        for can_push in [true, false] {
            let some = pushing(cluster, &old, can_push);
            if some.is_empty() {
                continue;
            }
            let wait = self.registration(cluster, waiter, mode, can_push);
            let operation =
                target.operation(&self.common.owner, Verb::Acquire { ttl, floor, wait });
            for node in &some {
                self.seat.set_can_push(*node, can_push);
            }
            for (node, silence) in round::ask(cluster, self.common.tag(), &operation, some) {
                self.unasked(node, silence);
            }
        }
        if ask != Ask::Stay {
            round::arm(cluster, self.common.tag());
        }
    }

    fn unasked(&mut self, node: usize, silence: Silence) {
        self.seat.mark_unsent(node);
        self.common.reach.last.set(node, Err(silence));
    }

    fn give_back(&mut self, cluster: &mut Cluster, waiter: &Waiter, nodes: &[usize]) {
        let tag = Purpose::GiveBack.of(self.common.round);
        for node in nodes {
            let wait = self.registration(cluster, waiter, Mode::Move, can_push(cluster, *node));
            let give_back = Verb::Yield { floor: 0, wait };
            let operation = self.target(None).operation(&self.common.owner, give_back);
            for (node, silence) in round::ask(cluster, tag, &operation, [*node]) {
                self.unasked(node, silence);
            }
        }
    }

    fn raise(&mut self, cluster: &mut Cluster, slot: u32, token: u64, nodes: &[usize]) {
        let tag = Purpose::Raise.of(self.common.round);
        let raise = Verb::Raise { seq: 0, token };
        let operation = self.target(Some(slot)).operation(&self.common.owner, raise);
        for (node, _) in round::ask(cluster, tag, &operation, nodes.iter().copied()) {
            self.seat.raised(cluster.now, node, None);
        }
        round::arm(cluster, self.common.tag());
    }

    fn registration(
        &self,
        cluster: &Cluster,
        waiter: &Waiter,
        mode: Mode,
        can_push: bool,
    ) -> Waiting {
        let life = match waits(waiter) {
            true => self.seat.terms.life,
            false => Duration::ZERO,
        };
        let channel = match can_push {
            true => cluster.settings.channel.clone(),
            false => "".into(),
        };
        Waiting::Slot(request::Seat {
            limit: self.seat.limit,
            mode,
            ticket: self.seat.ticket,
            term: self.seat.terms.term(),
            life,
            channel,
        })
    }

    fn target(&self, slot: Option<u32>) -> Target {
        Target::Slot(self.slot.pool.clone(), slot)
    }

    /// Takes back what else stands on the nodes. The first holder of a slot sends the limit to all nodes.
    fn won(&self, cluster: &mut Cluster, waiter: &Waiter, won: words::Won) -> Won {
        debug_assert!(won.end > cluster.now, "its validity is over");
        debug_assert!(won.held.len() >= cluster.needed, "won by a minority");
        let stands_for = self.stands_for(waiter);
        let until = cluster.now.plus(stands_for);
        if !won.others.is_empty() {
            let leave = Verb::leave_all_but(won.slot);
            let operation = self
                .target(Some(won.slot))
                .operation(&self.common.owner, leave);
            round::release(cluster, None, &operation, won.others.iter().copied(), until);
        }
        let mut limit = self.seat.limit;
        if limit.version == 0 && cluster.rule_holds(Rule::SettleLimit) {
            limit.version = 1;
            let operation = Operation::new(Question::Resize(self.slot.pool.clone(), limit));
            let tag = Purpose::SettleLimit.of(cluster.new_round());
            round::ask(cluster, tag, &operation, 0..cluster.total());
            self.slot.agreed.changed(limit, cluster.now);
        }
        let ttl = waiter.acquisition.request.ttl;
        let good = Good {
            until: won.end,
            notice: notice(ttl),
            // The answers to the first requests are old by now.
            is_provisional: won.end.since(cluster.now) < ttl / 2,
            is_partial: false,
        };
        Won {
            stands_for,
            target: self.target(Some(won.slot)),
            round: self.common.round,
            token: won.token,
            since: won.since,
            good,
            asked: self.seat.asked().collect(),
            held: won.held,
            raising: Vec::new(),
            lacking: won.others,
            limit: Some(limit),
            entry: self.common.owner.clone(),
            waited: None,
        }
    }

    /// The longest time for which a part of it may stand on a node.
    fn stands_for(&self, waiter: &Waiter) -> Duration {
        waiter.acquisition.node_ttl().max(self.seat.terms.life)
    }

    pub(super) fn roll_back(&self, cluster: &mut Cluster, waiter: &Waiter) {
        let (asked, granted) = (self.seat.asked(), self.seat.held());
        let granted = granted.map(|(node, _)| node);
        let (target, life) = (self.target(None), self.stands_for(waiter));
        self.common
            .roll_back(cluster, &target, asked, granted, life);
    }
}

/// Returns true if it takes a place in the queue.
fn waits(waiter: &Waiter) -> bool {
    !matches!(
        waiter.acquisition.request.wait,
        Wait::Never | Wait::For(Some(Duration::ZERO))
    )
}

fn seat(cluster: &Cluster, waiter: &Waiter, agreed: &Agreed, ticket: u64) -> Seat {
    let max_ttl = cluster.fleet().max_ttl();
    let terms = Terms::new(
        waiter.acquisition.request.ttl,
        max_ttl,
        cluster.round_trip(),
    );
    let limit = agreed.at(cluster.now, max_ttl * FORGOTTEN_AFTER);
    let seat = Seat::new(
        ticket,
        terms,
        limit,
        cluster.total(),
        cluster.settings.rules,
    );
    seat.waits(waits(waiter)).has_met(agreed.has_met())
}

// ---- The end of a search, its rest, and its new beginning

impl SlotSearch {
    /// Returns true if it has to leave the nodes that know it, and begin again.
    fn check_begins_anew(&mut self, cluster: &Cluster) -> bool {
        if let Some(until) = self.rests_until {
            return cluster.now >= until;
        }
        // This comes first, so that a majority that is back is seen.
        if self.is_in_line {
            self.common.reach.check_alone(cluster);
        }
        self.aside_at().is_some_and(|at| cluster.now >= at)
    }

    fn aside_at(&self) -> Option<Tick> {
        self.seat.asked().next()?;
        self.common.reach.aside_at(self.seat.terms.term())
    }

    /// It was rolled back, and begins again under this owner.
    pub(super) fn set_owner(&mut self, cluster: &mut Cluster, waiter: &mut Waiter, owner: Entry) {
        let was_alone = self.rests_until.take().is_none();
        self.common.set_owner(cluster, owner);
        self.seat = match self.is_in_line {
            true => self.seat.anew(cluster.now),
            false => seat(cluster, waiter, &self.slot.agreed, self.seat.ticket),
        };
        self.began_at = cluster.now;
        // The others are served for a term.
        self.rests_until = was_alone.then(|| cluster.now.plus(self.seat.terms.term()));
        if !was_alone {
            self.begin(cluster, waiter);
        }
    }

    fn held(&self, cluster: &Cluster, waiter: &Waiter) -> Error {
        let reach = &self.common.reach;
        let report = reach.report(cluster, waiter.acquisition.name(), reach.last.free_in());
        Error::Held(report.of_slots(self.seat.limit.slots))
    }

    /// Too few nodes answered.
    fn lacks_a_quorum(&mut self, cluster: &mut Cluster, waiter: &mut Waiter) -> Outcome {
        let voting = cluster
            .states()
            .filter(|state| *state == NodeState::Voting)
            .count();
        let mut quarantined: Vec<Duration> = cluster
            .states()
            .filter_map(|state| match state {
                NodeState::Quarantined(left) => Some(left),
                _ => None,
            })
            .collect();
        quarantined.sort_unstable();
        let missing = cluster.needed.saturating_sub(voting).checked_sub(1);
        let known = missing.and_then(|nth| quarantined.get(nth).copied());
        let (failure, of, again): (_, fn(_) -> _, _) = match known {
            Some(left) => (
                Failure::Quarantined,
                Error::Quarantined,
                left.max(SHORTEST_PAUSE),
            ),
            None => (
                Failure::NoQuorum,
                Error::NoQuorum,
                cluster.try_again(cluster.needed),
            ),
        };
        let report = self
            .common
            .reach
            .report(cluster, waiter.acquisition.name(), Some(again));
        // A caller whose wait was cut short gets the error of the attempt before.
        let error = match waiter.last.take() {
            Some(last) if waiter.patience.is_over(cluster.now) => *last,
            _ => of(report),
        };
        let past = Past {
            failure,
            took: cluster.now.since(self.began_at),
            known,
            is_stale: self.common.reach.last.is_any_stale(),
        };
        let (error, after) = waiter.follows(cluster, &past, error);
        match after {
            After::Answer => Outcome::Over(error),
            After::Queue(_) => {
                debug_assert!(false, "a slot has no such queue");
                Outcome::Over(error)
            }
            After::RestUntil(at) => {
                waiter.last = Some(Box::new(error));
                self.rests_until = Some(at);
                cluster
                    .timers
                    .at(Key::Acquisition(waiter.acquisition.id), at);
                Outcome::Waits
            }
        }
    }

    /// Waits until this time, or until something else is due.
    fn wait(&mut self, cluster: &mut Cluster, waiter: &mut Waiter, until: Option<Tick>) -> Outcome {
        if self.is_in_line {
            if let Some(error) = self.common.reach.check_over(cluster, waiter) {
                return Outcome::Over(match error {
                    Error::Held(report) => Error::Held(report.of_slots(self.seat.limit.slots)),
                    error => error,
                });
            }
        } else if self.rests_until.is_some() && waiter.patience.is_over(cluster.now) {
            // The wait ends between two rounds.
            return Outcome::Over(match waiter.last.take() {
                Some(last) => *last,
                None => self.held(cluster, waiter),
            });
        }
        let all = [
            until,
            waiter.acquisition.attempt_end(),
            self.rests_until,
            self.common.reach.look_at,
            self.aside_at(),
        ];
        if let Some(at) = all.into_iter().flatten().min() {
            cluster
                .timers
                .at(Key::Acquisition(waiter.acquisition.id), at);
        }
        Outcome::Waits
    }
}
