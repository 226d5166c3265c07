//! Tokens: no token is given twice, and tokens grow in the order of the grants. For a semaphore this holds for each
//! slot, for several names for each name. A reader's token is an epoch: not less than that of the last writer, and less
//! than that of the next.
//!
//! The nodes make a grant at some instant between the operation's start and the record of its grant. So the order of
//! two grants is certain in two cases. In the first, one was recorded before the other operation started. In the
//! second, one was valid when it was recorded, and over when the other, which was valid too, was recorded. Nobody else
//! can be granted what is held. No order is promised for two readers.

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

/// An operation that is over by `until` comes before one that begins at `from` or later.
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
    // Among the operations that are over: the greatest token of a reader, and that of all others.
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
        findings.extend(
            stays.map(|before| finding(before, "of a writer is not greater than a reader's:")),
        );
    }
}

/// A token, and the operation that had it.
type Greatest<'h> = Option<(u64, &'h Op)>;
