//! Acquisitions: from the call to a grant, or to an error.
//!
//! One [`Table`] has all of them, each in one [`Stage`]. The stage decides what an answer, a push or a deadline means.
//! [`Acquisitions::advance`] takes the steps that follow, until the acquisition waits in a stage or is over:
//!
//! | stage | what it does there | the next stage |
//! | --- | --- | --- |
//! | `Enters` | a slot: begins to search; a lock: wants a permit to ask | `Queued`, `Begins`, `Throttled` |
//! | `Throttled` | waits for its permit, or for the end of its wait | `Begins` |
//! | `Begins` | decides between an attempt and the queue | `Asks`, `JoinsLast`, `AwaitsTurn` |
//! | `Asks` | asks the nodes | `Attempt` |
//! | `Attempt` | waits for votes, counts them | `Rest`, `Joins`, `AwaitsTurn` |
//! | `Rest` | waits for the time of the next attempt | `Begins` |
//! | `JoinsLast` | takes a ticket, for a place behind all others | `Queued` |
//! | `Joins` | takes a ticket, for a place in the queue | `Queued` |
//! | `Queued` | waits for its place at the front, or for a slot | `Joins`, `Asks` |
//! | `AwaitsTurn` | a writer of a read-write lock: waits for its turn | `Begins`, `Enters` |
//!
//! A lock for a caller that does not wait starts in `Begins`, a writer's turn in `JoinsLast`, everything else in
//! `Enters`. An acquisition may be won in `Attempt` and in `Queued`, and may end with an error in all stages but
//! `Throttled`, `Rest` and `AwaitsTurn`. The caller may go at any time.
//!
//! `Queued` leads a mutex to `Joins` for a new place, and to `Asks` if too few nodes know its place. A slot stays queued
//! until it is won or ends. The turn of a writer is an acquisition of its own, which nobody but the writer hears of: it
//! ends where a mutex would make an attempt, or get an error. The writer then goes on, in `Enters` if it has neither the
//! turn nor a permit to ask.

mod attempt;
mod contended;
mod last;
pub(super) mod patience;
mod peers;
mod queued;
mod reach;
mod rwlock_waiters;
mod step;
mod table;
mod throttle;
mod waiter;

#[cfg(test)]
pub(super) use self::table::taken;

use std::{collections::VecDeque, mem, sync::atomic::Ordering::Relaxed};

use self::{
    peers::Peers,
    step::Next,
    table::{Row, Stage, Table},
    throttle::Permit,
    waiter::Waiter,
};
use crate::{
    Error, Silence,
    base::{clock::Tick, owner::Entry},
    engine::{
        cluster::Cluster,
        event::{Acquisition, AcquisitionId},
        grant::{Grant, Won},
        timers::Key,
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

#[derive(Default)]
pub(super) struct Acquisitions {
    table: Table,
    peers: Peers,
    /// Acquisitions that were won. The core makes leases of them.
    granted: VecDeque<Grant>,
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
            matches!(one.stage(), Stage::Rest(_)) && !one.waiter.patience.is_over(cluster.now)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The calls that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Acquisition> + '_ {
        let waiters = self.table.iter().map(|row| &row.waiter);
        let calls = waiters.filter(|waiter| waiter.for_writer.is_none());
        calls.map(|waiter| &waiter.acquisition)
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
            entries
                + self.granted.len()
                + self.peers.throttle.len()
                + self.peers.rwlock_waiters.len(),
        ]
    }

    pub(super) fn begin(&mut self, cluster: &mut Cluster, acquisition: Acquisition) {
        if acquisition.reply.is_closed() {
            return;
        }
        let id = acquisition.id;
        let waiter = Box::new(Waiter::new(acquisition));
        let enters = waiter.acquisition.request.wants.target().is_none() || waiter.patience.waits();
        let stage = match enters {
            true => Stage::Enters,
            false => Stage::Begins,
        };
        self.table.insert(waiter, stage);
        self.advance(cluster, id);
    }

    /// Takes step after step, until the acquisition has to wait or is over. Then goes on with the turn that a writer
    /// waits for, or with the writer of a turn that has ended.
    pub(super) fn advance(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        let mut next = Some(id);
        while let Some(id) = next {
            next = self.take_steps(cluster, id);
        }
    }

    /// Takes the steps of one acquisition. Returns the one that goes on after that: the turn for which this writer
    /// waits, or the writer whose turn has ended.
    fn take_steps(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<AcquisitionId> {
        let (row, index) = self.table.row(id)?;
        loop {
            match row.step(cluster, &mut self.peers) {
                Next::Wait => {
                    self.peers.settle_permit(row);
                    index.check(row);
                    return None;
                }
                Next::To(stage) => {
                    index.set(cluster, row, stage);
                    self.peers.settle_permit(row);
                }
                Next::Under(owner) => index.set_owner(cluster, row, owner),
                Next::AwaitTurn(turn) => {
                    index.set(cluster, row, Stage::AwaitsTurn);
                    self.peers.settle_permit(row);
                    let id = turn.acquisition.id;
                    self.table.insert(turn, Stage::JoinsLast);
                    return Some(id);
                }
                Next::Won(won) => return self.won(cluster, id, *won),
                Next::Tell(error) => return self.not_won(cluster, id, Some(error)),
                Next::Gone => return self.not_won(cluster, id, None),
            }
        }
    }

    /// The acquisition was won. Returns the writer, if this was its turn.
    fn won(&mut self, cluster: &mut Cluster, id: AcquisitionId, won: Won) -> Option<AcquisitionId> {
        let mut waiter = self.table.remove(cluster, id)?.waiter;
        debug_assert!(waiter.known.is_none(), "the nodes know it as a waiter");
        self.peers.give_back(&mut waiter);
        let (acquisition, writer) = (waiter.acquisition, waiter.for_writer);
        self.granted.push_back(Grant { acquisition, won });
        let (row, index) = self.table.row(writer?)?;
        row.waiter.got_turn();
        index.set(cluster, row, Stage::Begins);
        writer
    }

    /// The acquisition ends without a grant, and its caller gets the error, if there is one. Returns the writer, if this
    /// was its turn. Only a turn that ends without an error leaves its permit to the writer.
    fn not_won(
        &mut self,
        cluster: &mut Cluster,
        id: AcquisitionId,
        error: Option<Error>,
    ) -> Option<AcquisitionId> {
        let mut waiter = self.take_back(cluster, id)?;
        if error.is_some() {
            self.peers.give_back(&mut waiter);
        }
        if let Some(writer) = waiter.for_writer
            && let Some((row, index)) = self.table.row(writer)
        {
            row.waiter.got_no_turn(cluster, *waiter);
            let stage = match row.waiter.permit {
                // A crowd that leaves the queue at the same time must not ask at the same time.
                None => Stage::Enters,
                Some(_) => Stage::Begins,
            };
            index.set(cluster, row, stage);
            self.peers.settle_permit(row);
            return Some(writer);
        }
        debug_assert!(waiter.for_writer.is_none(), "a turn without its writer");
        self.peers.forget(cluster, &mut waiter);
        if let Some(error) = error {
            waiter.answer(error);
        }
        None
    }

    pub(super) fn is_any_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// The next acquisition that was won.
    pub(super) fn next_grant(&mut self) -> Option<Grant> {
        self.granted.pop_front()
    }

    /// Begins acquisitions that waited because too many were asking.
    pub(super) fn begin_throttled(&mut self, cluster: &mut Cluster) {
        for _ in 0..BEGIN_AT_ONCE {
            let now = cluster.now;
            match self.peers.throttle.begin(now, || cluster.keeps_up()) {
                Some((id, permit)) => self.permit(cluster, id, permit),
                None => return,
            }
        }
    }

    /// A throttled acquisition may ask now.
    fn permit(&mut self, cluster: &mut Cluster, id: AcquisitionId, permit: Permit) {
        let Some((row, index)) = self.table.row(id) else {
            debug_assert!(false, "nobody needs this permit");
            return self.peers.throttle.give_back(permit);
        };
        debug_assert!(
            matches!(row.stage(), Stage::Throttled),
            "a permit for one that is not throttled"
        );
        row.waiter.permit = Some(permit);
        index.set(cluster, row, Stage::Begins);
        self.advance(cluster, id);
    }

    /// The time at which [`begin_throttled`](Self::begin_throttled) has something to do.
    pub(super) fn next_throttled(&self, cluster: &Cluster) -> Option<Tick> {
        self.peers.throttle.due(cluster.now, || cluster.keeps_up())
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
    ) {
        let Some(row) = self.table.get_mut(id) else {
            return;
        };
        let (waiter, stage) = row.parts();
        match stage {
            Stage::Attempt(attempt) => {
                attempt.heard(cluster, node, answer);
                let seen = &waiter.acquisition.request.seen;
                seen.fetch_max(attempt.largest_counter(), Relaxed);
            }
            Stage::Queued(queued) => {
                let named = queued.answered(cluster, waiter, purpose, node, answer);
                self.peers.saw_ticket(named);
            }
            _ => return,
        }
        self.advance(cluster, id);
    }

    /// Handles a push from a node.
    pub(super) fn pushed(&mut self, cluster: &mut Cluster, node: usize, push: &Push) {
        if push.says == Says::Freed {
            return self.rwlock_freed(cluster, &push.entry);
        }
        if let Some(id) = self.table.by_owner(&push.entry)
            && let Some(row) = self.table.get_mut(id)
            && let (waiter, Stage::Queued(queued)) = row.parts()
        {
            queued.pushed(cluster, waiter, node, &push.says);
            self.advance(cluster, id);
        }
    }

    /// A read-write lock was freed. All acquisitions that wait for it ask again.
    fn rwlock_freed(&mut self, cluster: &mut Cluster, entry: &Entry) {
        for id in self.peers.rwlock_waiters.waiting_with(entry) {
            let Some(one) = self.table.get_mut(id) else {
                continue;
            };
            match one.stage() {
                Stage::Rest(_) => {
                    let at = one.waiter.next_attempt_at(cluster);
                    cluster.timers.at(Key::Acquisition(id), at);
                }
                Stage::Attempt(_) => {
                    if let Some(known) = &mut one.waiter.known {
                        known.was_freed = true;
                    }
                }
                _ => {}
            }
        }
    }

    /// The states of nodes have changed. A node that is back does not know who waits. Returns the acquisitions that
    /// have to be [advanced](Self::advance).
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

    /// The answers to a round are due.
    pub(super) fn answers_due(&mut self, cluster: &mut Cluster, round: RoundId) {
        if let Some(id) = self.by_round(round)
            && let Some(row) = self.table.get_mut(id)
        {
            match row.parts().1 {
                Stage::Attempt(attempt) => attempt.due(cluster),
                Stage::Queued(queued) => queued.answers_due(cluster),
                _ => {}
            }
            self.advance(cluster, id);
        }
    }

    /// Begins the next attempt of an acquisition that rests. Does nothing if it no longer rests.
    pub(super) fn rest_is_over(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        if let Some((row, index)) = self.table.row(id)
            && matches!(row.stage(), Stage::Rest(_))
        {
            index.set(cluster, row, Stage::Begins);
            self.advance(cluster, id);
        }
    }

    /// The timer of an acquisition rings: it makes its next attempt, or is looked at.
    pub(super) fn due(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        let Some(one) = self.table.get(id) else {
            return;
        };
        match one.stage() {
            Stage::Throttled => {
                if let Some(target) = one.waiter.acquisition.request.wants.target()
                    && let Some(permit) = self.peers.throttle.ask_now(target, id)
                {
                    self.permit(cluster, id, permit);
                }
            }
            Stage::Rest(_) => self.rest_is_over(cluster, id),
            Stage::Queued(_) => self.advance(cluster, id),
            _ => {}
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

    /// Ends an acquisition that was not granted, and with a writer its turn. Takes back what they asked for.
    fn end(&mut self, cluster: &mut Cluster, id: AcquisitionId) {
        let awaits_turn = |row: &Row| matches!(row.stage(), Stage::AwaitsTurn);
        let turn = self.table.get(id).filter(|row| awaits_turn(row));
        let turn = turn.map(|_| id.of_turn());
        debug_assert!(
            turn.is_none_or(|turn| self.table.get(turn).is_some()),
            "a writer awaits no turn"
        );
        for id in turn.into_iter().chain([id]) {
            if let Some(mut waiter) = self.take_back(cluster, id) {
                self.peers.forget(cluster, &mut waiter);
            }
        }
    }

    /// Removes an acquisition that was not granted, and takes back what stands on the nodes.
    fn take_back(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<Box<Waiter>> {
        let row = self.table.get_mut(id)?;
        row.roll_back(cluster);
        if let Stage::Throttled = row.stage()
            && let Some(target) = row.waiter.acquisition.request.wants.target()
        {
            self.peers.throttle.leave(target, id);
        }
        Some(self.table.remove(cluster, id)?.waiter)
    }
}
