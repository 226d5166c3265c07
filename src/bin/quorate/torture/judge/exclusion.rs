//! No two sections of one name at once while their leases are valid.

use super::{
    Finding,
    operations::{History, Op},
};
use crate::torture::history::Kind;

pub(super) fn check(history: &History) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, grants) in history.grants_by_name() {
        // Of those seen so far, who held the longest.
        let mut before: Option<(&Op, u64)> = None;
        for (op, _) in grants {
            let Some((from, until)) = history.held(op) else {
                continue;
            };
            if let Some((other, end)) = before
                && from < end
            {
                let both = end.min(until).saturating_sub(from);
                findings.push(Finding {
                    kind: Kind::Exclusion,
                    text: format!(
                        "two held it at once, for {}.{:03} ms: {} and {}",
                        both / 1_000_000,
                        both / 1_000 % 1_000,
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
    findings
}
