//! Order: who waits is not overtaken by one that asked long after it. Only where that is certain: in a history whose faults
//! are known, between two whom none of them concerned, and while the first one's process never stood still.
//! And only of what a process asks after it was first granted anything, or has lived for 5 s: before that it may still be
//! connecting, and has no place in line until it is. (Measured: in its first moments one is overtaken by those who ask up to
//! 64 ms later, afterwards by 3 ms.)
//!
//! Of a semaphore those in front are served in any order, and so are all for whom a slot is free: there it is found where
//! one overtakes as many as that at once.
//!
//! Of several names at once no order is promised, but they do not overtake who waits for one of them alone. Of a read-write
//! lock only this: one writer that waits alone is overtaken by no reader.

use super::{
    Finding,
    operations::{History, Op, Process},
};
use crate::torture::history::{ALIVE, Kind};

/// So long after it asked one stands in line on a majority: an attempt, its place, and what a busy machine adds.
const REGISTERED: u64 = 300_000_000;
/// A process that wrote nothing for so long may have stood still. A node then may have called it in vain.
const STILL: u64 = 3 * ALIVE.as_nanos() as u64;
/// A process that lives for so long is connected, though it was never granted anything.
const CONNECTED: u64 = 5_000_000_000;
/// A wait that was given up is over a little before that is written.
const GIVEN_UP: u64 = 500_000_000;

pub(super) struct Order {
    pub(super) findings: Vec<Finding>,
    /// Pairs of which the order was certain, and kept.
    pub(super) kept: usize,
}

pub(super) fn check(history: &History) -> Order {
    let mut order = Order {
        findings: Vec::new(),
        kept: 0,
    };
    // Nobody says what was broken, and when.
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

/// So many may stand behind one that asked after them.
fn at_once(history: &History) -> usize {
    history.locks.limit.map_or(1, |limit| limit.max(2) as usize)
}

/// Whether `second`, which asked long after `first`, may not come before it, until this instant. `all`: who asked for that
/// name.
fn comes_first(first: &Op, second: &Op, until: u64, all: &[&Op]) -> bool {
    if first.side.is_none() {
        return first.names.len() == 1;
    }
    if first.reads() || !second.reads() {
        return false;
    }
    // A writer that frees the lock lets readers in, also one that got a few nodes in vain: no other has been there for long.
    let since = second.invoked.saturating_sub(REGISTERED);
    let mut others = all.iter().filter(|op| !std::ptr::eq(**op, first));
    !others.any(|op| !op.reads() && op.invoked <= until && op.over.is_none_or(|over| over >= since))
}

/// When its wait was over. Never, as far as is known, where its process was killed.
fn ends(op: &Op) -> u64 {
    let granted = op.granted.map(|grant| grant.at);
    granted.or(op.over).unwrap_or(u64::MAX)
}

/// Not only was that not written yet: it had not given up by then.
fn still_waits(op: &Op, at: u64) -> bool {
    op.granted.is_some() || ends(op) > at.saturating_add(GIVEN_UP)
}

/// Whether nothing that happened until then excuses that the first one came second.
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

/// Whether a majority had answered it by then, or should have.
fn was_connected(process: &Process, at: u64) -> bool {
    let started = process.lines.first().copied().unwrap_or(0);
    let connected = started.saturating_add(CONNECTED);
    process.answered.unwrap_or(connected).min(connected) <= at
}

/// Whether the process wrote a line often enough all the time.
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
            "one that waited was overtaken by one that asked {late} ms after it: {}; before it came {}",
            history.tell(first),
            history.tell(second)
        ),
    }
}
