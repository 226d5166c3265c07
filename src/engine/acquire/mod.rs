//! Acquisitions: from the call to a grant, or to an error.
//!
//! One [`Table`] has all of them, each in one [`Stage`]. The stage decides what an answer, a push or a deadline means.

mod attempt;
mod contended;
mod last;
pub(super) mod patience;
mod queued;
mod reach;
mod rwlock_waiters;
mod table;
mod throttle;
mod waiter;

use std::{mem, sync::atomic::Ordering::Relaxed, time::Duration};

use self::{
    attempt::{Attempt, Progress, new_owner},
    contended::Contended,
    patience::Failure,
    queued::{MutexQueue, Outcome, Queued, SlotSearch},
    rwlock_waiters::RwlockWaiters,
    table::{Row, Stage, Table},
    throttle::Throttle,
    waiter::{After, Counts, Turn, Waiter},
};
use crate::{
    Error, FencingToken, Silence,
    base::{clock::Tick, owner::Entry},
    engine::{
        cluster::Cluster,
        event::{Acquisition, AcquisitionId},
        grant::{Grant, Won},
        rollback::stop_waiting,
        timers::Key,
        wants::Wants,
    },
    node::{
        Push, Says,
        answer::Answer,
        session::{Purpose, RoundId},
        status::NodeState,
    },
};

/// Maximum number of throttled acquisitions that start to ask in one go, so that answers are read in between.
const BEGIN_AT_ONCE: usize = 16;
/// A writer that could not get its turn asks without it for this long.
const ALONE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Acquisitions {
    table: Table,
    throttle: Throttle,
    rwlock_waiters: RwlockWaiters,
    contended: Contended,
    /// The greatest ticket that was given to a waiter for a mutex, or that a node has named.
    last_ticket: u64,
    last_slot_ticket: u64,
    /// For each node: true if it voted at the last look.
    voting: Vec<bool>,
}

// ---- The way in, and what the core asks

impl Acquisitions {
    /// The acquisition that expects the answers of this round.
    pub(super) fn by_round(&self, round: RoundId) -> Option<AcquisitionId> {
        self.table.by_round(round)
    }

    /// The number of attempts under way.
    pub(super) fn under_way(&self) -> usize {
        self.table.attempts()
    }

    /// Returns true if its next attempt should wait for nodes that are being met.
    pub(super) fn may_wait_for_nodes(&self, cluster: &Cluster, id: AcquisitionId) -> bool {
        let one = self.table.get(id);
        one.is_some_and(|one| {
            matches!(one.stage(), Stage::Rest) && !one.waiter.patience.is_over(cluster.now)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The calls that wait. For a writer's turn it is the call of the writer.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Acquisition> + '_ {
        let waiters = self.table.iter().map(|row| &row.waiter);
        waiters.map(|waiter| &waiter.writer.as_deref().unwrap_or(waiter).acquisition)
    }

    /// The time by which the caller must have its answer. `None` if there is no limit.
    pub(super) fn end_of(&self, id: AcquisitionId) -> Option<Tick> {
        self.table.get(id)?.waiter.acquisition.end()
    }

    /// The number of acquisitions, and of entries in the other tables.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> [usize; 2] {
        let [acquisitions, entries] = self.table.len();
        [
            acquisitions,
            entries + self.throttle.len() + self.rwlock_waiters.len(),
        ]
    }

    pub(super) fn begin(
        &mut self,
        cluster: &mut Cluster,
        acquisition: Acquisition,
    ) -> Option<Box<Grant>> {
        if acquisition.reply.is_closed() {
            return None;
        }
        let id = acquisition.id;
        let waiter = Box::new(Waiter::new(acquisition));
        let (is_slot, waits) = (
            waiter.acquisition.wants.target().is_none(),
            waiter.patience.waits(),
        );
        self.table.insert(waiter);
        if is_slot {
            return self.search_slot(cluster, id);
        }
        match waits {
            true => self.attempt_when_unthrottled(cluster, id),
            false => self.attempt(cluster, id),
        }
        None
    }

    /// Starts an attempt as soon as few enough acquisitions are asking.
    fn attempt_when_unthrottled(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        let Some(one) = self.table.get(id) else {
            return;
        };
        let Some(target) = one.waiter.acquisition.wants.target() else {
            return;
        };
        let end = one.waiter.acquisition.end();
        let at_once = !self.throttle.find_next() && cluster.keeps_up();
        if self.throttle.enter(target, id, at_once) {
            return self.attempt(cluster, id);
        }
        self.table.set(cluster, id, Stage::Throttled);
        if let Some(at) = end {
            cluster.timers.at(Key::Acquisition(id), at);
        }
    }

    /// Starts acquisitions that waited because too many were asking.
    pub(super) fn begin_throttled(&mut self, cluster: &mut Cluster) {
        for _ in 0..BEGIN_AT_ONCE {
            let Some(id) = self.throttle.begin(cluster.now, || cluster.keeps_up()) else {
                return;
            };
            self.table.set(cluster, id, Stage::Begins);
            match self.table.get(id).is_some_and(|one| one.waiter.is_gone()) {
                true => drop(self.end(cluster, id)),
                false => self.attempt(cluster, id),
            }
        }
    }

    /// The time at which [`begin_throttled`](Self::begin_throttled) has something to do.
    pub(super) fn next_throttled(&self, cluster: &Cluster) -> Option<Tick> {
        self.throttle.due(cluster.now, || cluster.keeps_up())
    }

    /// Asks the nodes. If the wait is over, the caller gets the error that is known instead. On a contended name the
    /// acquisition joins the queue without an attempt.
    fn attempt(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        let Some(one) = self.table.get_mut(id) else {
            return;
        };
        let waiter = &mut one.waiter;
        // A wait that is over already, such as a wait of zero, is one attempt.
        let is_over = waiter.patience.is_over(cluster.now);
        if is_over {
            let last = waiter.last.take().map(|last| *last);
            let target = waiter.acquisition.wants.target();
            let refusal = || self.throttle.refusal(target?).map(Error::Held);
            if let Some(last) = last.or_else(refusal) {
                return self.tell(cluster, id, last);
            }
        }
        let line = waiter.queue_name(cluster).filter(|_| !is_over);
        if let Some(line) = line
            && waiter.counts == Counts::Asks
            && cluster.has_a_majority()
            && self.contended.has(&line, cluster.now)
            && let Some(target) = waiter.acquisition.wants.target()
            && self.throttle.try_join(target)
        {
            waiter.counts = Counts::Joins;
            if waiter.acquisition.wants.side().is_some() {
                let turn = waiter.for_turn(cluster, line);
                waiter.writer = Some(mem::replace(waiter, turn));
            }
            let grant = self.join_queue(cluster, id, true, 0);
            debug_assert!(grant.is_none(), "no node has answered");
            return;
        }
        self.ask(cluster, id);
    }

    fn ask(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        let Some(one) = self.table.get_mut(id) else {
            return;
        };
        let waiter = &mut one.waiter;
        let Wants::Lock(target) = waiter.acquisition.wants.clone() else {
            return;
        };
        waiter.patience.attempt();
        let floor = cluster.floor(waiter.acquisition.seen.load(Relaxed));
        let waiting = match self.rwlock_waiters.tell_of(cluster, waiter) {
            Ok(waiting) => waiting,
            Err(error) => return self.tell(cluster, id, error),
        };
        match Attempt::begin(cluster, &waiter.acquisition, &target, floor, waiting) {
            Ok(attempt) => {
                if let Some(known) = &mut waiter.known {
                    known.by.extend(&attempt.asked);
                }
                self.table
                    .set(cluster, id, Stage::Attempt(Box::new(attempt)));
                let grant = self.look_at_attempt(cluster, id);
                debug_assert!(grant.is_none(), "no node has answered");
            }
            Err(error) => self.tell(cluster, id, error),
        }
    }

    /// Looks at the votes of an attempt, and does what follows.
    fn look_at_attempt(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<Box<Grant>> {
        let (_, Stage::Attempt(attempt)) = self.table.get_mut(id)?.parts() else {
            return None;
        };
        match attempt.look(cluster) {
            Progress::Open => None,
            Progress::Won(token) => self.won(cluster, id, token),
            Progress::Failed(failure) => self.failed(cluster, id, failure),
        }
    }

    fn won(&mut self, cluster: &mut Cluster, id: AcquisitionId, token: u64) -> Option<Box<Grant>> {
        let (mut waiter, attempt) = self.table.remove(cluster, id)?.into_attempt()?;
        self.stop_asking(&mut waiter);
        let known = self.rwlock_waiters.leave(cluster, &mut waiter);
        if let (Some(known), Some(target)) = (&known, waiter.acquisition.wants.target()) {
            // The nodes that its last attempt did not ask would otherwise not hear that the wait has ended.
            let others = known.by.iter().copied();
            let others: Vec<usize> = others.filter(|n| !attempt.asked.contains(n)).collect();
            stop_waiting(cluster, target, &known.entry, others);
        }
        let won = attempt.won(token, known.map(|known| known.entry));
        let acquisition = waiter.acquisition;
        Some(Box::new(Grant { acquisition, won }))
    }

    fn failed(
        &mut self,
        cluster: &mut Cluster,
        id: AcquisitionId,
        failure: Failure,
    ) -> Option<Box<Grant>> {
        let (waiter, Stage::Attempt(attempt)) = self.table.get_mut(id)?.parts() else {
            return None;
        };
        let (error, next) = waiter.failed(cluster, attempt, failure);
        let refusal = match &error {
            Error::Held(report) => Some(report.clone()),
            _ => None,
        };
        if let Some(target) = waiter.acquisition.wants.target() {
            self.throttle.told(target, refusal);
        }
        match next {
            After::Answer => self.tell(cluster, id, error),
            After::RestUntil(at) => {
                waiter.last = Some(Box::new(error));
                self.table.set(cluster, id, Stage::Rest);
                cluster.timers.at(Key::Acquisition(id), at);
            }
            After::Queue => {
                if let Some(target) = waiter.counts_no_more(Counts::Asks) {
                    self.throttle.done(&target);
                }
                let is_writer = waiter.acquisition.wants.side().is_some();
                let turn = waiter.queue_name(cluster).filter(|_| is_writer);
                let Some(turn) = turn else {
                    let counter = attempt.largest_counter();
                    self.last_ticket = self.last_ticket.max(attempt.largest_ticket());
                    self.contended
                        .insert(waiter.acquisition.name(), cluster.now);
                    return self.join_queue(cluster, id, false, counter);
                };
                waiter.last = Some(Box::new(error));
                let turn = waiter.for_turn(cluster, turn);
                waiter.writer = Some(mem::replace(waiter, turn));
                self.contended
                    .insert(waiter.acquisition.name(), cluster.now);
                // The attempt was for the lock, so no node has named the waiters that queue for the turn.
                return self.join_queue(cluster, id, true, 0);
            }
        }
        None
    }
}

// ---- Queues

impl Acquisitions {
    /// Joins the queue of a mutex. With `only_last` it takes a place only behind all others, because no node has named
    /// them yet. `counter` is the greatest counter that was seen.
    fn join_queue(
        &mut self,
        cluster: &mut Cluster,
        id: AcquisitionId,
        only_last: bool,
        counter: u64,
    ) -> Option<Box<Grant>> {
        let acquisition = &self.table.get(id)?.waiter.acquisition;
        let owner = match new_owner(cluster, acquisition) {
            Ok(owner) => owner,
            Err(error) => {
                self.over(cluster, id, error);
                return None;
            }
        };
        let after = self.last_ticket.saturating_add(1);
        let ticket = cluster.clock.wall_us().max(after).min(FencingToken::MAX);
        self.last_ticket = ticket;
        let waiter = &self.table.get(id)?.waiter;
        let queued = MutexQueue::new(cluster, waiter, owner, ticket, only_last, counter);
        self.table
            .set(cluster, id, Stage::Queued(Queued::Mutex(Box::new(queued))));
        self.look_at_queued(cluster, id)
    }

    /// Looks for a slot of a semaphore.
    fn search_slot(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<Box<Grant>> {
        let acquisition = &self.table.get(id)?.waiter.acquisition;
        let owner = match new_owner(cluster, acquisition) {
            Ok(owner) => owner,
            Err(error) => {
                self.over(cluster, id, error);
                return None;
            }
        };
        let after = self.last_slot_ticket.saturating_add(1);
        let ticket = cluster.clock.wall_us().max(after);
        self.last_slot_ticket = ticket;
        let waiter = &mut self.table.get_mut(id)?.waiter;
        let Wants::Slot(slot) = waiter.acquisition.wants.clone() else {
            return None;
        };
        let mut search = SlotSearch::new(cluster, waiter, *slot, owner, ticket);
        if let Some(error) = search.needs_history(cluster, waiter) {
            self.over(cluster, id, error);
            return None;
        }
        search.begin(cluster, waiter);
        self.table
            .set(cluster, id, Stage::Queued(Queued::Slot(Box::new(search))));
        self.look_at_queued(cluster, id)
    }

    /// Does everything that can be done now for an acquisition that is queued.
    fn look_at_queued(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<Box<Grant>> {
        let (waiter, Stage::Queued(queued)) = self.table.get_mut(id)?.parts() else {
            return None;
        };
        if waiter.is_gone() {
            self.end(cluster, id);
            return None;
        }
        match queued.advance(cluster, waiter) {
            Outcome::Waits => {
                if queued.counts_as_joined() {
                    self.stop_joining(id);
                }
                None
            }
            Outcome::Won(won) => self.won_queued(cluster, id, *won),
            Outcome::NewOwner => {
                match new_owner(cluster, &waiter.acquisition) {
                    Ok(owner) => self.table.set_owner(cluster, id, owner),
                    Err(error) => self.over(cluster, id, error),
                }
                self.look_at_queued(cluster, id)
            }
            Outcome::NewPlace => {
                let counter = queued.common().counter;
                self.leave_queue(cluster, id);
                self.join_queue(cluster, id, false, counter)
            }
            Outcome::Attempt => {
                self.contended.remove(waiter.acquisition.name());
                self.leave_queue(cluster, id);
                self.attempt_instead(cluster, id);
                None
            }
            Outcome::NoTurn => {
                self.stop_joining(id);
                self.leave_queue(cluster, id);
                self.ask_without_turn(cluster, id);
                None
            }
            Outcome::Over(error) => {
                self.over(cluster, id, error);
                None
            }
        }
    }

    fn won_queued(
        &mut self,
        cluster: &mut Cluster,
        id: AcquisitionId,
        won: Won,
    ) -> Option<Box<Grant>> {
        self.stop_joining(id);
        let one = self.table.get_mut(id)?;
        if won.target.slot().is_none() {
            let name = one.waiter.acquisition.name();
            match won.good.is_provisional {
                true => self.contended.insert(name, cluster.now),
                false => self.contended.remove(name),
            }
        }
        let Some(writer) = one.waiter.writer.take() else {
            let acquisition = self.table.remove(cluster, id)?.waiter.acquisition;
            return Some(Box::new(Grant { acquisition, won }));
        };
        // It is the writer's turn: it asks for its lock.
        let acquisition = mem::replace(&mut one.waiter, writer).acquisition;
        self.table.set(cluster, id, Stage::Begins);
        self.attempt(cluster, id);
        Some(Box::new(Grant { acquisition, won }))
    }

    /// Takes back everything that the nodes may know of it.
    fn leave_queue(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        if let Some(one) = self.table.get(id)
            && let Stage::Queued(queued) = one.stage()
        {
            queued.roll_back(cluster, &one.waiter);
            self.table.set(cluster, id, Stage::Begins);
        }
    }

    /// The acquisition is no longer queued, or cannot be. A writer that only queued for its turn asks without the turn.
    /// Any other acquisition is answered with the error.
    fn over(&mut self, cluster: &mut Cluster, id: AcquisitionId, error: Error) {
        self.stop_joining(id);
        self.leave_queue(cluster, id);
        let one = self.table.get(id);
        if one.is_some_and(|one| one.waiter.writer.is_some()) {
            self.ask_without_turn(cluster, id);
        } else if let Some(one) = self.table.remove(cluster, id) {
            one.waiter.answer(error);
        }
    }

    /// Too few nodes know of the place that it asked for, so it makes an attempt.
    fn attempt_instead(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        let Some(one) = self.table.get_mut(id) else {
            return;
        };
        if let Some(target) = one.waiter.counts_no_more(Counts::Joins) {
            self.throttle.asks_instead(&target);
            one.waiter.counts = Counts::Asks;
        }
        match &mut one.waiter.writer {
            Some(writer) => {
                writer.counts = one.waiter.counts;
                self.ask_without_turn(cluster, id);
            }
            None => self.ask(cluster, id),
        }
    }

    /// A writer could not get its turn, or has no time for it any more.
    fn ask_without_turn(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        let Some(one) = self.table.get_mut(id) else {
            return;
        };
        if let Some(writer) = one.waiter.writer.take() {
            one.waiter = writer;
        }
        one.waiter.turn = Turn {
            lease: None,
            alone_until: cluster.now.plus(ALONE),
        };
        if one.waiter.is_gone() {
            self.end(cluster, id);
            return;
        }
        match one.waiter.counts {
            // A crowd that leaves the queue at the same time must not ask at the same time.
            Counts::Not => {
                one.waiter.counts = Counts::Asks;
                self.attempt_when_unthrottled(cluster, id);
            }
            Counts::Asks | Counts::Joins => self.attempt(cluster, id),
        }
    }
}

// ---- Answers, pushes and deadlines

impl Acquisitions {
    /// Handles a node's answer to a request of this acquisition.
    pub(super) fn answered(
        &mut self,
        cluster: &mut Cluster,
        id: AcquisitionId,
        purpose: Purpose,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> Option<Box<Grant>> {
        let (waiter, stage) = self.table.get_mut(id)?.parts();
        match stage {
            Stage::Attempt(attempt) => {
                attempt.heard(cluster, node, answer);
                let seen = &waiter.acquisition.seen;
                seen.fetch_max(attempt.largest_counter(), Relaxed);
                self.look_at_attempt(cluster, id)
            }
            Stage::Queued(queued) => {
                let named = queued.answered(cluster, waiter, purpose, node, answer);
                self.last_ticket = self.last_ticket.max(named);
                self.look_at_queued(cluster, id)
            }
            Stage::Begins | Stage::Throttled | Stage::Rest => None,
        }
    }

    /// Handles a push from a node.
    pub(super) fn pushed(
        &mut self,
        cluster: &mut Cluster,
        node: usize,
        push: &Push,
    ) -> Option<Box<Grant>> {
        if push.says == Says::Freed {
            self.rwlock_freed(cluster, &push.entry);
            return None;
        }
        let id = self.table.by_owner(&push.entry)?;
        if let (waiter, Stage::Queued(queued)) = self.table.get_mut(id)?.parts() {
            queued.pushed(cluster, waiter, node, &push.says);
        }
        self.look_at_queued(cluster, id)
    }

    /// A read-write lock was freed. All acquisitions that wait for it ask again.
    fn rwlock_freed(&mut self, cluster: &mut Cluster, entry: &Entry) {
        for id in self.rwlock_waiters.waiting_with(entry) {
            let Some(one) = self.table.get_mut(id) else {
                continue;
            };
            match one.stage() {
                Stage::Rest => {
                    let at = one.waiter.next_attempt_at(cluster);
                    cluster.timers.at(Key::Acquisition(id), at);
                }
                Stage::Attempt(_) => {
                    if let Some(known) = &mut one.waiter.known {
                        known.was_freed = true;
                    }
                }
                Stage::Begins | Stage::Throttled | Stage::Queued(_) => {}
            }
        }
    }

    /// The states of nodes have changed. A node that is back does not know who waits. Returns the acquisitions that
    /// have to be [looked at](Self::look).
    pub(super) fn look_at_nodes(&mut self, cluster: &Cluster) -> Vec<AcquisitionId> {
        let voting: Vec<bool> = cluster.states().map(|it| it == NodeState::Voting).collect();
        let before = mem::replace(&mut self.voting, voting);
        let mut voted = before.iter().copied().chain(std::iter::repeat(false));
        let mut changes = Vec::new();
        for (node, votes) in self.voting.iter().enumerate() {
            if voted.next() != Some(*votes) {
                changes.push((node, *votes));
            }
        }
        let mut ids = Vec::new();
        if changes.is_empty() {
            return ids;
        }
        for (id, one) in self.table.iter_mut() {
            let (_, Stage::Queued(queued)) = one.parts() else {
                continue;
            };
            ids.push(id);
            for (node, votes) in &changes {
                match votes {
                    true => queued.node_came_back(cluster, *node),
                    false => queued.node_went(*node),
                }
            }
        }
        // The oldest comes first.
        ids.sort_unstable();
        ids
    }

    /// Does what follows from the votes or the places of an acquisition.
    pub(super) fn look(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<Box<Grant>> {
        match self.table.get(id)?.stage() {
            Stage::Attempt(_) => self.look_at_attempt(cluster, id),
            Stage::Queued(_) => self.look_at_queued(cluster, id),
            Stage::Begins | Stage::Throttled | Stage::Rest => None,
        }
    }

    /// The answers to a round are due.
    pub(super) fn answers_due(
        &mut self,
        cluster: &mut Cluster,
        round: RoundId,
    ) -> Option<Box<Grant>> {
        let id = self.by_round(round)?;
        match self.table.get_mut(id)?.parts().1 {
            Stage::Attempt(attempt) => attempt.due(cluster),
            Stage::Queued(queued) => queued.answers_due(cluster),
            Stage::Begins | Stage::Throttled | Stage::Rest => {}
        }
        self.look(cluster, id)
    }

    /// Begins the next attempt of an acquisition that rests. Does nothing if it no longer rests.
    pub(super) fn rest_is_over(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        let one = self.table.get(id);
        if one.is_some_and(|one| matches!(one.stage(), Stage::Rest)) {
            self.attempt(cluster, id);
        }
    }

    /// The timer of an acquisition rings: it makes its next attempt, or is looked at.
    pub(super) fn due(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<Box<Grant>> {
        let one = self.table.get(id)?;
        match one.stage() {
            Stage::Throttled => {
                if let Some(target) = one.waiter.acquisition.wants.target() {
                    self.throttle.ask_now(target, id);
                }
                self.table.set(cluster, id, Stage::Begins);
                self.attempt(cluster, id);
                None
            }
            Stage::Rest => {
                self.rest_is_over(cluster, id);
                None
            }
            Stage::Queued(_) => self.look_at_queued(cluster, id),
            Stage::Begins | Stage::Attempt(_) => None,
        }
    }
}

// ---- The end of acquisitions that were not granted

impl Acquisitions {
    /// The caller's future was dropped.
    pub(super) fn cancel(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        self.end(cluster, id);
    }

    /// All acquisitions end, because the quorum closes. Their callers find their channels closed.
    pub(super) fn close(&mut self, cluster: &mut Cluster) {
        for id in self.table.ids() {
            self.end(cluster, id);
        }
    }

    /// Ends an acquisition with this error, and tells the caller.
    fn tell(&mut self, cluster: &mut Cluster, id: AcquisitionId, error: Error) {
        if let Some(Row { mut waiter, .. }) = self.table.remove(cluster, id) {
            self.forget(cluster, &mut waiter);
            waiter.answer(error);
        }
    }

    /// Ends an acquisition, and takes back what it asked for.
    fn end(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<Box<Waiter>> {
        self.stop_joining(id);
        let (waiter, stage) = self.table.get_mut(id)?.parts();
        match stage {
            Stage::Begins | Stage::Rest => {}
            Stage::Throttled => {
                waiter.counts = Counts::Not;
                if let Some(target) = waiter.acquisition.wants.target() {
                    self.throttle.leave(target, id);
                }
            }
            Stage::Attempt(attempt) => attempt.roll_back(cluster),
            Stage::Queued(queued) => queued.roll_back(cluster, waiter),
        }
        let mut waiter = self.table.remove(cluster, id)?.waiter.of_caller();
        self.forget(cluster, &mut waiter);
        Some(waiter)
    }

    /// Its wait is over, and it was not granted.
    fn forget(&mut self, cluster: &mut Cluster, waiter: &mut Waiter) {
        self.rwlock_waiters.give_up(cluster, waiter);
        self.stop_asking(waiter);
    }

    /// From now on it does not count among the acquisitions that make attempts.
    fn stop_asking(&mut self, waiter: &mut Waiter) {
        if let Some(target) = waiter.counts_no_more(Counts::Asks) {
            self.throttle.done(&target);
        }
    }

    /// From now on it does not count among the acquisitions that join a queue.
    fn stop_joining(&mut self, id: AcquisitionId) {
        let one = self.table.get_mut(id);
        if let Some(target) = one.and_then(|one| one.waiter.counts_no_more(Counts::Joins)) {
            self.throttle.joined(&target);
        }
    }
}
