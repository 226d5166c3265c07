//! From a wish to a lease: attempts, the raise round, rollback, and the wait between attempts
//! (protocol §3, client steps 1 to 6).

use std::{sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use super::{
    Patience, Wish,
    core::{CLOSED, Core, Early, Outstanding, SHORTEST_PAUSE, Task},
    holding::Holding,
    timers::Key,
};
use crate::{
    Error, FencingToken, Lease, Silence,
    ballot::{
        acquire::{Ballot, Outcome, Verdict},
        validity::{margin, valid_until},
    },
    clock::Tick,
    lease::{hold::Hold, shared::Shared},
    logs,
    node::{Batch, Command, Reply, status::NodeState},
    owner::Entry,
    rules::Rule,
};

/// Retries start at twice the time an attempt took, double, and stay below this.
const LONGEST_REST: Duration = Duration::from_millis(100);
const SHORTEST_REST: Duration = Duration::from_millis(2);
/// An operator may admit the nodes meanwhile, so a quarantine is not slept through.
const QUARANTINE_REST: Duration = Duration::from_millis(500);
/// So many who stood in line begin to ask in one go.
const TURNS_AT_ONCE: usize = 16;

/// One wish under way.
pub(super) struct Acquisition {
    wish: Wish,
    asked_at: Tick,
    attempts: u32,
    /// Since when no majority has answered, and how that showed.
    no_majority_since: Option<(Tick, std::mem::Discriminant<Error>)>,
    refreshed: bool,
    warned: bool,
    rest: Duration,
    phase: Phase,
}

enum Phase {
    New,
    Asking(Attempt),
    Resting {
        until: Tick,
        entry: Entry,
        last: Error,
    },
}

/// One attempt: one owner, one round of votes.
struct Attempt {
    entry: Entry,
    t0: Tick,
    ballot: Ballot,
    asked: Vec<usize>,
    rolled_back: bool,
    /// Unequal tokens: when to stop waiting for the rest and raise.
    settle_at: Option<Tick>,
    deadline: Tick,
}

/// What an attempt that was not won says of the next one.
struct Past {
    took: Duration,
    /// When the lock is free or a quarantine is over, by what the nodes said.
    known: Option<Duration>,
    /// The nodes were met anew.
    refresh: bool,
}

impl Acquisition {
    pub(super) fn vote(&mut self, node: usize, answer: Result<Reply, Silence>) -> Option<u64> {
        match &mut self.phase {
            Phase::Asking(attempt) => {
                let raise = attempt.ballot.vote(node, answer);
                self.wish
                    .seen
                    .fetch_max(attempt.ballot.largest_counter(), Relaxed);
                raise
            }
            Phase::New | Phase::Resting { .. } => None,
        }
    }

    fn give_up_at(&self) -> Option<Tick> {
        match self.wish.patience {
            Patience::Try => None,
            Patience::Wait(within) => within.map(|d| self.asked_at.plus(d)),
        }
    }

    fn lease_ttl(&self) -> Duration {
        self.wish.ttl + self.wish.lock_delay
    }
}

impl Core {
    pub(super) fn acquire(&mut self, now: Tick, wish: Wish) {
        if self.admin.is_closed() {
            let _ = wish.reply.send(Err(CLOSED));
            return;
        }
        if wish.reply.is_closed() {
            return;
        }
        let (name, id) = (wish.name.clone(), wish.id);
        let waits = wish.patience != Patience::Try;
        let acquisition = Box::new(Acquisition {
            wish,
            asked_at: now,
            attempts: 0,
            no_majority_since: None,
            refreshed: false,
            warned: false,
            rest: Duration::ZERO,
            phase: Phase::New,
        });
        if !waits {
            return self.attempt(now, acquisition);
        }
        let give_up_at = acquisition.give_up_at();
        match (self.turns.enter(&name, id, acquisition), give_up_at) {
            (Some(acquisition), _) => self.attempt(now, acquisition),
            (None, Some(at)) => self.timers.at(Key::Turn(id), at),
            (None, None) => {}
        }
    }

    /// Lets those ask whose turn has come; a few at a time, so that answers are read between them.
    pub(super) fn take_turns(&mut self, now: Tick) {
        for _ in 0..TURNS_AT_ONCE {
            let Some(acquisition) = self.turns.next() else {
                return;
            };
            let id = acquisition.wish.id;
            self.timers.cancel(Key::Turn(id));
            match acquisition.wish.reply.is_closed() {
                true => self.end_wish(&acquisition.wish),
                false => self.attempt(now, acquisition),
            }
        }
    }

    /// The wait of one who stands in line is over.
    pub(super) fn turn_due(&mut self, now: Tick, id: u64) {
        match self.turns.over(id) {
            Some((acquisition, Some(refusal))) => {
                let _ = acquisition.wish.reply.send(Err(Error::Held(refusal)));
            }
            Some((acquisition, None)) => self.attempt(now, acquisition),
            None => {}
        }
    }

    /// A wish that asked is over, granted or not: its place is another's.
    fn end_wish(&mut self, wish: &Wish) {
        if wish.patience != Patience::Try {
            self.turns.done(&wish.name);
        }
        self.wishes.remove(&wish.id);
    }

    /// The caller's future was dropped.
    pub(super) fn cancel(&mut self, now: Tick, id: u64) {
        if self.turns.leave(id).is_some() {
            self.timers.cancel(Key::Turn(id));
        }
        let Some(ticket) = self.wishes.remove(&id) else {
            return;
        };
        if let Some(Task::Acquiring(acquisition)) = self.take(ticket) {
            self.end_wish(&acquisition.wish);
            self.abort(now, *acquisition);
        }
    }

    /// All wishes end: the quorum closes.
    pub(super) fn close_wishes(&mut self, now: Tick) {
        self.admin.close();
        self.forget_early();
        for acquisition in self.turns.close() {
            self.timers.cancel(Key::Turn(acquisition.wish.id));
            let _ = acquisition.wish.reply.send(Err(CLOSED));
        }
        let mut wishes: Vec<(u64, u64)> = self.wishes.drain().collect();
        wishes.sort_unstable();
        for (_, ticket) in wishes {
            if let Some(Task::Acquiring(acquisition)) = self.take(ticket) {
                let wish = self.abort(now, *acquisition);
                let _ = wish.reply.send(Err(CLOSED));
            }
        }
    }

    fn abort(&mut self, now: Tick, acquisition: Acquisition) -> Wish {
        let ttl = acquisition.lease_ttl();
        let Acquisition { wish, phase, .. } = acquisition;
        if let Phase::Asking(attempt) = phase {
            self.roll_back(now, &wish, ttl, &attempt);
        }
        wish
    }

    fn attempt(&mut self, now: Tick, mut acquisition: Box<Acquisition>) {
        let entry = match &acquisition.phase {
            Phase::Resting { entry, .. }
                if acquisition.attempts > 0 && !self.settings.rules.hold(Rule::FreshOwner) =>
            {
                entry.clone()
            }
            _ => match self.chance.owner() {
                Ok(owner) => Entry::new(owner, &self.settings.label),
                Err(error) => {
                    self.end_wish(&acquisition.wish);
                    let _ = acquisition.wish.reply.send(Err(error));
                    return;
                }
            },
        };
        acquisition.attempts += 1;
        let ticket = self.new_ticket();
        let seen = acquisition.wish.seen.load(Relaxed);
        let command = Command::Acquire {
            name: acquisition.wish.name.clone(),
            entry: entry.clone(),
            ttl: acquisition.lease_ttl(),
            floor: self.clock.wall_us().max(seen.saturating_add(1)),
            max_ttl: self.fleet().max_ttl(),
        };
        let batch = Batch::one(command);
        let total = self.settings.total();
        let mut ballot = Ballot::new(total, self.needed, self.settings.rules);
        let mut asked = Vec::with_capacity(total);
        let states = self.states(now);
        let askable = states
            .iter()
            .filter(|state| **state == NodeState::Voting)
            .count();
        for (node, state) in states.iter().enumerate() {
            match state.silence() {
                Some(silence) => drop(ballot.vote(node, Err(silence))),
                // Where no majority can be asked nobody is: nothing has to be taken back then.
                None if askable < self.needed => {}
                None => {
                    self.session(now, node, |session, step| session.ask(step, ticket, &batch));
                    asked.push(node);
                }
            }
        }
        let deadline = now.plus(self.settings.node_timeout);
        acquisition.phase = Phase::Asking(Attempt {
            entry,
            t0: now,
            ballot,
            asked,
            rolled_back: false,
            settle_at: None,
            deadline,
        });
        self.wishes.insert(acquisition.wish.id, ticket);
        self.put(ticket, Task::Acquiring(acquisition));
        self.timers.at(Key::Task(ticket), deadline);
        self.attempt_heard(now, ticket);
    }

    /// A deadline of the attempt, or the end of its rest.
    pub(super) fn attempt_due(&mut self, now: Tick, ticket: u64) {
        let Some(acquisition) = self.acquisition(ticket) else {
            return;
        };
        match &mut acquisition.phase {
            Phase::Resting { until, .. } if *until <= now => {
                self.rested(now, ticket, self.waits_for_nodes());
            }
            Phase::Resting { until, .. } => {
                let until = *until;
                self.timers.at(Key::Task(ticket), until);
            }
            Phase::New => {}
            Phase::Asking(attempt) => {
                if attempt.deadline <= now {
                    let outstanding = attempt.ballot.answers().outstanding();
                    let outstanding = outstanding.map(|node| (node, None)).collect();
                    self.give_up(ticket, outstanding);
                }
                self.attempt_heard(now, ticket);
            }
        }
    }

    /// The deadline of an attempt: whoever is late is waited for no more.
    fn give_up(&mut self, ticket: u64, outstanding: Vec<Outstanding>) {
        let (late, next) = self.late(&outstanding);
        let Some(acquisition) = self.acquisition(ticket) else {
            return;
        };
        for node in late {
            acquisition.vote(node, Err(Silence::TimedOut));
        }
        if let (Phase::Asking(attempt), Some(at)) = (&mut acquisition.phase, next) {
            attempt.deadline = at;
        }
    }

    /// The rest is over: the next attempt, unless nodes are just being met and it may wait for them.
    pub(super) fn rested(&mut self, now: Tick, ticket: u64, may_wait: bool) {
        let Some(Task::Acquiring(acquisition)) = self.take(ticket) else {
            return;
        };
        if acquisition.give_up_at().is_some_and(|at| at <= now) {
            self.end_wish(&acquisition.wish);
            if let Acquisition {
                wish,
                phase: Phase::Resting { last, .. },
                ..
            } = *acquisition
            {
                let _ = wish.reply.send(Err(last));
            }
            return;
        }
        if may_wait {
            self.put(ticket, Task::Acquiring(acquisition));
            return self.wait_for_nodes(now, Early::Rested(ticket));
        }
        self.attempt(now, acquisition);
    }

    /// Looks at the votes of an attempt and does what follows.
    pub(super) fn attempt_heard(&mut self, now: Tick, ticket: u64) {
        let rules = self.settings.rules;
        let Some(acquisition) = self.acquisition(ticket) else {
            return;
        };
        let ttl = acquisition.wish.ttl;
        let Phase::Asking(attempt) = &mut acquisition.phase else {
            return;
        };
        let verdict = match attempt.ballot.verdict() {
            // The RELEASEs are on their way: what is granted late is granted to nobody.
            Verdict::Won(_) | Verdict::Split if attempt.rolled_back => Verdict::Over(Outcome::Held),
            verdict => verdict,
        };
        match verdict {
            Verdict::Open => {
                let deadline = attempt.deadline;
                self.timers.at(Key::Task(ticket), deadline);
            }
            Verdict::Won(token) => {
                // Looked at after the last vote that counts, never before.
                let end = valid_until(attempt.t0, ttl).minus(margin(ttl));
                if now < end || !rules.hold(Rule::ValidityAfterVote) {
                    self.granted(now, ticket, token);
                } else {
                    self.failed(now, ticket, None);
                }
            }
            Verdict::Split => self.split(now, ticket),
            Verdict::Lost => self.roll_back_now(now, ticket),
            Verdict::Over(outcome) => self.failed(now, ticket, Some(outcome)),
        }
    }

    /// A majority granted, with unequal tokens: waits for the outstanding replies for about one
    /// more reply time, then raises.
    fn split(&mut self, now: Tick, ticket: u64) {
        let node_timeout = self.settings.node_timeout;
        let Some(acquisition) = self.acquisition(ticket) else {
            return;
        };
        let name = acquisition.wish.name.clone();
        let Phase::Asking(attempt) = &mut acquisition.phase else {
            return;
        };
        let settle_at = *attempt
            .settle_at
            .get_or_insert_with(|| now.plus(now.since(attempt.t0)));
        if attempt.ballot.answers().waiting() > 0 && now < settle_at {
            self.timers.at(Key::Task(ticket), settle_at);
            return;
        }
        let (token, behind) = attempt.ballot.raise();
        attempt.deadline = now.plus(node_timeout);
        let deadline = attempt.deadline;
        let entry = attempt.entry.clone();
        let batch = Batch::one(Command::Raise {
            name,
            entry,
            token,
            max_ttl: self.fleet().max_ttl(),
        });
        for node in behind {
            let asked = self.session(now, node, |session, step| session.ask(step, ticket, &batch));
            if let (Some(Err(silence)), Some(acquisition)) = (asked, self.acquisition(ticket)) {
                acquisition.vote(node, Err(silence));
            }
        }
        self.timers.at(Key::Task(ticket), deadline);
        self.attempt_heard(now, ticket);
    }

    /// A late grant while others are being raised: it is raised too.
    pub(super) fn raise_late(&mut self, now: Tick, ticket: u64, node: usize, token: u64) {
        let Some(acquisition) = self.acquisition(ticket) else {
            return;
        };
        let name = acquisition.wish.name.clone();
        let entry = match &acquisition.phase {
            Phase::Asking(attempt) if !attempt.rolled_back => attempt.entry.clone(),
            _ => return,
        };
        let batch = Batch::one(Command::Raise {
            name,
            entry,
            token,
            max_ttl: self.fleet().max_ttl(),
        });
        let asked = self.session(now, node, |session, step| session.ask(step, ticket, &batch));
        if let (Some(Err(silence)), Some(acquisition)) = (asked, self.acquisition(ticket)) {
            acquisition.vote(node, Err(silence));
        }
    }

    fn granted(&mut self, now: Tick, ticket: u64, token: u64) {
        let Some(Task::Acquiring(acquisition)) = self.take(ticket) else {
            return;
        };
        let Acquisition {
            wish,
            phase: Phase::Asking(attempt),
            ..
        } = *acquisition
        else {
            return;
        };
        self.end_wish(&wish);
        let Some(engine) = self.engine() else {
            return self.roll_back(now, &wish, wish.ttl + wish.lock_delay, &attempt);
        };
        let hold = Hold::new(
            wish.ttl,
            attempt.t0,
            wish.renewal,
            self.renewal_jitter(wish.ttl),
        );
        let shared = Arc::new(Shared::new(
            wish.name.clone(),
            FencingToken::from_counter(token),
            Arc::clone(&self.clock),
            attempt.t0,
            margin(wish.ttl),
            hold.valid_until(),
        ));
        logs::debug!(name = wish.name.as_str(), token, "acquired");
        // The ticket of the winning attempt is the lease's id: that is how late grants find it.
        let lease = Lease::new(Arc::clone(&shared), engine, ticket);
        let holding = Holding {
            shared,
            hold,
            entry: attempt.entry,
            lock_delay: wish.lock_delay,
            asked: attempt.asked,
            held_on: attempt.ballot.holders().collect(),
            gone: Vec::new(),
            told: false,
        };
        self.leases.insert(ticket, holding);
        self.lease_due(now, ticket);
        // A caller that is gone drops the lease here, which releases it.
        drop(wish.reply.send(Ok(Some(lease))));
    }

    /// An attempt is not won: `None` because it was won too late.
    fn failed(&mut self, now: Tick, ticket: u64, outcome: Option<Outcome>) {
        self.roll_back_now(now, ticket);
        let names = Arc::clone(&self.settings);
        let needed = self.needed;
        // A whole quarantine, and the handshake that ends it.
        let limit = Duration::from_millis(self.fleet().greatest_terms().quarantine())
            + QUARANTINE_REST
            + self.settings.node_timeout;
        let max_ttl = self.settings.terms.max_ttl;
        let again = match outcome {
            Some(Outcome::Held) => None,
            _ => Some(self.try_again(now, needed)),
        };
        let Some(Task::Acquiring(mut acquisition)) = self.take(ticket) else {
            return;
        };
        let Phase::Asking(attempt) = &acquisition.phase else {
            return;
        };
        let took = now.since(attempt.t0);
        let entry = attempt.entry.clone();
        let known = attempt.ballot.retry_after();
        let retry_after = match outcome {
            Some(Outcome::Held) => known,
            Some(Outcome::Quarantined) => known.map(|left| left.max(SHORTEST_PAUSE)).or(again),
            None | Some(Outcome::NoQuorum) => again,
        };
        let answers = attempt.ballot.answers();
        let report = answers.report(
            acquisition.wish.name.as_str(),
            needed,
            &names.nodes,
            retry_after,
        );
        let stale = answers.iter().any(|h| {
            use crate::ballot::answers::Heard::Silent;
            matches!(h, Silent(Silence::NotAdmitted | Silence::ScriptsFlushed))
        });
        let error = match outcome {
            None => Error::TooSlow(report),
            Some(Outcome::Held) => Error::Held(report),
            Some(Outcome::NoQuorum) => Error::NoQuorum(report),
            Some(Outcome::Quarantined) => Error::Quarantined(report),
        };
        let refusal = match &error {
            Error::Held(report) => Some(report.clone()),
            _ => None,
        };
        self.turns.told(&acquisition.wish.name, refusal);
        // What the nodes said of themselves has just changed; they have been met again by now.
        let refresh = stale && !acquisition.refreshed && !matches!(error, Error::Held(_));
        let wait = acquisition.wish.patience != Patience::Try;
        if !wait && !refresh {
            self.end_wish(&acquisition.wish);
            let answer = if matches!(error, Error::Held(_)) {
                Ok(None)
            } else {
                Err(error)
            };
            let _ = acquisition.wish.reply.send(answer);
            return;
        }
        let mut most = None;
        match &error {
            Error::Held(_) => acquisition.no_majority_since = None,
            _ if refresh => acquisition.refreshed = true,
            Error::Quarantined(_) => most = Some(limit),
            // The first attempt counts as before the line: it does not wait for dead nodes.
            _ if acquisition.attempts == 1
                || acquisition.refreshed && acquisition.attempts == 2 =>
            {
                most = Some(Duration::ZERO);
            }
            _ => most = Some(max_ttl),
        }
        if let Some(most) = most {
            // An outage that follows a quarantine, or the reverse, has a time of its own.
            let kind = std::mem::discriminant(&error);
            let since = match acquisition.no_majority_since {
                Some((since, of)) if of == kind => since,
                _ => now,
            };
            acquisition.no_majority_since = Some((since, kind));
            let patient = acquisition.give_up_at().is_some() && !most.is_zero();
            if !patient && now >= since.plus(most) {
                self.end_wish(&acquisition.wish);
                let _ = acquisition.wish.reply.send(Err(error));
                return;
            }
        }
        if matches!(error, Error::Quarantined(_)) && !acquisition.warned {
            acquisition.warned = true;
            let name = &acquisition.wish.name;
            self.journal.waits_out_a_quarantine(now, name, &error);
        }
        let past = Past {
            took,
            known,
            refresh,
        };
        self.rest(now, *acquisition, past, entry, error);
    }

    /// Waits a jittered while before the next attempt, guided by what the nodes said; where they
    /// were met anew meanwhile, what they said before guides nobody.
    fn rest(
        &mut self,
        now: Tick,
        mut acquisition: Acquisition,
        past: Past,
        entry: Entry,
        last: Error,
    ) {
        // A process that stood still meanwhile does not rest for as long as that again.
        let took = past.took.min(self.settings.node_timeout);
        acquisition.rest = (acquisition.rest * 2)
            .max(took * 2)
            .clamp(SHORTEST_REST, LONGEST_REST);
        let most = u64::try_from(acquisition.rest.as_micros()).unwrap_or(u64::MAX);
        let jittered = Duration::from_micros(most / 4 + self.chance.up_to(most - most / 4));
        let rest = match (&last, past.known) {
            _ if past.refresh => jittered,
            (Error::Quarantined(_), Some(left)) => left.clamp(SHORTEST_REST, QUARANTINE_REST),
            (_, Some(left)) => jittered.min(left + SHORTEST_REST),
            (Error::NoQuorum(_), None) => jittered.max(took + SHORTEST_REST),
            (_, None) => jittered,
        };
        let mut until = now.plus(rest);
        if let Some(at) = acquisition.give_up_at() {
            until = until.min(at);
        }
        let ticket = self.new_ticket();
        self.wishes.insert(acquisition.wish.id, ticket);
        acquisition.phase = Phase::Resting { until, entry, last };
        self.put(ticket, Task::Acquiring(Box::new(acquisition)));
        self.timers.at(Key::Task(ticket), until);
    }

    fn roll_back_now(&mut self, now: Tick, ticket: u64) {
        let Some(Task::Acquiring(mut acquisition)) = self.take(ticket) else {
            return;
        };
        let ttl = acquisition.lease_ttl();
        if let Phase::Asking(attempt) = &mut acquisition.phase {
            self.timers.at(Key::Task(ticket), attempt.deadline);
            if !attempt.rolled_back {
                attempt.rolled_back = true;
                self.roll_back(now, &acquisition.wish, ttl, attempt);
            }
        }
        self.put(ticket, Task::Acquiring(acquisition));
    }

    /// RELEASE to every node that was asked, also where it was refused: a grant may still come.
    fn roll_back(&mut self, now: Tick, wish: &Wish, ttl: Duration, attempt: &Attempt) {
        let everywhere = self.settings.rules.hold(Rule::ReleaseEverywhere);
        let granted: Vec<usize> = attempt.ballot.holders().collect();
        for &node in &attempt.asked {
            if everywhere || granted.contains(&node) {
                let until = now.plus(ttl);
                self.session(now, node, |session, step| {
                    session.release(step, &wish.name, &attempt.entry, until, None);
                });
            }
        }
    }
}
