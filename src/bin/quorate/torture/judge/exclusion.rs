//! No two sections of one name, or of one slot of it, at once while their leases are valid; and of a semaphore no more
//! than it has slots.

use super::{
    Finding,
    operations::{Grant, History, Op},
};
use crate::torture::history::Kind;

pub(super) fn check(history: &History) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, grants) in history.grants_by_record() {
        two(history, &grants, &mut findings);
    }
    if let Some(limit) = history.limit {
        for (_, grants) in history.grants_by_name() {
            too_many(history, &grants, limit, &mut findings);
        }
    }
    findings
}

fn two(history: &History, grants: &[(&Op, Grant)], findings: &mut Vec<Finding>) {
    // Of those seen so far, who held the longest.
    let mut before: Option<(&Op, u64)> = None;
    for (op, _) in grants {
        let Some((from, until)) = history.held(op) else {
            continue;
        };
        if let Some((other, end)) = before
            && from < end
        {
            findings.push(Finding {
                kind: Kind::Exclusion,
                text: format!(
                    "two held it at once, for {}: {} and {}",
                    ms(end.min(until).saturating_sub(from)),
                    history.tell(other),
                    history.tell(op)
                ),
            });
        }
        if before.is_none_or(|(_, end)| until > end) {
            before = Some((op, until));
        }
    }
}

fn too_many(history: &History, grants: &[(&Op, Grant)], limit: u32, findings: &mut Vec<Finding>) {
    // Those who hold, and until when.
    let mut holding: Vec<(&Op, u64)> = Vec::new();
    for (op, _) in grants {
        let Some((from, until)) = history.held(op) else {
            continue;
        };
        holding.retain(|(_, end)| from < *end);
        holding.push((op, until));
        if holding.len() <= limit as usize {
            continue;
        }
        let end = holding.iter().map(|(_, end)| *end).min().unwrap_or(from);
        let who = holding.iter().map(|(op, _)| history.tell(op));
        findings.push(Finding {
            kind: Kind::Exclusion,
            text: format!(
                "{} held at once, for {}, and it has {limit} slots: {}",
                holding.len(),
                ms(end.saturating_sub(from)),
                who.collect::<Vec<_>>().join(" and ")
            ),
        });
    }
}

fn ms(nanos: u64) -> String {
    format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1_000 % 1_000)
}
