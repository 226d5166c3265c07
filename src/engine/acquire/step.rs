//! The steps of an acquisition. A step looks at one row, and returns what comes next. It never calls the next step.

use std::{mem, sync::atomic::Ordering::Relaxed, time::Duration};

use super::{
    attempt::{Attempt, Progress, new_owner},
    patience::Failure,
    peers::Peers,
    queued::{MutexQueue, Outcome, Queued, SlotSearch},
    table::{Row, Stage},
    waiter::{After, Counts, Turn, Waiter},
};
use crate::{
    Error, FencingToken,
    base::owner::Entry,
    engine::{
        cluster::Cluster,
        grant::{Grant, Won},
        rollback::stop_waiting,
        wants::{Slot, Wants},
    },
};

/// A writer that could not get its turn asks without it for this long.
const ALONE: Duration = Duration::from_secs(1);

/// The result of a step.
pub(super) enum Next {
    /// Nothing, until something happens.
    Wait,
    /// A step in this stage.
    To(Stage),
    /// The acquisition stays queued, and the nodes know it under this owner from now on.
    Under(Entry),
    /// A writer that had queued for its turn has it, and makes an attempt.
    HasTurn(Box<Grant>),
    /// The acquisition was won.
    Won(Box<Won>),
    /// The caller gets this error. Then everything that stands on the nodes is taken back.
    Tell(Error),
    /// Nobody waits for it any more. Then everything that stands on the nodes is taken back.
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
            Stage::Throttled | Stage::Rest(_) => Next::Wait,
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

/// It may ask as soon as few enough acquisitions of its target do. A slot is looked for at once.
fn enters(waiter: &mut Box<Waiter>, cluster: &mut Cluster, peers: &mut Peers) -> Next {
    let target = match &waiter.acquisition.wants {
        Wants::Lock(target) => target,
        Wants::Slot(slot) => {
            let slot = Slot::clone(slot);
            return searches(waiter, slot, cluster, peers);
        }
    };
    let at_once = !peers.throttle.find_next() && cluster.keeps_up();
    if peers.throttle.enter(target, waiter.acquisition.id, at_once) {
        waiter.counts = Counts::Asks;
        return Next::To(Stage::Begins);
    }
    Next::To(Stage::Throttled)
}

/// Looks for a slot of a semaphore.
fn searches(
    waiter: &mut Box<Waiter>,
    slot: Slot,
    cluster: &mut Cluster,
    peers: &mut Peers,
) -> Next {
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
/// without an attempt.
fn begins(waiter: &mut Box<Waiter>, cluster: &mut Cluster, peers: &mut Peers) -> Next {
    // A wait that is over already, such as a wait of zero, is one attempt.
    let is_over = waiter.patience.is_over(cluster.now);
    if is_over {
        let last = waiter.last.take().map(|last| *last);
        let target = waiter.acquisition.wants.target();
        let refusal = || peers.throttle.refusal(target?).map(Error::Held);
        if let Some(last) = last.or_else(refusal) {
            return Next::Tell(last);
        }
    }
    let line = waiter.queue_name(cluster).filter(|_| !is_over);
    if let Some(line) = line
        && waiter.counts == Counts::Asks
        && cluster.has_a_majority()
        && peers.contended.has(&line, cluster.now)
        && let Some(target) = waiter.acquisition.wants.target()
        && peers.throttle.try_join(target)
    {
        waiter.counts = Counts::Joins;
        if waiter.acquisition.wants.side().is_some() {
            let turn = waiter.for_turn(cluster, line);
            waiter.writer = Some(mem::replace(waiter, turn));
        }
        return Next::To(Stage::JoinsLast);
    }
    Next::To(Stage::Asks)
}

fn asks(waiter: &mut Box<Waiter>, cluster: &mut Cluster, peers: &mut Peers) -> Next {
    let Wants::Lock(target) = waiter.acquisition.wants.clone() else {
        debug_assert!(false, "a slot is searched for");
        return Next::Gone;
    };
    waiter.patience.attempt();
    let floor = cluster.floor(waiter.acquisition.seen.load(Relaxed));
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
    waiter: &mut Box<Waiter>,
    attempt: &mut Attempt,
    cluster: &mut Cluster,
    peers: &mut Peers,
) -> Next {
    match attempt.look(cluster) {
        Progress::Open => Next::Wait,
        Progress::Won(token) => {
            peers.stop_asking(waiter);
            let known = peers.rwlock_waiters.leave(cluster, waiter);
            if let (Some(known), Some(target)) = (&known, waiter.acquisition.wants.target()) {
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
    waiter: &mut Box<Waiter>,
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
    if let Some(target) = waiter.acquisition.wants.target() {
        peers.throttle.told(target, refusal);
    }
    match next {
        After::Answer => Next::Tell(error),
        After::RestUntil(at) => {
            waiter.last = Some(Box::new(error));
            Next::To(Stage::Rest(at))
        }
        After::Queue => {
            peers.stop_asking(waiter);
            let is_writer = waiter.acquisition.wants.side().is_some();
            let turn = waiter.queue_name(cluster).filter(|_| is_writer);
            let joins = match turn {
                None => {
                    peers.saw_ticket(attempt.largest_ticket());
                    Stage::Joins {
                        counter: attempt.largest_counter(),
                    }
                }
                Some(turn) => {
                    waiter.last = Some(Box::new(error));
                    let turn = waiter.for_turn(cluster, turn);
                    waiter.writer = Some(mem::replace(waiter, turn));
                    // The attempt was for the lock, so no node has named the waiters that queue for the turn.
                    Stage::JoinsLast
                }
            };
            peers
                .contended
                .insert(waiter.acquisition.name(), cluster.now);
            Next::To(joins)
        }
    }
}

/// `counter` is the greatest that was seen. `None`: it takes a place only behind all others.
fn joins(
    waiter: &mut Box<Waiter>,
    counter: Option<u64>,
    cluster: &mut Cluster,
    peers: &mut Peers,
) -> Next {
    let owner = match new_owner(cluster, &waiter.acquisition) {
        Ok(owner) => owner,
        Err(error) => {
            peers.stop_joining(waiter);
            return or_without_turn(waiter, error, cluster);
        }
    };
    let after = peers.last_ticket.saturating_add(1);
    let ticket = cluster.clock.wall_us().max(after).min(FencingToken::MAX);
    peers.last_ticket = ticket;
    let queued = MutexQueue::new(cluster, waiter, owner, ticket, counter);
    Next::To(Stage::Queued(Queued::Mutex(Box::new(queued))))
}

/// Does everything that can be done now for an acquisition that is queued.
fn look_at_queued(
    waiter: &mut Box<Waiter>,
    queued: &mut Queued,
    cluster: &mut Cluster,
    peers: &mut Peers,
) -> Next {
    if waiter.is_gone() {
        return Next::Gone;
    }
    match queued.advance(cluster, waiter) {
        Outcome::Waits => {
            if queued.counts_as_joined() {
                peers.stop_joining(waiter);
            }
            Next::Wait
        }
        Outcome::Won(won) => {
            peers.stop_joining(waiter);
            if won.target.slot().is_none() {
                let name = waiter.acquisition.name();
                match won.good.is_provisional {
                    true => peers.contended.insert(name, cluster.now),
                    false => peers.contended.remove(name),
                }
            }
            match waiter.writer.take() {
                None => Next::Won(won),
                Some(writer) => {
                    let acquisition = mem::replace(waiter, writer).acquisition;
                    Next::HasTurn(Box::new(Grant {
                        acquisition,
                        won: *won,
                    }))
                }
            }
        }
        Outcome::NewOwner => match new_owner(cluster, &waiter.acquisition) {
            Ok(owner) => Next::Under(owner),
            Err(error) => leaves(waiter, queued, error, cluster, peers),
        },
        Outcome::NewPlace => {
            let counter = queued.common().counter;
            queued.roll_back(cluster, waiter);
            Next::To(Stage::Joins { counter })
        }
        // Too few nodes know of the place that it asked for.
        Outcome::Attempt => {
            peers.contended.remove(waiter.acquisition.name());
            queued.roll_back(cluster, waiter);
            if let Some(target) = waiter.counts_no_more(Counts::Joins) {
                peers.throttle.asks_instead(&target);
                waiter.counts = Counts::Asks;
            }
            match waiter.writer.is_some() {
                true => without_turn(waiter, cluster),
                false => Next::To(Stage::Asks),
            }
        }
        Outcome::NoTurn => {
            peers.stop_joining(waiter);
            queued.roll_back(cluster, waiter);
            without_turn(waiter, cluster)
        }
        Outcome::Over(error) => leaves(waiter, queued, error, cluster, peers),
    }
}

/// The acquisition is no longer queued.
fn leaves(
    waiter: &mut Box<Waiter>,
    queued: &Queued,
    error: Error,
    cluster: &mut Cluster,
    peers: &mut Peers,
) -> Next {
    peers.stop_joining(waiter);
    // A writer goes on. All others end, which takes it back.
    if waiter.writer.is_some() {
        queued.roll_back(cluster, waiter);
    }
    or_without_turn(waiter, error, cluster)
}

/// The acquisition cannot be queued. A writer that only queues for its turn asks without it. Any other acquisition is
/// answered with the error.
fn or_without_turn(waiter: &mut Box<Waiter>, error: Error, cluster: &Cluster) -> Next {
    match waiter.writer.is_some() {
        true => without_turn(waiter, cluster),
        false => Next::Tell(error),
    }
}

/// A writer could not get its turn, or has no time for it any more.
fn without_turn(waiter: &mut Box<Waiter>, cluster: &Cluster) -> Next {
    debug_assert!(
        waiter.counts != Counts::Joins,
        "its permit counts as joining"
    );
    if let Some(mut writer) = waiter.writer.take() {
        writer.counts = waiter.counts;
        *waiter = writer;
    }
    waiter.turn = Turn {
        lease: None,
        alone_until: cluster.now.plus(ALONE),
    };
    match waiter.counts {
        // A crowd that leaves the queue at the same time must not ask at the same time.
        Counts::Not => Next::To(Stage::Enters),
        Counts::Asks | Counts::Joins => Next::To(Stage::Begins),
    }
}
