//! Judges what of the promise held. Pure: a history in, findings out; one file for each thing promised.
//!
//! | file | promised |
//! | --- | --- |
//! | `exclusion` | no two sections of one name or slot at once while their leases are valid, unless both read; of a semaphore no more than it has slots |
//! | `tokens` | never twice, and growing in the order of the grants; a reader's is between two writers' |
//! | `updates` | none lost where tokens are checked; none lost elsewhere but by a stale holder; and none under a reader |
//! | `leftovers` | no lock, no slot and no place is left on a node |
//! | `order` | nobody is overtaken by one that asked long after it; of a semaphore, but for a few in front; of a read-write lock, no writer by a reader |
//! | `progress` | a grant of every name, soon enough, and again after the last fault |

mod exclusion;
mod leftovers;
mod operations;
mod order;
mod progress;
mod tokens;
mod updates;

#[cfg(test)]
mod tests;

use self::operations::History;
use super::history::{Kind, Locks, Part, Scenario, Sight};

/// Something that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    /// With the operations that it is about.
    pub(super) text: String,
}

/// What came out of one history.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    pub(super) scenario: Scenario,
    /// What was fought for.
    pub(super) locks: Locks,
    pub(super) sections: usize,
    pub(super) grants: usize,
    pub(super) faults: usize,
    /// Holders that were told of the loss.
    pub(super) losses: usize,
    /// Sections that the store refused.
    pub(super) refused: usize,
    /// Updates lost where tokens are checked, and where they are not.
    pub(super) lost_fenced: u64,
    pub(super) lost_plain: u64,
    pub(super) left: usize,
    /// Pairs of waits of which the order was certain, and kept.
    pub(super) in_order: usize,
    /// The longest time without a grant of any one name, in ns.
    pub(super) longest_gap: Option<u64>,
    /// Whether there was a store to lose updates in.
    pub(super) with_store: bool,
    pub(super) findings: Vec<Finding>,
}

impl Summary {
    /// Whether it came out as it should.
    pub(super) fn held(&self) -> bool {
        let found = |kind: &Kind| self.findings.iter().any(|finding| finding.kind == *kind);
        match self.scenario.must_find.is_empty() {
            true => self.breaches().next().is_none(),
            false => self.scenario.must_find.iter().all(found),
        }
    }

    /// The findings, without those of what this scenario does not promise.
    pub(super) fn breaches(&self) -> impl Iterator<Item = &Finding> {
        let allowed = &self.scenario.may_break;
        self.findings
            .iter()
            .filter(|finding| !allowed.contains(&finding.kind))
    }
}

/// `name` is what the history is called if it does not say so itself. An error if it cannot be read as one history.
pub(super) fn judge(name: &str, parts: &[Part]) -> Result<Summary, String> {
    let history = History::new(parts)?;
    let mut scenario = history.scenario.clone();
    if scenario.name.is_empty() {
        name.clone_into(&mut scenario.name);
    }
    let mut findings = exclusion::check(&history);
    findings.extend(tokens::check(&history));
    let updates = updates::check(&history);
    findings.extend(updates.findings);
    findings.extend(leftovers::check(&history));
    let order = order::check(&history);
    findings.extend(order.findings);
    let progress = progress::check(&history);
    findings.extend(progress.findings);
    let mut summary = Summary {
        locks: history.locks,
        sections: history.ops.iter().filter(|op| op.ended.is_some()).count(),
        grants: history.ops.iter().filter(|op| op.granted.is_some()).count(),
        faults: history.faults.len(),
        losses: history.ops.iter().filter(|op| op.lost.is_some()).count(),
        refused: updates.refused,
        lost_fenced: updates.lost_fenced,
        lost_plain: updates.lost_plain,
        with_store: updates.with_store,
        left: history.left.len(),
        in_order: order.kept,
        longest_gap: progress.longest_gap,
        scenario,
        findings,
    };
    let unseen = vacuous(&summary, held_at_the_last_fault(&history));
    summary.findings.extend(unseen);
    Ok(summary)
}

fn held_at_the_last_fault(history: &History) -> bool {
    let Some(fault) = history.faults.iter().map(|fault| fault.at).max() else {
        return false;
    };
    history.ops.iter().any(|op| {
        let held = history.held(op);
        let held = held.is_some_and(|(from, _)| from < fault);
        let goes_on = op.ended.is_none_or(|end| end > fault);
        held && goes_on && op.valid_until > fault.saturating_add(500_000_000)
    })
}

/// A run that shows nothing proves nothing.
fn vacuous(summary: &Summary, held_at_the_last_fault: bool) -> Vec<Finding> {
    let mut missing = Vec::new();
    let least = summary.scenario.at_least.max(1);
    if (summary.sections as u64) < least {
        missing.push(format!(
            "only {} sections, and {least} were wanted",
            summary.sections
        ));
    }
    for sight in &summary.scenario.must_see {
        match sight {
            Sight::Refusal if summary.refused == 0 => {
                missing.push(
                    "no stale holder was refused by the store, and the fault should have made one"
                        .to_owned(),
                );
            }
            Sight::Loss if summary.losses == 0 => {
                missing.push(
                    "no holder lost its lease, and the fault should have made one".to_owned(),
                );
            }
            Sight::Order if summary.in_order == 0 => {
                missing.push("of no two who waited it was certain who had asked first".to_owned());
            }
            Sight::Held if !held_at_the_last_fault => {
                missing.push(
                    "nobody held a lease at the last fault that was good for half a second more"
                        .to_owned(),
                );
            }
            _ => {}
        }
    }
    let finding = |text| Finding {
        kind: Kind::Vacuous,
        text,
    };
    missing.into_iter().map(finding).collect()
}
