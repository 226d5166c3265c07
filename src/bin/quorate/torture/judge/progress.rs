//! Progress: how long a name was wished for and free and nobody got it, and whether everybody went on after the last fault.
//! A fault that is said to stop somebody has to stop them.

use super::{
    Finding,
    operations::{Change, Grant, History, Op},
};
use crate::torture::history::{Kind, Scenario};

/// What was on its way when the fault came.
const IN_FLIGHT: u64 = 1_000_000_000;

/// Between two wishes of one task; see the load.
const REST: u64 = 500_000_000;
/// Without a scenario: every name was granted within this time before the end of the load.
const LATELY: u64 = 15_000_000_000;

pub(super) struct Progress {
    pub(super) findings: Vec<Finding>,
    pub(super) longest_gap: Option<u64>,
}

/// From `from` to `until` nobody was granted `name`.
struct Gap<'a> {
    name: &'a str,
    from: u64,
    until: u64,
}

pub(super) fn check(history: &History) -> Progress {
    let mut findings = Vec::new();
    let mut longest: Option<Gap<'_>> = None;
    let last_change = history
        .faults
        .iter()
        .chain(&history.healed)
        .max_by_key(|change| change.at);
    for (name, grants) in history.grants_by_name() {
        let gaps = gaps(history, name, &grants);
        findings.extend(never(history, name, &grants, &gaps));
        for gap in gaps {
            if longest
                .as_ref()
                .is_none_or(|most| gap.until - gap.from > most.until - most.from)
            {
                longest = Some(gap);
            }
        }
        if let Some(change) = last_change
            && !grants.iter().any(|(_, grant)| grant.at > change.at)
        {
            let last = grants.last().map(|(op, _)| history.tell(op));
            findings.push(Finding {
                kind: Kind::Progress,
                text: format!(
                    "nobody was granted {name:?} after the last fault ({}, at {}); the last was {}",
                    change.what,
                    history.time(change.at),
                    last.as_deref().unwrap_or("nobody ever")
                ),
            });
        }
    }
    if let (Some(gap), Some(promised)) = (&longest, history.scenario.gap_ms)
        && gap.until - gap.from > promised.saturating_mul(1_000_000)
    {
        findings.push(Finding {
            kind: Kind::Progress,
            text: format!(
                "nobody was granted {:?} for {} ms, from {} to {}, and {promised} ms is promised",
                gap.name,
                (gap.until - gap.from) / 1_000_000,
                history.time(gap.from),
                history.time(gap.until)
            ),
        });
    }
    for fault in &history.faults {
        findings.extend(without_effect(history, fault));
    }
    Progress {
        findings,
        longest_gap: longest.map(|gap| gap.until - gap.from),
    }
}

/// A name that nobody ever got; or nobody any more, where no scenario says what may happen.
fn never(
    history: &History,
    name: &str,
    grants: &[(&Op, Grant)],
    gaps: &[Gap<'_>],
) -> Option<Finding> {
    let last = grants.last().map_or(0, |(_, grant)| grant.at);
    let after = gaps.iter().filter(|gap| gap.from >= last);
    let waited: u64 = after.map(|gap| gap.until - gap.from).sum();
    let finding = |text| Finding {
        kind: Kind::Progress,
        text,
    };
    match grants.last() {
        None => Some(finding(format!("nobody was ever granted {name:?}"))),
        Some((op, _)) if history.scenario == Scenario::default() && waited > LATELY => {
            Some(finding(format!(
                "nobody was granted {name:?} for the last {} s; the last was {}",
                waited / 1_000_000_000,
                history.tell(op)
            )))
        }
        Some(_) => None,
    }
}

/// The times between the end of one hold and the next grant, while somebody wished. Of a semaphore: while a slot was free.
fn gaps<'a>(history: &History, name: &'a str, grants: &[(&Op, Grant)]) -> Vec<Gap<'a>> {
    let demand = demand(history, name);
    let slots = history.limit.unwrap_or(1).max(1) as usize;
    let mut gaps = Vec::new();
    // The ends of those who hold the longest, one for each slot: from the first of them on one is free.
    let mut ends: Vec<u64> = Vec::new();
    let mut from = 0;
    let nexts = grants
        .iter()
        .map(|(op, grant)| (grant.at, Some((op, grant))));
    for (until, next) in nexts.chain([(history.end, None)]) {
        let during = demand.iter().map(|(start, stop)| Gap {
            name,
            from: from.max(*start),
            until: until.min(*stop),
        });
        gaps.extend(during.filter(|gap| gap.from < gap.until));
        if let Some((op, grant)) = next {
            ends.push(history.held(op).map_or(grant.at, |(_, end)| end));
            ends.sort_unstable_by(|one, other| other.cmp(one));
            ends.truncate(slots);
            let one_free = ends.get(slots - 1).copied().unwrap_or(0);
            from = one_free.max(grant.at).max(from);
        }
    }
    gaps
}

/// When somebody wished for it: until the wish was granted or given up, or its process was told to end.
fn demand(history: &History, name: &str) -> Vec<(u64, u64)> {
    let wishes = history.ops.iter().filter(|op| op.name == name);
    let mut wishes: Vec<(u64, u64)> = wishes.filter_map(|op| wish(history, op)).collect();
    wishes.sort_unstable();
    let mut demand: Vec<(u64, u64)> = Vec::new();
    for (from, until) in wishes {
        match demand.last_mut() {
            // A task rests before it wishes again.
            Some((_, end)) if from <= end.saturating_add(REST) => *end = until.max(*end),
            _ => demand.push((from, until)),
        }
    }
    demand
}

fn wish(history: &History, op: &Op) -> Option<(u64, u64)> {
    let process = history.processes.get(op.process)?;
    // Told to end while it went to write this down.
    if process.stopped.is_some_and(|stopped| stopped < op.invoked) {
        return None;
    }
    let answered = op.granted.map(|grant| grant.at).or(op.over);
    let stops = history.stopping.iter().chain(&process.stopped);
    let stop = stops.filter(|stop| **stop >= op.invoked).min();
    let until = answered.unwrap_or(process.last);
    Some((op.invoked, stop.map_or(until, |stop| until.min(*stop))))
}

fn without_effect(history: &History, fault: &Change) -> Option<Finding> {
    let stops = fault.stops.as_deref()?;
    let healed = history
        .healed
        .iter()
        .map(|change| change.at)
        .filter(|at| *at > fault.at)
        .min();
    let during = fault.at.saturating_add(IN_FLIGHT)..healed.unwrap_or(u64::MAX);
    let stopped = |op: &&Op| {
        let process = history.processes.get(op.process);
        let meant = process.is_some_and(|process| stops == "*" || process.label.starts_with(stops));
        meant && op.granted.is_some_and(|grant| during.contains(&grant.at))
    };
    let op = history.ops.iter().find(stopped)?;
    Some(Finding {
        kind: Kind::Vacuous,
        text: format!(
            "the fault was none ({}, at {}): meanwhile {}",
            fault.what,
            history.time(fault.at),
            history.tell(op)
        ),
    })
}
