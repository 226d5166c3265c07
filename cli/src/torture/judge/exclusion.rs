//! Exclusion: no two sections of one name, or of one slot, run at once while their leases are valid, unless both only
//! read. A semaphore has no more holders than slots.

use super::{
    Finding,
    operations::{Grant, History, Op},
};
use crate::torture::history::Kind;

/// The operation that holds longest, and until when.
type Longest<'h> = Option<(&'h Op, u64)>;

pub(super) fn check(history: &History) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (record, grants) in history.grants_by_record() {
        two(history, &record, &grants, &mut findings);
    }
    if let Some(limit) = history.locks.limit {
        for (_, grants) in history.grants_by_name() {
            too_many(history, &grants, limit, &mut findings);
        }
    }
    findings
}

fn two(history: &History, record: &str, grants: &[(&Op, Grant)], findings: &mut Vec<Finding>) {
    // If sections have several names, name the one that both have.
    let what = match history.locks.several {
        true => format!("{record:?}"),
        false => "it".to_owned(),
    };
    // Among the operations seen so far, the one that holds longest: one for the readers, one for all others.
    let (mut reader, mut alone): (Longest<'_>, Longest<'_>) = (None, None);
    for (op, _) in grants {
        let Some((from, until)) = history.held(op) else {
            continue;
        };
        let against = [alone, reader.filter(|_| !op.reads())];
        let at_once = against.into_iter().flatten();
        findings.extend(
            at_once
                .filter(|(_, end)| from < *end)
                .map(|(other, end)| Finding {
                    kind: Kind::Exclusion,
                    text: format!(
                        "two held {what} at once, for {}: {} and {}",
                        ms(end.min(until).saturating_sub(from)),
                        history.tell(other),
                        history.tell(op)
                    ),
                }),
        );
        let before = match op.reads() {
            true => &mut reader,
            false => &mut alone,
        };
        if before.is_none_or(|(_, end)| until > end) {
            *before = Some((op, until));
        }
    }
}

fn too_many(history: &History, grants: &[(&Op, Grant)], limit: u32, findings: &mut Vec<Finding>) {
    // The current holders, and until when each holds.
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
