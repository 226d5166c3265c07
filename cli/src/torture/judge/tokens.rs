//! Tokens: never twice, and growing in the order of the grants. Of a semaphore, for each slot by itself. Of several names,
//! for each of them. A reader's is an epoch: no less than that of the last writer, and less than that of the next.
//!
//! A grant is made on the nodes at some instant between the wish and its being recorded. So one comes
//! before another for certain if it was recorded before the other was wished for; and also, as nobody
//! else can be granted what is held, if it was valid when recorded and over when the other, valid
//! too, was recorded. Of two readers neither is promised.

use std::collections::HashMap;

use super::{
    Finding,
    operations::{Grant, History, Op},
};
use crate::torture::history::Kind;

pub(super) fn check(history: &History) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, grants) in history.grants_by_record() {
        unique(history, &grants, &mut findings);
        let wished: Vec<Span> = grants
            .iter()
            .map(|(op, grant)| Span {
                op,
                token: grant.token,
                from: op.invoked,
                until: grant.at,
            })
            .collect();
        let held = grants.iter().filter_map(|(op, grant)| {
            let (from, until) = history.held(op)?;
            Some(Span {
                op,
                token: grant.token,
                from,
                until,
            })
        });
        growing(history, wished, &mut findings);
        growing(history, held.collect(), &mut findings);
    }
    findings.dedup();
    findings
}

fn unique(history: &History, grants: &[(&Op, Grant)], findings: &mut Vec<Finding>) {
    let mut seen: HashMap<u64, &Op> = HashMap::new();
    for (op, grant) in grants.iter().filter(|(op, _)| !op.reads()) {
        if let Some(other) = seen.insert(grant.token, op) {
            findings.push(Finding {
                kind: Kind::Token,
                text: format!(
                    "token {} was given twice: to {} and to {}",
                    grant.token,
                    history.tell(other),
                    history.tell(op)
                ),
            });
        }
    }
}

/// What is over by `until` came before what begins at `from` or later.
struct Span<'a> {
    op: &'a Op,
    token: u64,
    from: u64,
    until: u64,
}

fn growing(history: &History, mut spans: Vec<Span<'_>>, findings: &mut Vec<Finding>) {
    let mut over: Vec<(u64, u64, &Op)> = spans.iter().map(|s| (s.until, s.token, s.op)).collect();
    over.sort_by_key(|(until, ..)| *until);
    spans.sort_by_key(|span| span.from);
    let mut over = over.into_iter().peekable();
    // Of those who are over: of those who read, and of all others.
    let (mut epoch, mut greatest): (Greatest<'_>, Greatest<'_>) = (None, None);
    for span in spans {
        while let Some((_, token, op)) = over.next_if(|(until, ..)| *until < span.from) {
            let before = match op.reads() {
                true => &mut epoch,
                false => &mut greatest,
            };
            if before.is_none_or(|(most, _)| token > most) {
                *before = Some((token, op));
            }
        }
        let back = greatest.filter(|(most, _)| span.token < *most);
        let stays = epoch.filter(|(most, _)| !span.op.reads() && span.token <= *most);
        let finding = |(most, before), went: &str| Finding {
            kind: Kind::Token,
            text: format!(
                "the token {went} from {most} to {}: after {} came {}",
                span.token,
                history.tell(before),
                history.tell(span.op)
            ),
        };
        findings.extend(back.map(|before| finding(before, "went back")));
        findings
            .extend(stays.map(|before| finding(before, "of a writer is not beyond a reader's:")));
    }
}

/// A token, and whose it is.
type Greatest<'h> = Option<(u64, &'h Op)>;
