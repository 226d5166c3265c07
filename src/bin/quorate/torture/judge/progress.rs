//! Progress: how long a name was wished for and nobody got it, and whether everybody went on after
//! the last fault. A fault that is said to stop somebody has to.

use super::{
    Finding,
    operations::{Change, Grant, History, Op},
};
use crate::torture::history::Kind;

/// What was on its way when the fault came.
const IN_FLIGHT: u64 = 1_000_000_000;

pub(super) struct Progress {
    pub(super) findings: Vec<Finding>,
    pub(super) longest_gap: Option<u64>,
}

/// Nobody was granted `name` from `from` to `until`.
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
        for gap in gaps(history, name, &grants) {
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

/// The times between one holder's end and the next one's grant; of a holder without an end, or that
/// ended when others had long taken over, from its grant on. Only while somebody wishes.
fn gaps<'a>(history: &History, name: &'a str, grants: &[(&Op, Grant)]) -> Vec<Gap<'a>> {
    let demand = demand(history, name);
    let Some((first, _)) = demand.first() else {
        return Vec::new();
    };
    let mut gaps = Vec::new();
    let mut from = *first;
    let nexts = grants
        .iter()
        .map(|(op, grant)| (grant.at, Some((op, grant))));
    let mut nexts = nexts.chain([(history.end, None)]).peekable();
    while let Some((until, next)) = nexts.next() {
        let during = demand.iter().map(|(start, stop)| Gap {
            name,
            from: from.max(*start),
            until: until.min(*stop),
        });
        gaps.extend(during.filter(|gap| gap.from < gap.until));
        let Some((op, grant)) = next else { break };
        let following = nexts.peek().map_or(u64::MAX, |(at, _)| *at);
        let over = op.ended.map(|end| end.at).filter(|over| *over <= following);
        from = over.unwrap_or(grant.at);
    }
    gaps
}

/// When there was a load: from a wish to the next time that a process was told to end.
fn demand(history: &History, name: &str) -> Vec<(u64, u64)> {
    let wishes = history.ops.iter().filter(|op| op.name == name);
    let mut wishes: Vec<u64> = wishes.map(|op| op.invoked).collect();
    wishes.sort_unstable();
    let mut stops = history.stopping.clone();
    stops.push(history.end);
    stops.sort_unstable();
    let mut demand = Vec::new();
    let mut start = wishes.first();
    for stop in stops {
        if let Some(from) = start.filter(|from| **from <= stop) {
            demand.push((*from, stop));
            start = wishes.get(wishes.partition_point(|wish| *wish <= stop));
        }
    }
    demand
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
