//! One who wants a slot: what it puts to the nodes, and when its wait is over.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use crate::{
    Error, LimitConflict, Silence,
    base::{
        clock::Tick,
        limit::{Agreed, Limit},
        owner::Entry,
        rules::Rule,
    },
    engine::{
        event::Wait,
        grant::Grant,
        net::{Net, SHORTEST_PAUSE},
        patience::{Failure, Past},
        rollback::roll_back,
        round,
        timers::Key,
        wants::{Slot, too_many},
        wishes::{
            standing::Standing,
            waiter::{After, Waiter},
        },
    },
    lease::upkeep::Good,
    node::{
        Operation,
        request::{self, Mode, Question, Target, Verb, Waiting},
        session::{Purpose, RoundId, Session, Tag},
        status::NodeState,
    },
    protocol::{
        ballot::validity::notice,
        queue::terms::Terms,
        slots::{
            seat::Seat,
            words::{Ask, Slots, Step, Won},
        },
    },
};

/// What is known of a semaphore lives for so many of the fleet's longest ttl.
pub(in crate::engine) const FORGOTTEN_AFTER: u32 = 4;

/// One who wants a slot.
pub(super) struct Asking {
    pub(super) waiter: Box<Waiter>,
    pub(super) slot: Slot,
    pub(super) round: RoundId,
    pub(super) entry: Entry,
    pub(super) seat: Seat,
    pub(super) standing: Standing,
    /// The largest counter in any answer.
    counter: u64,
    pub(super) began_at: Tick,
    /// It begins anew then.
    pub(super) rests_until: Option<Tick>,
    /// A majority has answered: it stands in line.
    pub(super) is_in_line: bool,
    /// Nodes that were not asked, as they have not been watched for long enough for its kind of slot.
    young: Vec<usize>,
}

impl Asking {
    pub(super) fn new(
        net: &mut Net,
        waiter: Box<Waiter>,
        slot: Slot,
        entry: Entry,
        ticket: u64,
    ) -> Self {
        let seat = seat(net, &waiter, &slot.agreed, ticket);
        Self {
            waiter,
            slot,
            round: net.new_round(),
            entry,
            seat,
            standing: Standing::new(net.total()),
            counter: 0,
            began_at: net.now,
            rests_until: None,
            is_in_line: false,
            young: Vec::new(),
        }
    }

    /// Under this its deadline rings.
    pub(super) fn tag(&self) -> Tag {
        Purpose::Take.of(self.round)
    }

    /// Those that do not vote are not asked, and where they are too many nobody is: nothing has to be taken back then. (Who
    /// stands in line waits until they are enough, and asks the others then.)
    pub(super) fn begin(&mut self, net: &Net) {
        self.waiter.patience.attempt();
        let enough = net.has_a_majority();
        for (node, state) in net.states().enumerate() {
            if let Some(silence) = state.silence() {
                self.standing.last.set(node, Err(silence));
                self.seat.went(node);
            } else if !enough && !self.is_in_line {
                self.seat.went(node);
            }
        }
    }

    fn too_young(&self, net: &Net, node: usize) -> Option<Duration> {
        net.too_young(node, self.slot.pool.family.history())
    }

    /// Nodes that have been watched for long enough meanwhile are asked too; the others are looked at then.
    pub(super) fn look_at_the_young(&mut self, net: &mut Net) {
        for node in std::mem::take(&mut self.young) {
            let votes = net.states().nth(node) == Some(NodeState::Voting);
            match self.too_young(net, node) {
                Some(left) if votes => {
                    let at = net.now.plus(left);
                    net.timers.at(Key::Wish(self.waiter.wish.id), at);
                    self.young.push(node);
                }
                _ if votes => self.seat.came_back(net.now, node),
                // It is looked at when it votes again.
                _ => {}
            }
        }
    }

    /// The error for units of a rate limit while too few nodes have been watched for long enough, and enough will be.
    pub(super) fn needs_history(&self, net: &Net) -> Option<Error> {
        let name = self.waiter.wish.name().as_str();
        net.needs_history(name, self.slot.pool.family.history())
    }

    pub(super) fn answered(&mut self, net: &Net, node: usize, slots: Slots) {
        let counter = slots.mine.map_or(0, |(_, counter)| counter);
        self.counter = self.counter.max(counter);
        self.waiter.wish.seen.fetch_max(counter, Relaxed);
        self.seat.answered(net.now, node, slots);
    }

    /// Answers are due: who is late is waited for no more.
    pub(super) fn answers_due(&mut self, net: &mut Net) {
        let outstanding: Vec<usize> = self.seat.awaited().collect();
        let outstanding = outstanding.into_iter().map(|node| (node, None));
        for (node, silence) in round::due(net, self.tag(), outstanding) {
            self.answered_late(node, silence);
        }
    }

    fn answered_late(&mut self, node: usize, silence: Silence) {
        self.standing.last.set(node, Err(silence));
        self.seat.answered_late(node);
    }

    // ---- what is put to them ----------------------------------------------------------------

    /// What is to be done next.
    pub(super) fn next(&mut self, net: &mut Net) -> Step {
        let end = self.waiter.wish.attempt_end();
        if end.is_some_and(|end| end <= net.now) && !self.seat.was_answered() {
            // Its caller's own clock, which asks for no evidence.
            let awaited: Vec<usize> = self.seat.awaited().collect();
            for node in awaited {
                self.answered_late(node, Silence::WaitOver);
            }
        }
        let chance = &mut net.chance;
        let step = self.seat.next(net.now, &mut |most| chance.up_to(most));
        if self.seat.was_answered() && waits(&self.waiter) && !self.is_in_line {
            self.is_in_line = true;
            self.waiter.patience.joined();
        }
        if let Some(limit) = self.seat.told() {
            self.slot.agreed.set(limit, net.now, net.settings.rules);
        }
        step
    }

    /// Asks these nodes, but none that is too young: whatever led to it, nothing else is sent that takes a slot.
    pub(super) fn ask(&mut self, net: &mut Net, nodes: &[usize], ask: Ask) {
        let (mut old, mut young) = (Vec::with_capacity(nodes.len()), Vec::new());
        for node in nodes {
            match self.too_young(net, *node) {
                None => old.push(*node),
                Some(left) => young.push((*node, left)),
            }
        }
        for (node, left) in young {
            self.unasked(node, Silence::Quarantined(left));
            if !self.young.contains(&node) {
                self.young.push(node);
            }
            let at = net.now.plus(left);
            net.timers.at(Key::Wish(self.waiter.wish.id), at);
        }
        let wish = &self.waiter.wish;
        let (mode, slot, floor) = match ask {
            Ask::Pick(want) => (Mode::Pick, Some(want), None),
            Ask::Move { want, floor } => (Mode::Move, Some(want), floor),
            Ask::Stay => (Mode::Move, None, None),
        };
        let floor = match net.holds(Rule::MoveMints) {
            true => floor,
            false => floor.map(|floor| floor.saturating_sub(1)),
        };
        let (ttl, floor) = (
            wish.node_ttl(),
            floor.unwrap_or_else(|| net.floor(self.counter)),
        );
        let target = self.target(slot);
        for hears in [true, false] {
            let some = old.iter().copied();
            let some: Vec<usize> = some
                .filter(|node| self.hears(net, *node) == hears)
                .collect();
            if some.is_empty() {
                continue;
            }
            let wait = self.waiting(net, mode, hears);
            let operation = target.ask(&self.entry, Verb::Acquire { ttl, floor, wait });
            for node in &some {
                self.seat.hears(*node, hears);
            }
            for (node, silence) in round::ask(net, self.tag(), &operation, some) {
                self.unasked(node, silence);
            }
        }
        if ask != Ask::Stay {
            round::arm(net, self.tag());
        }
    }

    fn unasked(&mut self, node: usize, silence: Silence) {
        self.seat.refused(node);
        self.standing.last.set(node, Err(silence));
    }

    pub(super) fn give_back(&mut self, net: &mut Net, nodes: &[usize]) {
        let tag = Purpose::GiveBack.of(self.round);
        for node in nodes {
            let wait = self.waiting(net, Mode::Move, self.hears(net, *node));
            let operation = self
                .target(None)
                .ask(&self.entry, Verb::Yield { floor: 0, wait });
            for (node, silence) in round::ask(net, tag, &operation, [*node]) {
                self.unasked(node, silence);
            }
        }
    }

    pub(super) fn raise(&mut self, net: &mut Net, slot: u32, token: u64, nodes: &[usize]) {
        let tag = Purpose::Raise.of(self.round);
        let raise = Verb::Raise { seq: 0, token };
        let operation = self.target(Some(slot)).ask(&self.entry, raise);
        for (node, _) in round::ask(net, tag, &operation, nodes.iter().copied()) {
            self.seat.raised(net.now, node, None);
        }
        round::arm(net, self.tag());
    }

    /// As the nodes are told of us.
    fn waiting(&self, net: &Net, mode: Mode, hears: bool) -> Waiting {
        let life = match waits(&self.waiter) {
            true => self.seat.terms.life,
            false => Duration::ZERO,
        };
        let channel = match hears {
            true => net.settings.channel.clone(),
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

    fn hears(&self, net: &Net, node: usize) -> bool {
        let session = net.sessions().get(node);
        !net.settings.channel.is_empty() && session.is_some_and(Session::hears)
    }

    // ---- how it ends ------------------------------------------------------------------------

    /// The lease. What else stands of it on the nodes is taken back, and who is the first to hold a slot tells all
    /// nodes the limit.
    pub(super) fn grant(self, net: &mut Net, won: Won) -> Grant {
        let until = net.now.plus(self.stands_for());
        if !won.others.is_empty() {
            let leave = Verb::leave_all_but(won.slot);
            let operation = self.target(Some(won.slot)).ask(&self.entry, leave);
            round::release(net, None, &operation, won.others.iter().copied(), until);
        }
        if self.seat.limit.version == 0 && net.holds(Rule::SettleLimit) {
            let limit = Limit {
                version: 1,
                slots: self.seat.limit.slots,
            };
            let operation = Operation::new(Question::Resize(self.slot.pool.clone(), limit));
            let tag = Purpose::Resize.of(net.new_round());
            round::ask(net, tag, &operation, 0..net.total());
            self.slot.agreed.changed(limit, net.now);
        }
        let wish = &self.waiter.wish;
        let good = Good {
            until: won.end,
            notice: notice(wish.ttl),
            // The answers to the first requests are old by now.
            is_provisional: won.end.since(net.now) < wish.ttl / 2,
            is_partial: false,
        };
        Grant {
            stands_for: self.stands_for(),
            target: self.target(Some(won.slot)),
            round: self.round,
            token: won.token,
            since: won.since,
            good,
            asked: self.seat.asked().collect(),
            held: won.held,
            raising: Vec::new(),
            lacking: won.others,
            entry: self.entry,
            waited: None,
            wish: self.waiter.wish,
        }
    }

    /// For how long something of it may stand on a node.
    fn stands_for(&self) -> Duration {
        self.waiter.wish.node_ttl().max(self.seat.terms.life)
    }

    pub(super) fn take_back(&self, net: &mut Net) {
        let asked: Vec<usize> = self.seat.asked().collect();
        let held: Vec<usize> = self.seat.held().map(|(node, _)| node).collect();
        let release = net.release(self.counter, None);
        let release = self.target(None).ask(&self.entry, release);
        let life = self.stands_for();
        roll_back(net, &release, life, asked.into_iter(), held.into_iter());
    }
}

/// Whether it takes a place in line.
pub(super) fn waits(waiter: &Waiter) -> bool {
    !matches!(
        waiter.wish.wait,
        Wait::Never | Wait::For(Some(Duration::ZERO))
    )
}

pub(super) fn seat(net: &Net, waiter: &Waiter, agreed: &Agreed, ticket: u64) -> Seat {
    let max_ttl = net.fleet().max_ttl();
    let terms = Terms::new(waiter.wish.ttl, max_ttl, net.round_trip());
    let limit = agreed.at(net.now, max_ttl * FORGOTTEN_AFTER);
    let seat = Seat::new(ticket, terms, limit, net.total(), net.settings.rules);
    seat.waits(waits(waiter)).has_met(agreed.has_met())
}

// ---- The end of a search, its rest, and its new beginning

/// The end of a wait, if it is over.
pub(super) enum Ends {
    Not,
    /// It goes on under another name.
    Again,
    With(Error),
}

impl Asking {
    /// Several slots at once cannot be had if the limit has become smaller.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn can_be_had(&self) -> Result<(), Error> {
        let (limit, of) = (self.seat.limit.slots, self.slot.of);
        match of <= limit {
            true => Ok(()),
            false => Err(too_many(of, limit)),
        }
    }

    /// True if it asks no node now.
    pub(super) fn check_resting(&mut self, net: &Net) -> bool {
        self.rests_until.is_some() || self.is_in_line && self.standing.check_alone(net)
    }

    /// True if it has to leave the nodes that know it, and begin again.
    pub(super) fn begins_anew(&mut self, net: &Net) -> bool {
        if let Some(until) = self.rests_until {
            return net.now >= until;
        }
        // A majority that is back is seen first.
        if self.is_in_line {
            self.standing.check_alone(net);
        }
        self.aside_at().is_some_and(|at| net.now >= at)
    }

    fn aside_at(&self) -> Option<Tick> {
        self.seat.asked().next()?;
        self.standing.aside_at(self.seat.terms.term())
    }

    /// It has left all nodes.
    pub(super) fn anew(&mut self, net: &mut Net, entry: Entry) {
        let was_alone = self.rests_until.take().is_none();
        (self.round, self.entry) = (net.new_round(), entry);
        self.seat = match self.is_in_line {
            true => self.seat.anew(net.now),
            false => seat(net, &self.waiter, &self.slot.agreed, self.seat.ticket),
        };
        self.standing = Standing::new(net.total());
        self.began_at = net.now;
        // The others are served for a term.
        self.rests_until = was_alone.then(|| net.now.plus(self.seat.terms.term()));
        if !was_alone {
            self.begin(net);
        }
    }

    /// Ends the wait if this step is all that is left to do.
    pub(super) fn ends(&mut self, net: &mut Net, step: &Step) -> Ends {
        match step {
            Step::Conflict(found) => {
                let name = self.waiter.wish.name();
                Ends::With(Error::LimitConflict(LimitConflict {
                    asked: self.slot.agreed.made(),
                    found: found.slots,
                    report: self.standing.report(net, name, None),
                }))
            }
            Step::Refused => Ends::With(self.held(net)),
            Step::NoQuorum => self.lacks_a_quorum(net),
            _ => self.waits(net, step),
        }
    }

    fn held(&self, net: &Net) -> Error {
        let free_in = self.standing.last.free_in();
        let report = self.standing.report(net, self.waiter.wish.name(), free_in);
        Error::Held(report.of_slots(self.seat.limit.slots))
    }

    /// Too few nodes answered.
    fn lacks_a_quorum(&mut self, net: &mut Net) -> Ends {
        let voting = net
            .states()
            .filter(|state| *state == NodeState::Voting)
            .count();
        let mut quarantined: Vec<Duration> = net
            .states()
            .filter_map(|state| match state {
                NodeState::Quarantined(left) => Some(left),
                _ => None,
            })
            .collect();
        quarantined.sort_unstable();
        let missing = net.needed.saturating_sub(voting).checked_sub(1);
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
                net.try_again(net.needed),
            ),
        };
        let name = self.waiter.wish.name();
        let error = of(self.standing.report(net, name, Some(again)));
        // Cut short, it is told what was known before.
        let error = match self.waiter.last.take() {
            Some(last) if self.waiter.patience.is_over(net.now) => *last,
            _ => error,
        };
        let past = Past {
            failure,
            took: net.now.since(self.began_at),
            known,
            is_stale: self.standing.last.is_any_stale(),
        };
        let (error, after) = self.waiter.follows(net, &past, error);
        match after {
            After::Answer | After::Line => Ends::With(error),
            After::RestUntil(at) => {
                self.waiter.last = Some(Box::new(error));
                self.rests_until = Some(at);
                net.timers.at(Key::Wish(self.waiter.wish.id), at);
                Ends::Again
            }
        }
    }

    /// It waits: until when?
    fn waits(&mut self, net: &mut Net, step: &Step) -> Ends {
        if self.is_in_line {
            if let Some(error) = self.standing.check_over(net, &mut self.waiter) {
                return Ends::With(match error {
                    Error::Held(report) => Error::Held(report.of_slots(self.seat.limit.slots)),
                    error => error,
                });
            }
        } else if let Some(last) = self.over_before_it_began(net) {
            return Ends::With(last);
        }
        let at = match step {
            Step::Rest(at) => *at,
            _ => None,
        };
        let end = self.waiter.wish.attempt_end();
        let all = [
            at,
            end,
            self.rests_until,
            self.standing.look_at,
            self.aside_at(),
        ];
        if let Some(at) = all.into_iter().flatten().min() {
            net.timers.at(Key::Wish(self.waiter.wish.id), at);
        }
        Ends::Not
    }

    /// The error for its caller if the wait ends between two rounds.
    fn over_before_it_began(&mut self, net: &Net) -> Option<Error> {
        let is_over = self.rests_until.is_some() && self.waiter.patience.is_over(net.now);
        is_over.then(|| match self.waiter.last.take() {
            Some(last) => *last,
            None => self.held(net),
        })
    }
}
