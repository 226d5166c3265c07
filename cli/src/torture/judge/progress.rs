//! Progress: for how long a name was asked for and free but granted to nobody, and whether every process went on after
//! the last fault. Several names at once are free while all of them are free. On a read-write lock both sides must go
//! on. A fault that is said to stop a process must stop it.

use super::{
    Finding,
    operations::{Change, Grant, History, Op},
};
use crate::torture::history::{Kind, Scenario, Side};

/// The time in which requests that were under way when the fault came may still succeed.
const IN_FLIGHT: u64 = 1_000_000_000;

/// The time in which each client has noticed that a master votes: handshakes come every second, attempts every 500 ms
/// at least, and a slow machine needs as long again.
const NOTICED: u64 = 3_000_000_000;

/// The rest between two operations of one task. See the load.
const REST: u64 = 500_000_000;
/// Without a scenario, every name must have been granted within this time before the end of the load.
const LATELY: u64 = 15_000_000_000;

pub(super) struct Progress {
    pub(super) findings: Vec<Finding>,
    pub(super) longest_gap: Option<u64>,
}

/// Nobody was granted any of `names` between `from` and `until`.
struct Gap {
    names: String,
    from: u64,
    until: u64,
}

/// A grant of a name, and the instant at which the name was free again.
struct Taken {
    at: u64,
    free: u64,
}

pub(super) fn check(history: &History) -> Progress {
    let mut findings = Vec::new();
    let mut longest: Option<Gap> = None;
    let last_change = history
        .faults
        .iter()
        .chain(&history.healed)
        .max_by_key(|change| change.at);
    let all = history.grants_by_name();
    let all: Vec<_> = all
        .into_iter()
        .map(|(name, grants)| (name, taken(history, &grants), grants))
        .collect();
    for (name, taken, grants) in &all {
        let gaps = gaps(history, name, taken);
        findings.extend(never(history, name, grants, &gaps));
        findings.extend(starved(history, name, grants));
        findings
            .extend(last_change.and_then(|change| not_after(history, name, grants, change, taken)));
        longest = longest.into_iter().chain(gaps).max_by_key(Gap::length);
    }
    let of_several = history.ops.iter().filter(|op| op.names.len() > 1);
    let of_several = of_several.flat_map(|op| {
        let its = all
            .iter()
            .filter(|(name, ..)| op.names.iter().any(|its| its == name));
        let its: Vec<&[Taken]> = its.map(|(_, taken, _)| taken.as_slice()).collect();
        let free = wish(history, op).map(|wish| free(&its, wish));
        let gap = |(from, until)| Gap {
            names: op.names.join(" and "),
            from,
            until,
        };
        free.into_iter().flatten().map(gap).collect::<Vec<_>>()
    });
    longest = longest
        .into_iter()
        .chain(of_several)
        .max_by_key(Gap::length);
    if let (Some(gap), Some(promised)) = (&longest, history.scenario.gap_ms)
        && gap.length() > promised.saturating_mul(1_000_000)
    {
        findings.push(finding(format!(
            "nobody was granted {:?} for {} ms, from {} to {}, but at most {promised} ms is promised",
            gap.names,
            gap.length() / 1_000_000,
            history.time(gap.from),
            history.time(gap.until)
        )));
    }
    for fault in &history.faults {
        findings.extend(without_effect(history, fault));
    }
    Progress {
        findings,
        longest_gap: longest.map(|gap| gap.length()),
    }
}

impl Gap {
    fn length(&self) -> u64 {
        self.until - self.from
    }
}

/// Finds a name that nobody ever got. Where no scenario says what may happen, it also finds one that nobody got any
/// more.
fn never(history: &History, name: &str, grants: &[(&Op, Grant)], gaps: &[Gap]) -> Option<Finding> {
    let Some((op, last)) = grants.last() else {
        return Some(finding(format!("nobody was ever granted {name:?}")));
    };
    let after = gaps.iter().filter(|gap| gap.from >= last.at);
    let waited: u64 = after.map(Gap::length).sum();
    (history.scenario == Scenario::default() && waited > LATELY).then(|| {
        finding(format!(
            "nobody was granted {name:?} for the last {} s; the last grant: {}",
            waited / 1_000_000_000,
            history.tell(op)
        ))
    })
}

/// For a read-write lock: finds that no reader, or no writer, was granted it any more. Grants to the other side do not
/// excuse this.
fn starved(history: &History, name: &str, grants: &[(&Op, Grant)]) -> Vec<Finding> {
    if history.scenario != Scenario::default() {
        return Vec::new();
    }
    let sides = [(Side::Reader, "read"), (Side::Writer, "write")];
    let starved = sides.into_iter().filter_map(|(side, what)| {
        let its = grants.iter().filter(|(op, _)| op.side == Some(side));
        let last = its.map(|(_, grant)| grant.at).max().unwrap_or(0);
        let demand = demand(history, name, Some(side)).into_iter();
        let waited = demand.map(|(from, until)| until.saturating_sub(from.max(last)));
        let waited: u64 = waited.sum();
        (waited > LATELY).then(|| {
            finding(format!(
                "nobody was granted {name:?} to {what} for the last {} s, although somebody waited for it",
                waited / 1_000_000_000
            ))
        })
    });
    starved.collect()
}

fn not_after(
    history: &History,
    name: &str,
    grants: &[(&Op, Grant)],
    change: &Change,
    taken: &[Taken],
) -> Option<Finding> {
    if grants.iter().any(|(_, grant)| grant.at > change.at) {
        return None;
    }
    if history.locks.several && !was_due(history, name, change, taken) {
        return None;
    }
    let last = grants.last().map(|(op, _)| history.tell(op));
    Some(finding(format!(
        "nobody was granted {name:?} after the last fault ({}, at {}); the last grant: {}",
        change.what,
        history.time(change.at),
        last.as_deref().unwrap_or("none")
    )))
}

/// Returns true if a name of sets must have been granted after the last fault. A set has no place in a queue, so it is
/// not promised a grant by the end of the run. So the name counts only if operations waited for it alone once the
/// masters voted.
fn was_due(history: &History, name: &str, change: &Change, taken: &[Taken]) -> bool {
    let Some(voting) = history.voting.iter().find(|at| **at > change.at) else {
        return false;
    };
    let wishes = demand(history, name, None).into_iter();
    let mut waits =
        wishes.flat_map(|(from, until)| free(&[taken], (from.max(*voting), until.max(*voting))));
    waits.any(|(from, until)| until - from >= NOTICED)
}

fn finding(text: String) -> Finding {
    Finding {
        kind: Kind::Progress,
        text,
    }
}

/// The grants of a name in their order. A semaphore is free while one of its slots is free.
fn taken(history: &History, grants: &[(&Op, Grant)]) -> Vec<Taken> {
    let slots = history.locks.limit.unwrap_or(1).max(1) as usize;
    // The ends of the longest holds, one for each slot. From the earliest of them on one slot is free.
    let mut ends: Vec<u64> = Vec::new();
    let mut free = 0;
    let taken = grants.iter().map(|(op, grant)| {
        ends.push(history.held(op).map_or(grant.at, |(_, end)| end));
        ends.sort_unstable_by(|one, other| other.cmp(one));
        ends.truncate(slots);
        let one_free = ends.get(slots - 1).copied().unwrap_or(0);
        free = one_free.max(grant.at).max(free);
        Taken { at: grant.at, free }
    });
    taken.collect()
}

/// The times between the end of one hold and the next grant, while an operation asked for this name alone.
fn gaps(history: &History, name: &str, taken: &[Taken]) -> Vec<Gap> {
    let all = demand(history, name, None).into_iter();
    let free = all.flat_map(|wish| free(&[taken], wish));
    let gap = |(from, until)| Gap {
        names: name.to_owned(),
        from,
        until,
    };
    free.map(gap).collect()
}

/// The times in which all of these names were free while an operation asked for them, each until one of them was
/// granted.
fn free(names: &[&[Taken]], (start, stop): (u64, u64)) -> Vec<(u64, u64)> {
    let mut from = start;
    let mut nexts: Vec<&Taken> = Vec::new();
    for taken in names {
        let (before, after) = taken.split_at(taken.partition_point(|grant| grant.at < start));
        from = from.max(before.last().map_or(0, |grant| grant.free));
        nexts.extend(after.iter().take_while(|grant| grant.at < stop));
    }
    nexts.sort_by_key(|grant| grant.at);
    let mut times = Vec::new();
    for next in nexts {
        times.push((from, next.at));
        from = from.max(next.free);
    }
    times.push((from, stop));
    times.retain(|(from, until)| from < until);
    times
}

/// The times in which operations asked for this name alone. Each lasts until the operation was granted or gave up, or
/// its process was told to end. With a side, only operations of that side count.
fn demand(history: &History, name: &str, side: Option<Side>) -> Vec<(u64, u64)> {
    let wishes = history.ops.iter().filter(|op| op.is_for(name));
    let wishes = wishes.filter(|op| side.is_none() || op.side == side);
    let mut wishes: Vec<(u64, u64)> = wishes.filter_map(|op| wish(history, op)).collect();
    wishes.sort_unstable();
    let mut demand: Vec<(u64, u64)> = Vec::new();
    for (from, until) in wishes {
        match demand.last_mut() {
            // A task rests before it asks again.
            Some((_, end)) if from <= end.saturating_add(REST) => *end = until.max(*end),
            _ => demand.push((from, until)),
        }
    }
    demand
}

fn wish(history: &History, op: &Op) -> Option<(u64, u64)> {
    let process = history.processes.get(op.process)?;
    // The process was told to end while it was about to write this line.
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
            "the fault had no effect ({}, at {}): meanwhile {}",
            fault.what,
            history.time(fault.at),
            history.tell(op)
        ),
    })
}
