//! Order: no waiter is overtaken by another that asked long after it. This is judged only where it is certain: in a
//! history whose faults are known, between two operations that no fault concerned, and while the first one's process
//! never stood still.
//!
//! A process counts only after it was first granted anything, or has lived for 5 s. Before that it may still be
//! connecting, and it has no place in the queue until it is connected. (Measured: in its first moments an operation is
//! overtaken by others that ask up to 64 ms later, afterwards by 3 ms.)
//!
//! A semaphore serves the waiters in front in any order, and also all for which a slot is free. So there it is a
//! finding only if an operation overtakes as many waiters at once as there are slots.
//!
//! For several names at once no order is promised, but they must not overtake a waiter for one of these names alone.
//! For a read-write lock only one rule is judged: no reader overtakes a writer that waits alone.

use super::{
    Finding,
    operations::{History, Op, Process},
};
use crate::torture::history::{ALIVE, Kind};

/// An operation is in the queue of a majority this long after it asked. The time covers an attempt, taking the place,
/// and the delays of a busy machine.
const REGISTERED: u64 = 300_000_000;
/// A process that wrote nothing for this long may have stood still. A node may then have called it without an answer.
const STILL: u64 = 3 * ALIVE.as_nanos() as u64;
/// A process that has lived for this long is connected, even if it was never granted anything.
const CONNECTED: u64 = 5_000_000_000;
/// A wait that was given up ends a little before that is written.
const GIVEN_UP: u64 = 500_000_000;

pub(super) struct Order {
    pub(super) findings: Vec<Finding>,
    /// Pairs whose order was certain, and was kept.
    pub(super) kept: usize,
}

pub(super) fn check(history: &History) -> Order {
    let mut order = Order {
        findings: Vec::new(),
        kept: 0,
    };
    // Without a scenario it is not known what was broken, and when.
    if history.scenario.name.is_empty() {
        return order;
    }
    for (name, grants) in history.grants_by_name() {
        let mut all: Vec<&Op> = history
            .ops
            .iter()
            .filter(|op| op.names.iter().any(|its| its == name))
            .collect();
        all.sort_by_key(|op| op.invoked);
        let mut asked = all.iter().copied().peekable();
        let mut waiting: Vec<&Op> = Vec::new();
        for (op, grant) in &grants {
            while let Some(next) = asked.next_if(|next| next.invoked < grant.at) {
                waiting.push(next);
            }
            waiting.retain(|one| ends(one) >= grant.at && !std::ptr::eq(*one, *op));
            let mut overtakes = Vec::new();
            for other in &waiting {
                let (before, after) = (
                    other.invoked.saturating_add(REGISTERED) < op.invoked,
                    op.invoked.saturating_add(REGISTERED) < other.invoked,
                );
                if after
                    && comes_first(op, other, grant.at, &all)
                    && is_certain(history, op, other, grant.at)
                {
                    order.kept += 1;
                }
                if before
                    && comes_first(other, op, grant.at, &all)
                    && still_waits(other, grant.at)
                    && is_certain(history, other, op, grant.at)
                {
                    overtakes.push(*other);
                }
            }
            if overtakes.len() >= at_once(history) {
                let findings = overtakes.iter().map(|first| overtaken(history, first, op));
                order.findings.extend(findings);
            }
        }
    }
    order
}

/// The number of waiters that a later operation may overtake without a finding.
fn at_once(history: &History) -> usize {
    history.locks.limit.map_or(1, |limit| limit.max(2) as usize)
}

/// Returns true if `second`, which asked long after `first`, must not be served before it, until this instant. `all`
/// are the operations that asked for that name.
fn comes_first(first: &Op, second: &Op, until: u64, all: &[&Op]) -> bool {
    if first.side.is_none() {
        return first.names.len() == 1;
    }
    if first.reads() || !second.reads() {
        return false;
    }
    // A writer that frees the lock lets readers in, and so does a writer that got only a few nodes. So no other writer
    // may have been there recently.
    let since = second.invoked.saturating_sub(REGISTERED);
    let mut others = all.iter().filter(|op| !std::ptr::eq(**op, first));
    !others.any(|op| !op.reads() && op.invoked <= until && op.over.is_none_or(|over| over >= since))
}

/// When its wait ended. A wait whose process was killed has no known end.
fn ends(op: &Op) -> u64 {
    let granted = op.granted.map(|grant| grant.at);
    granted.or(op.over).unwrap_or(u64::MAX)
}

/// Returns true if it still waited at this instant. A wait that was given up may have ended a little before its line
/// was written.
fn still_waits(op: &Op, at: u64) -> bool {
    op.granted.is_some() || ends(op) > at.saturating_add(GIVEN_UP)
}

/// Returns true if nothing that happened until then excuses that the first one was served second.
fn is_certain(history: &History, first: &Op, second: &Op, until: u64) -> bool {
    let processes = [first, second].map(|op| history.processes.get(op.process));
    let [Some(of_first), Some(of_second)] = processes else {
        return false;
    };
    let disturbed = match &history.scenario.disturbs {
        Some(labels) => [of_first, of_second].iter().any(|process| {
            let mut labels = labels.iter();
            labels.any(|label| process.label.starts_with(label.as_str()))
        }),
        None => changes(history).any(|at| at < until.saturating_add(STILL)),
    };
    !disturbed && was_connected(of_first, first.invoked) && went_on(of_first, first.invoked, until)
}

fn changes(history: &History) -> impl Iterator<Item = u64> + '_ {
    let changes = history.faults.iter().chain(&history.healed);
    changes.map(|change| change.at)
}

/// Returns true if a majority had answered the process by then, or should have.
fn was_connected(process: &Process, at: u64) -> bool {
    let started = process.lines.first().copied().unwrap_or(0);
    let connected = started.saturating_add(CONNECTED);
    process.answered.unwrap_or(connected).min(connected) <= at
}

/// Returns true if the process wrote lines often enough during the whole time.
fn went_on(process: &Process, from: u64, until: u64) -> bool {
    let mut last = from;
    let start = process.lines.partition_point(|at| *at < from);
    for at in process.lines.iter().skip(start) {
        if at.saturating_sub(last) > STILL {
            return false;
        }
        if *at >= until {
            return true;
        }
        last = *at;
    }
    false
}

fn overtaken(history: &History, first: &Op, second: &Op) -> Finding {
    let late = second.invoked.saturating_sub(first.invoked) / 1_000_000;
    Finding {
        kind: Kind::Order,
        text: format!(
            "a waiter was overtaken by one that asked {late} ms after it: {} was overtaken by {}",
            history.tell(first),
            history.tell(second)
        ),
    }
}
