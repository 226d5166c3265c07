//! From a wish to a grant: attempts, the rests between them, and the line.

mod calls;
mod last;
mod line;
pub(super) mod slots;
mod standing;
mod waiter;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use self::{
    calls::Calls,
    line::Line,
    slots::Slots,
    waiter::{After, Counts, Turn, Waiter},
};
use crate::{
    Error, Renewal, Silence,
    base::{clock::Tick, ids::ById, name::Name, owner::Entry, rules::Rule, shrink::Room as _},
    engine::{
        attempt::{Attempt, Progress},
        event::{Wait, Wish, WishId},
        grant::Grant,
        net::Net,
        patience::{Failure, LONGEST_REST},
        rollback::stop_waiting,
        timers::Key,
        turns::Turns,
        wants::Wants,
    },
    lease::response::Response,
    node::{
        Push, Says,
        answer::Answer,
        request::{Side, Target},
        session::RoundId,
    },
};

/// At most this many whose turn has come begin to ask in one go.
const TURNS_AT_ONCE: usize = 16;

/// All wishes. Each one waits for its turn, asks, rests, or waits in line.
#[derive(Default)]
pub(super) struct Wishes {
    turns: Turns<Box<Waiter>>,
    asking: ById<RoundId, Asking>,
    resting: ById<WishId, Box<Waiter>>,
    /// The attempt of each wish that asks.
    rounds: ById<WishId, RoundId>,
    calls: Calls,
    line: Line,
    slots: Slots,
}

struct Asking {
    waiter: Box<Waiter>,
    attempt: Attempt,
}

/// What follows from an answer.
pub(super) enum Follows {
    Nothing,
    Grant(Box<Grant>),
    /// No wish waits for it any more.
    Stray(Result<Answer, Silence>),
}

impl Wishes {
    pub(super) fn begin(&mut self, net: &mut Net, wish: Wish) -> Follows {
        if wish.reply.is_closed() {
            return Follows::Nothing;
        }
        let wants = wish.wants.clone();
        let waiter = Box::new(Waiter::new(wish));
        if let Wants::Slot(slot) = wants {
            let follows = self.slots.begin(net, waiter, *slot);
            return self.follow(net, follows);
        }
        match wants.target().filter(|_| waiter.patience.waits()) {
            Some(target) => self.attempt_in_turn(net, target, waiter),
            None => self.attempt(net, waiter),
        }
        Follows::Nothing
    }

    /// Asks the nodes as soon as few enough of its queue do so.
    fn attempt_in_turn(&mut self, net: &mut Net, queue: &Target, waiter: Box<Waiter>) {
        let (id, end) = (waiter.wish.id, waiter.wish.end());
        let at_once = !self.turns.find_next() && net.keeps_up();
        match (self.turns.enter(queue, id, waiter, at_once), end) {
            (Some(waiter), _) => self.attempt(net, waiter),
            (None, Some(at)) => net.timers.at(Key::Wish(id), at),
            (None, None) => {}
        }
    }

    /// Lets those ask whose turn has come; a few at a time, so that answers are read between them.
    pub(super) fn take_turns(&mut self, net: &mut Net) {
        for _ in 0..TURNS_AT_ONCE {
            let Some(mut waiter) = self.turns.begin(net.now, || net.keeps_up()) else {
                return;
            };
            net.timers.cancel(Key::Wish(waiter.wish.id));
            match waiter.is_gone() {
                true => self.forget(net, &mut waiter),
                false => self.attempt(net, waiter),
            }
        }
    }

    /// When [`take_turns`](Self::take_turns) has something to do.
    pub(super) fn next_turns(&self, net: &Net) -> Option<Tick> {
        self.turns.due(net.now, || net.keeps_up())
    }

    /// Whether the wait of this wish for its turn is over; what follows is done.
    pub(super) fn turn_is_over(&mut self, net: &mut Net, id: WishId) -> bool {
        let waiter = self.turns.over(id);
        let waited = waiter.is_some();
        if let Some(waiter) = waiter {
            self.attempt(net, waiter);
        }
        waited
    }

    /// Nodes have changed: one that is back does not know who waits. Who is to be [looked at](Self::look_at) therefore.
    pub(super) fn look_at_nodes(&mut self, net: &Net) -> Vec<WishId> {
        let mut ids = self.line.look_at_nodes(net);
        ids.extend(self.slots.look_at_nodes(net));
        ids
    }

    /// Looks what follows for one who waits in line.
    pub(super) fn look_at(&mut self, net: &mut Net, id: WishId) -> Follows {
        let follows = match self.slots.has(id) {
            true => self.slots.look(net, id),
            false => self.line.look(net, id),
        };
        self.follow(net, follows)
    }

    /// A deadline of an attempt.
    pub(super) fn round_due(&mut self, net: &mut Net, round: RoundId) -> Follows {
        if self.slots.knows(round) {
            let follows = self.slots.round_due(net, round);
            return self.follow(net, follows);
        }
        if let Some(asking) = self.asking.get_mut(&round) {
            asking.attempt.due(net);
        }
        self.look(net, round)
    }

    /// Whether it waits in line, or wants a slot.
    pub(super) fn is_in_line(&self, id: WishId) -> bool {
        self.line.has(id) || self.slots.has(id)
    }

    /// A rest is over: the caller is told, or the next attempt begins. False, and nothing is done, if the next
    /// attempt should wait for nodes that are being met.
    pub(super) fn rested(&mut self, net: &mut Net, id: WishId, may_wait: bool) -> bool {
        let Some(waiter) = self.resting.get(&id) else {
            return true;
        };
        if may_wait && !waiter.patience.is_over(net.now) {
            return false;
        }
        if let Some(waiter) = self.resting.remove(&id) {
            self.attempt(net, waiter);
        }
        true
    }

    /// When the caller of a wish that rests has to be told.
    pub(super) fn end_of(&self, id: WishId) -> Option<Tick> {
        self.resting.get(&id)?.wish.end()
    }

    /// How many attempts are under way.
    pub(super) fn under_way(&self) -> usize {
        self.asking.len()
    }

    /// What is kept of wishes: those that ask or rest, and those in line.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> [usize; 2] {
        let wishes = self.asking.len() + self.resting.len() + self.rounds.len();
        [
            wishes,
            self.turns.len() + self.calls.len() + self.line.len() + self.slots.len(),
        ]
    }

    // ---- inside -----------------------------------------------------------------------------

    /// Asks the nodes, or, once the wait is over, tells the caller what is known. Who waits for a lock that others wait for too
    /// stands in line with them at once.
    fn attempt(&mut self, net: &mut Net, mut waiter: Box<Waiter>) {
        // A wait that is over already, as one of zero is, is one attempt.
        let is_over = waiter.patience.is_over(net.now);
        if is_over {
            let last = waiter.last.take().map(|last| *last);
            let target = waiter.wish.wants.target();
            let refusal = || self.turns.refusal(target?).map(Error::Held);
            if let Some(last) = last.or_else(refusal) {
                return self.tell(net, waiter, last);
            }
        }
        let line = waiter.line(net).filter(|_| !is_over);
        if let Some(line) = line
            && waiter.counts == Counts::Asks
            && self.line.stands(net, &line)
            && let Some(target) = waiter.wish.wants.target()
            && self.turns.try_join(target)
        {
            let is_writer = waiter.wish.wants.side().is_some();
            waiter.counts = Counts::Joins;
            let waiter = match is_writer {
                true => waiter.for_turn(net, line),
                false => waiter,
            };
            let follows = self.line.enter_last(net, waiter);
            // Nobody has answered, so nothing is granted.
            self.follow(net, follows);
            return;
        }
        self.ask(net, waiter);
    }

    fn ask(&mut self, net: &mut Net, mut waiter: Box<Waiter>) {
        let wants = waiter.wish.wants.clone();
        let Wants::Lock(target) = &wants else { return };
        waiter.patience.attempt();
        let floor = net.floor(waiter.wish.seen.load(Relaxed));
        let waiting = match self.calls.tell_of(net, &mut waiter) {
            Ok(waiting) => waiting,
            Err(error) => return self.tell(net, waiter, error),
        };
        match Attempt::begin(net, &waiter.wish, target, floor, waiting) {
            Ok(attempt) => {
                let round = attempt.round;
                if let Some(known) = &mut waiter.known {
                    known.by.extend(&attempt.asked);
                }
                self.rounds.insert(waiter.wish.id, round);
                self.asking.insert(round, Asking { waiter, attempt });
                // Nobody has answered, so nothing is granted.
                self.look(net, round);
            }
            Err(error) => self.tell(net, waiter, error),
        }
    }

    /// Tells its caller that it was not won.
    fn tell(&mut self, net: &mut Net, mut waiter: Box<Waiter>, error: Error) {
        self.forget(net, &mut waiter);
        waiter.answer(error);
    }

    fn look(&mut self, net: &mut Net, round: RoundId) -> Follows {
        let Some(asking) = self.asking.get_mut(&round) else {
            return Follows::Nothing;
        };
        let progress = asking.attempt.look(net);
        if progress == Progress::Open {
            return Follows::Nothing;
        }
        let Some(Asking {
            mut waiter,
            attempt,
        }) = self.take(net, round)
        else {
            return Follows::Nothing;
        };
        match progress {
            Progress::Won(token) => {
                self.make_room(&mut waiter);
                let known = self.calls.leave(net, &mut waiter);
                if let (Some(known), Some(target)) = (&known, waiter.wish.wants.target()) {
                    // Those that its last attempt did not ask will not hear of its end otherwise.
                    let others = known.by.iter().copied();
                    let others: Vec<usize> =
                        others.filter(|n| !attempt.asked.contains(n)).collect();
                    stop_waiting(net, target, &known.entry, others);
                }
                let waited = known.map(|known| known.entry);
                Follows::Grant(Box::new(attempt.grant(waiter.wish, token, waited)))
            }
            Progress::Failed(failure) => self.failed(net, waiter, &attempt, failure),
            Progress::Open => Follows::Nothing,
        }
    }

    fn failed(
        &mut self,
        net: &mut Net,
        mut waiter: Box<Waiter>,
        attempt: &Attempt,
        failure: Failure,
    ) -> Follows {
        let (error, next) = waiter.failed(net, attempt, failure);
        let refusal = match &error {
            Error::Held(report) => Some(report.clone()),
            _ => None,
        };
        if let Some(queue) = waiter.wish.wants.target().cloned() {
            self.turns.told(&queue, refusal);
        }
        match next {
            After::Answer => self.tell(net, waiter, error),
            After::RestUntil(at) => {
                let id = waiter.wish.id;
                net.timers.at(Key::Wish(id), at);
                waiter.last = Some(Box::new(error));
                self.resting.insert(id, waiter);
            }
            After::Line => {
                self.make_room(&mut waiter);
                let is_writer = waiter.wish.wants.side().is_some();
                let turn = waiter.line(net).filter(|_| is_writer);
                let follows = match turn {
                    Some(turn) => {
                        waiter.last = Some(Box::new(error));
                        self.line.enter_unseen(net, waiter.for_turn(net, turn))
                    }
                    None => {
                        let ticket = attempt.largest_ticket();
                        let counter = attempt.largest_counter();
                        self.line.enter(net, waiter, ticket, counter)
                    }
                };
                return self.follow(net, follows);
            }
        }
        Follows::Nothing
    }

    /// An attempt that is over.
    fn take(&mut self, net: &mut Net, round: RoundId) -> Option<Asking> {
        let asking = self.asking.remove(&round)?;
        net.timers.cancel(Key::of(asking.attempt.tag()));
        self.rounds.remove(&asking.waiter.wish.id);
        self.asking.give_back();
        self.rounds.give_back();
        Some(asking)
    }
}

// ---- The turn of a read-write lock's writers (protocol §4)
//
// Writers that were refused queue for a mutex, so that one of them at a time asks for the lock. The turn is about order and
// speed only: a writer that has lost its turn, or cannot have it, asks all the same.

/// A writer that could not get its turn asks without it for this long.
const ALONE: Duration = Duration::from_secs(1);
/// The wait for the turn ends at least this long before the writer's own wait. That leaves time for one attempt, whose
/// report says who has the lock then.
const LAST_ATTEMPT: Duration = Duration::from_millis(20);

impl Waiter {
    /// True if this is a writer that should queue for its turn after a refusal.
    fn may_queue(&self, net: &Net) -> bool {
        let last = net.now.plus(last_attempt(net) * 2);
        self.wish.wants.side() == Some(Side::Writer)
            && net.holds(Rule::WritersQueue)
            && !self.turn.is_there()
            && self.turn.alone_until <= net.now
            && self.wish.end().is_none_or(|end| last < end)
    }

    /// The wish that stands in line for it.
    fn for_turn(mut self: Box<Self>, net: &Net, turn: Name) -> Box<Self> {
        let (reply, lease) = Response::channel();
        self.turn.lease = Some(lease);
        let wait = match self.wish.wait {
            Wait::For(Some(limit)) => Wait::For(Some(limit.saturating_sub(last_attempt(net)))),
            wait => wait,
        };
        let wish = Wish {
            id: self.wish.id,
            wants: Wants::Lock(Target::mutex(turn)),
            // As long as the next attempt may take to come. A turn that is lost, or handed over and not heard of, costs no more.
            ttl: (LONGEST_REST + net.settings.node_timeout).min(net.fleet().max_ttl()),
            lock_delay: Duration::ZERO,
            // With a bound that is never reached: nobody is warned that it has been held for long.
            renewal: Renewal::auto().max_renewals(u32::MAX),
            wait,
            asked_at: self.wish.asked_at,
            seen: Arc::default(),
            reply,
        };
        Box::new(Self {
            counts: std::mem::replace(&mut self.counts, Counts::Not),
            writer: Some(self),
            ..Self::new(wish)
        })
    }

    /// The waiter that answers a caller: the writer, if this one only queues for its turn.
    fn of_caller(mut self: Box<Self>) -> Box<Self> {
        self.writer.take().unwrap_or(self)
    }
}

impl Wishes {
    /// This writer could not have its turn, or has no time for it any more.
    fn asks_alone(&mut self, net: &mut Net, mut writer: Box<Waiter>) {
        writer.turn = Turn {
            lease: None,
            alone_until: net.now.plus(ALONE),
        };
        if writer.is_gone() {
            return self.forget(net, &mut writer);
        }
        match writer.queue() {
            // A crowd that leaves the line at once does not ask at once.
            Some(queue) if writer.counts == Counts::Not => {
                writer.counts = Counts::Asks;
                self.attempt_in_turn(net, &queue, writer);
            }
            _ => self.attempt(net, writer),
        }
    }
}

fn last_attempt(net: &Net) -> Duration {
    (net.round_trip() * 4).max(LAST_ATTEMPT)
}

// ---- Answers of nodes, routed to an attempt, a waiter or a slot search

impl Wishes {
    /// A node answered an attempt.
    pub(in crate::engine) fn heard(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> Follows {
        let Some(Asking { waiter, attempt }) = self.asking.get_mut(&round) else {
            return Follows::Stray(answer);
        };
        attempt.heard(net, node, answer);
        waiter
            .wish
            .seen
            .fetch_max(attempt.largest_counter(), Relaxed);
        self.look(net, round)
    }

    /// A node answered a raise of an attempt or of a waiter in the queue.
    pub(in crate::engine) fn raised(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> Follows {
        if self.asking.contains_key(&round) {
            return self.heard(net, round, node, answer);
        }
        if self.slots.knows(round) {
            let follows = self.slots.raised(net, round, node, &answer);
            return self.follow(net, follows);
        }
        if !self.line.knows(round) {
            return Follows::Stray(answer);
        }
        let follows = self.line.raised(net, round, node, answer);
        self.follow(net, follows)
    }

    /// A node answered a waiter in the queue.
    pub(in crate::engine) fn joined(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> Follows {
        let follows = self.line.joined(net, round, node, answer);
        self.follow(net, follows)
    }

    /// A node answered a slot search.
    pub(in crate::engine) fn took(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> Follows {
        if !self.slots.knows(round) {
            return Follows::Stray(answer);
        }
        let follows = self.slots.heard(net, round, node, answer);
        self.follow(net, follows)
    }

    /// A node has been given back a slot.
    pub(in crate::engine) fn gave_back(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> Follows {
        if !self.slots.knows(round) {
            return Follows::Stray(answer);
        }
        let follows = self.slots.yielded(net, round, node, &answer);
        self.follow(net, follows)
    }

    /// A node says something unasked.
    pub(in crate::engine) fn pushed(&mut self, net: &mut Net, node: usize, push: Push) -> Follows {
        if push.says == Says::Freed {
            self.freed(net, &push.entry);
            return Follows::Nothing;
        }
        let follows = match self.slots.pushed(net, node, &push) {
            Some(follows) => follows,
            None => self.line.pushed(net, node, push),
        };
        self.follow(net, follows)
    }

    /// Tells a caller whose wait in line is over, or asks for what was not to be had there.
    fn follow(&mut self, net: &mut Net, follows: line::Follows) -> Follows {
        self.make_room_in_line();
        match follows {
            line::Follows::Nothing => Follows::Nothing,
            line::Follows::Won(grant) => Follows::Grant(grant),
            line::Follows::Turn(writer, grant) => {
                self.attempt(net, writer);
                Follows::Grant(grant)
            }
            line::Follows::Over(mut waiter, error) => {
                match waiter.writer.take() {
                    Some(writer) => self.asks_alone(net, writer),
                    None => waiter.answer(error),
                }
                Follows::Nothing
            }
            line::Follows::Ask(mut waiter) => {
                if let Some(queue) = waiter.counts_no_more(Counts::Joins) {
                    self.turns.asks_instead(&queue);
                    waiter.counts = Counts::Asks;
                }
                match waiter.writer.take() {
                    Some(mut writer) => {
                        writer.counts = waiter.counts;
                        self.asks_alone(net, writer);
                    }
                    None => self.ask(net, waiter),
                }
                Follows::Nothing
            }
        }
    }

    /// It wishes no more, and has not got it.
    fn forget(&mut self, net: &mut Net, waiter: &mut Waiter) {
        self.calls.give_up(net, waiter);
        self.make_room(waiter);
    }

    /// A wish that asked or rested is over, or stands in line now: its place is another's.
    fn make_room(&mut self, waiter: &mut Waiter) {
        if let Some(queue) = waiter.counts_no_more(Counts::Asks) {
            self.turns.done(&queue);
        }
    }

    /// Frees the turns of acquisitions that asked for a place and are answered, or gone.
    fn make_room_in_line(&mut self) {
        for queue in self.line.decided() {
            self.turns.joined(&queue);
        }
    }

    /// A read-write lock was freed: all who wait for it ask again.
    fn freed(&mut self, net: &mut Net, entry: &Entry) {
        for id in self.calls.called(entry) {
            if let Some(waiter) = self.resting.get(&id) {
                let at = waiter.answers_the_call(net);
                net.timers.at(Key::Wish(id), at);
            } else if let Some(asking) = self.rounds.get(&id).and_then(|it| self.asking.get_mut(it))
                && let Some(known) = &mut asking.waiter.known
            {
                known.is_called = true;
            }
        }
    }
}

// ---- The end of acquisitions that were not granted

impl Wishes {
    /// The caller's future was dropped.
    pub(in crate::engine) fn cancel(&mut self, net: &mut Net, id: WishId) {
        self.end(net, id);
    }

    /// All wishes end: the quorum closes.
    pub(in crate::engine) fn close(&mut self, net: &mut Net) {
        let mut waiters = self.turns.close();
        for waiter in &mut waiters {
            net.timers.cancel(Key::Wish(waiter.wish.id));
            self.calls.give_up(net, waiter);
        }
        let mut ids: Vec<WishId> = self
            .rounds
            .keys()
            .chain(self.resting.keys())
            .copied()
            .collect();
        ids.extend(self.line.ids());
        ids.extend(self.slots.ids());
        ids.sort_unstable();
        waiters.extend(ids.into_iter().filter_map(|id| self.end(net, id)));
        for waiter in waiters {
            let _ = waiter.wish.reply.send(Err(Error::Closed));
        }
    }

    /// Ends a wish, and takes back what it asked for.
    fn end(&mut self, net: &mut Net, id: WishId) -> Option<Box<Waiter>> {
        if let Some(mut waiter) = self.turns.leave(id) {
            net.timers.cancel(Key::Wish(id));
            self.calls.give_up(net, &mut waiter);
            return Some(waiter);
        }
        if let Some(mut waiter) = self.resting.remove(&id) {
            net.timers.cancel(Key::Wish(id));
            self.forget(net, &mut waiter);
            return Some(waiter);
        }
        let Some(round) = self.rounds.get(&id).copied() else {
            let waiter = match self.slots.has(id) {
                true => self.slots.leave(net, id),
                false => self.line.leave(net, id),
            };
            self.make_room_in_line();
            let mut waiter = waiter?.of_caller();
            self.forget(net, &mut waiter);
            return Some(waiter);
        };
        let Asking {
            mut waiter,
            mut attempt,
        } = self.take(net, round)?;
        attempt.roll_back(net);
        self.forget(net, &mut waiter);
        Some(waiter)
    }
}
