//! The answers about a semaphore as a whole: how many slots are free, and its limit.

use std::time::Duration;

use crate::{
    Error, LimitConflict, Report, Silence, Vote,
    base::{
        limit::{Agreed, Limit},
        rules::Rule,
    },
    engine::cluster::Cluster,
    node::{
        answer::{Answer, PoolInspection},
        request::Pool,
        status::NodeState,
    },
    protocol::ballot::answers::{Answers, Evidence, Heard},
};

/// The limit that stands on a node.
#[derive(PartialEq)]
pub(super) struct Found(Limit);

/// A node confirmed that a slot is free.
#[derive(PartialEq)]
pub(super) struct Freed;

impl Evidence for Freed {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

impl Evidence for PoolInspection {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

impl Evidence for Found {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

pub(super) fn found(answer: Answer) -> Option<Found> {
    match answer {
        Answer::Limit(limit) => Some(Found(limit)),
        _ => None,
    }
}

pub(super) fn freed(answer: Answer) -> Option<Freed> {
    match answer {
        Answer::Released(_) => Some(Freed),
        _ => None,
    }
}

/// The answers of all nodes, for an error.
pub(super) fn report<T: Evidence + PartialEq>(
    cluster: &Cluster,
    pool: &Pool,
    answers: &Answers<T>,
) -> Report {
    let again = Some(cluster.try_again(cluster.needed));
    answers.report(
        pool.name.as_str(),
        cluster.needed,
        &cluster.settings.nodes,
        again,
    )
}

/// The limit that replaces the one in force. Its version is greater than that of any limit that a program was made
/// with.
pub(super) fn next_limit(known: Option<Limit>, slots: u32) -> Limit {
    let version = known.map_or(1, |known| known.version.max(1)) + 1;
    Limit { version, slots }
}

/// The greatest limit that is known.
///
/// # Errors
/// `Quarantined` or `NoQuorum` if fewer than Q nodes have answered.
pub(super) fn limit_of(
    cluster: &Cluster,
    pool: &Pool,
    answers: &Answers<PoolInspection>,
) -> Result<Option<Limit>, Error> {
    if answers.count(|_| true) >= cluster.needed {
        let rules = cluster.settings.rules;
        let known = answers.iter().filter_map(|heard| match heard {
            Heard::Said(inspected) => inspected.limit,
            _ => None,
        });
        let greater = |one: Limit, other: Limit| match other.beats(one, rules) {
            true => other,
            false => one,
        };
        return Ok(known.reduce(greater));
    }
    let quarantined = cluster
        .states()
        .filter(|s| matches!(s, NodeState::Quarantined(_)));
    let report = report(cluster, pool, answers);
    match answers.count(|_| true) + quarantined.count() >= cluster.needed {
        true => Err(cluster.quarantined(report)),
        false => Err(Error::NoQuorum(report)),
    }
}

/// The time until each slot is free on Q nodes, the shortest first.
pub(super) fn free_times(
    cluster: &Cluster,
    pool: &Pool,
    agreed: &Agreed,
    mut answers: Answers<PoolInspection>,
) -> Result<Vec<Duration>, Error> {
    let history = pool.family.history();
    if let Some(error) = cluster.needs_history(pool.name.as_str(), history) {
        return Err(error);
    }
    // Units that such a node has forgotten may still count.
    for (node, state) in cluster.states().enumerate() {
        if state == NodeState::Voting
            && let Some(left) = cluster.too_young(node, history)
        {
            answers.set(node, Err(Silence::Quarantined(left)));
        }
    }
    let known = limit_of(cluster, pool, &answers)?;
    if let Some(known) = known {
        agreed.set(known, cluster.now, cluster.settings.rules);
    }
    let slots = known.map_or(agreed.slots(), |known| known.slots);
    let seen: Vec<&PoolInspection> = answers
        .iter()
        .filter_map(|heard| match heard {
            Heard::Said(inspected) => Some(inspected),
            _ => None,
        })
        .collect();
    let free = |slot: u32| {
        let mut waits: Vec<Duration> = seen.iter().map(|seen| left(seen, slot)).collect();
        waits.sort_unstable();
        let last = waits.get(cluster.needed.saturating_sub(1));
        last.copied().unwrap_or(Duration::MAX)
    };
    let mut free: Vec<Duration> = (0..slots).map(free).collect();
    free.sort_unstable();
    Ok(free)
}

/// For how much longer a slot is taken. `Duration::MAX` if the inspection does not show its holder.
fn left(seen: &PoolInspection, slot: u32) -> Duration {
    if !seen.taken.has(slot) {
        return Duration::ZERO;
    }
    let held = seen.holders.iter().find(|held| held.slot == slot);
    // A slot is free in the ms after its end.
    held.map_or(Duration::MAX, |held| {
        held.remaining + Duration::from_millis(1)
    })
}

/// Checks that the limit is in force. Every node must have it, except nodes in quarantine, which know no limit.
pub(super) fn resized(
    cluster: &Cluster,
    pool: &Pool,
    agreed: &Agreed,
    answers: &Answers<Found>,
    limit: Limit,
) -> Result<(), Error> {
    let name = pool.name.as_str();
    let report =
        |needed: usize, again| answers.report(name, needed, &cluster.settings.nodes, again);
    let quarantined = |silence: &Silence| matches!(silence, Silence::Quarantined(_));
    let counts = |heard: &&Heard<Found>| match heard {
        Heard::Said(_) => true,
        Heard::Silent(silence) => quarantined(silence),
        Heard::Waiting => false,
    };
    let answered = answers.iter().filter(counts).count();
    let needed = match cluster.rule_holds(Rule::ResizeAll) {
        true => cluster.total(),
        false => cluster.needed,
    };
    let other = answers.iter().find_map(|heard| match heard {
        Heard::Said(Found(found)) if found.slots != limit.slots => Some(*found),
        _ => None,
    });
    if let Some(found) = other {
        return Err(Error::LimitConflict(LimitConflict {
            asked: limit.slots,
            found: found.slots,
            report: report(cluster.needed, None),
        }));
    }
    if answered < needed {
        return Err(Error::NoQuorum(report(
            needed,
            Some(cluster.try_again(needed)),
        )));
    }
    agreed.changed(limit, cluster.now);
    Ok(())
}
