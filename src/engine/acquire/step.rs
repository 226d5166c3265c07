//! The steps of an acquisition. A step looks at one row, and returns what comes next. It never calls the next step.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    attempt::{Attempt, Progress, new_owner},
    peers::Peers,
    queued::{MutexQueue, Outcome, Queued, SlotSearch},
    table::{Row, Stage},
    waiter::{After, Waiter},
};
use crate::{
    Error, FencingToken,
    base::owner::Entry,
    engine::{
        cluster::Cluster,
        grant::Won,
        rollback::stop_waiting,
        wants::{Slot, Wants},
    },
    protocol::ballot::acquire::Failure,
};

/// The result of a step.
pub(super) enum Next {
    /// Nothing, until something happens.
    Wait,
    /// A step in this stage.
    To(Stage),
    /// The acquisition stays queued, and the nodes know it under this owner from now on.
    Under(Entry),
    /// A writer waits for its turn from now on. This is the acquisition of the turn.
    AwaitTurn(Box<Waiter>),
    /// The acquisition was won.
    Won(Box<Won>),
    /// The caller gets this error. Then everything that stands on the nodes is taken back.
    Tell(Error),
    /// It ends without an answer. Then everything that stands on the nodes is taken back.
    Gone,
}

impl Row {
    pub(super) fn step(&mut self, cluster: &mut Cluster, peers: &mut Peers) -> Next {
        let (waiter, stage) = self.parts();
        match stage {
            Stage::Enters => enters(waiter, cluster, peers),
            Stage::Begins => begins(waiter, cluster, peers),
            Stage::Asks => asks(waiter, cluster, peers),
            Stage::Joins { counter } => joins(waiter, Some(*counter), cluster, peers),
            Stage::JoinsLast => joins(waiter, None, cluster, peers),
            Stage::Throttled | Stage::Rest(_) | Stage::AwaitsTurn => Next::Wait,
            Stage::Attempt(attempt) => attempted(waiter, attempt, cluster, peers),
            Stage::Queued(queued) => look_at_queued(waiter, queued, cluster, peers),
        }
    }

    /// Takes back what may stand on the nodes.
    pub(super) fn roll_back(&mut self, cluster: &mut Cluster) {
        let (waiter, stage) = self.parts();
        match stage {
            Stage::Attempt(attempt) => attempt.roll_back(cluster),
            Stage::Queued(queued) => queued.roll_back(cluster, waiter),
            _ => {}
        }
    }
}

/// It waits while too many acquisitions of its target ask, or the nodes have enough to answer. A slot is looked for at
/// once.
fn enters(waiter: &mut Waiter, cluster: &mut Cluster, peers: &mut Peers) -> Next {
    let target = match &waiter.acquisition.request.wants {
        Wants::Lock(target) => target,
        Wants::Slot(slot) => {
            let slot = Slot::clone(slot);
            return searches(waiter, slot, cluster, peers);
        }
    };
    let at_once = !peers.throttle.find_next() && cluster.keeps_up();
    waiter.permit = peers.throttle.enter(target, waiter.acquisition.id, at_once);
    match waiter.permit {
        Some(_) => Next::To(Stage::Begins),
        None => Next::To(Stage::Throttled),
    }
}

/// Looks for a slot of a semaphore.
fn searches(waiter: &mut Waiter, slot: Slot, cluster: &mut Cluster, peers: &mut Peers) -> Next {
    let owner = match new_owner(cluster, &waiter.acquisition) {
        Ok(owner) => owner,
        Err(error) => return Next::Tell(error),
    };
    let after = peers.last_slot_ticket.saturating_add(1);
    let ticket = cluster.clock.wall_us().max(after);
    peers.last_slot_ticket = ticket;
    let mut search = SlotSearch::new(cluster, waiter, slot, owner, ticket);
    if let Some(error) = search.needs_history(cluster, waiter) {
        return Next::Tell(error);
    }
    search.begin(cluster, waiter);
    Next::To(Stage::Queued(Queued::Slot(Box::new(search))))
}

/// If the wait is over, the caller gets the error that is known. On a contended name the acquisition joins the queue
/// without an attempt, if all others of its target that may ask join it too.
fn begins(waiter: &mut Waiter, cluster: &mut Cluster, peers: &mut Peers) -> Next {
    if waiter.is_gone() {
        return Next::Gone;
    }
    // A wait that is over already, such as a wait of zero, is one attempt.
    let is_over = waiter.patience.is_over(cluster.now);
    if is_over {
        let last = waiter.last.take().map(|last| *last);
        let target = waiter.acquisition.request.wants.target();
        let refusal = || peers.throttle.refusal(target?).map(Error::Held);
        if let Some(last) = last.or_else(refusal) {
            return Next::Tell(last);
        }
    }
    let line = waiter.queue_name(cluster).filter(|_| !is_over);
    if let Some(line) = line
        && let Some(permit) = &mut waiter.permit
        && cluster.has_a_majority()
        && peers.contended.has(&line, cluster.now)
        && peers.throttle.try_join(permit)
    {
        return match waiter.acquisition.request.wants.side() {
            Some(_) => Next::AwaitTurn(waiter.for_turn(cluster, line)),
            None => Next::To(Stage::JoinsLast),
        };
    }
    Next::To(Stage::Asks)
}

fn asks(waiter: &mut Waiter, cluster: &mut Cluster, peers: &mut Peers) -> Next {
    let Wants::Lock(target) = waiter.acquisition.request.wants.clone() else {
        debug_assert!(false, "a slot is searched for");
        return Next::Gone;
    };
    waiter.patience.attempt();
    let floor = cluster.floor(waiter.acquisition.request.seen.load(Relaxed));
    let waiting = match peers.rwlock_waiters.tell_of(cluster, waiter) {
        Ok(waiting) => waiting,
        Err(error) => return Next::Tell(error),
    };
    match Attempt::begin(cluster, &waiter.acquisition, &target, floor, waiting) {
        Ok(attempt) => {
            if let Some(known) = &mut waiter.known {
                known.by.extend(&attempt.asked);
            }
            Next::To(Stage::Attempt(Box::new(attempt)))
        }
        Err(error) => Next::Tell(error),
    }
}

/// Looks at the votes of an attempt.
fn attempted(
    waiter: &mut Waiter,
    attempt: &mut Attempt,
    cluster: &mut Cluster,
    peers: &mut Peers,
) -> Next {
    match attempt.look(cluster) {
        Progress::Open => Next::Wait,
        Progress::Won(token) => {
            let known = peers.rwlock_waiters.leave(cluster, waiter);
            if let (Some(known), Some(target)) = (&known, waiter.acquisition.request.wants.target())
            {
                // The nodes that its last attempt did not ask would otherwise not hear that the wait has ended.
                let others = known.by.iter().copied();
                let others: Vec<usize> = others.filter(|n| !attempt.asked.contains(n)).collect();
                stop_waiting(cluster, target, &known.entry, others);
            }
            Next::Won(Box::new(attempt.won(token, known.map(|known| known.entry))))
        }
        Progress::Failed(failure) => failed(waiter, attempt, failure, cluster, peers),
    }
}

fn failed(
    waiter: &mut Waiter,
    attempt: &Attempt,
    failure: Failure,
    cluster: &mut Cluster,
    peers: &mut Peers,
) -> Next {
    let (error, next) = waiter.failed(cluster, attempt, failure);
    let refusal = match &error {
        Error::Held(report) => Some(report.clone()),
        _ => None,
    };
    if let Some(target) = waiter.acquisition.request.wants.target() {
        peers.throttle.told(target, refusal);
    }
    match next {
        After::Answer => Next::Tell(error),
        After::RestUntil(at) => {
            waiter.last = Some(Box::new(error));
            Next::To(Stage::Rest(at))
        }
        After::Queue(line) => {
            peers.contended.insert(&line, cluster.now);
            if waiter.acquisition.request.wants.side().is_some() {
                waiter.last = Some(Box::new(error));
                return Next::AwaitTurn(waiter.for_turn(cluster, line));
            }
            peers.saw_ticket(attempt.largest_ticket());
            Next::To(Stage::Joins {
                counter: attempt.largest_counter(),
            })
        }
    }
}

/// `counter` is the greatest that was seen. `None`: it takes a place only behind all others.
fn joins(
    waiter: &mut Waiter,
    counter: Option<u64>,
    cluster: &mut Cluster,
    peers: &mut Peers,
) -> Next {
    debug_assert!(
        waiter.acquisition.request.wants.line().is_some(),
        "it has no queue"
    );
    let owner = match new_owner(cluster, &waiter.acquisition) {
        Ok(owner) => owner,
        Err(error) => return Next::Tell(error),
    };
    let after = peers.last_ticket.saturating_add(1);
    let ticket = cluster.clock.wall_us().max(after).min(FencingToken::MAX);
    peers.last_ticket = ticket;
    let queued = MutexQueue::new(cluster, waiter, owner, ticket, counter);
    Next::To(Stage::Queued(Queued::Mutex(Box::new(queued))))
}

/// Does everything that can be done now for an acquisition that is queued.
fn look_at_queued(
    waiter: &mut Waiter,
    queued: &mut Queued,
    cluster: &mut Cluster,
    peers: &mut Peers,
) -> Next {
    if waiter.is_gone() {
        return Next::Gone;
    }
    match queued.advance(cluster, waiter) {
        Outcome::Waits => Next::Wait,
        Outcome::Won(won) => {
            if won.target.slot().is_none() {
                let name = waiter.acquisition.name();
                match won.good.is_provisional {
                    true => peers.contended.insert(name, cluster.now),
                    false => peers.contended.remove(name),
                }
            }
            Next::Won(won)
        }
        Outcome::NewOwner => match new_owner(cluster, &waiter.acquisition) {
            Ok(owner) => Next::Under(owner),
            Err(error) => Next::Tell(error),
        },
        Outcome::NewPlace => {
            let counter = queued.common().counter;
            queued.roll_back(cluster, waiter);
            Next::To(Stage::Joins { counter })
        }
        // Too few nodes know of the place that it asked for.
        Outcome::Attempt => {
            peers.contended.remove(waiter.acquisition.name());
            if waiter.for_writer.is_some() {
                // The writer makes the attempt, with the permit of its turn.
                return Next::Gone;
            }
            queued.roll_back(cluster, waiter);
            Next::To(Stage::Asks)
        }
        Outcome::NoTurn => {
            peers.give_back(waiter);
            Next::Gone
        }
        Outcome::Over(error) => Next::Tell(error),
    }
}
