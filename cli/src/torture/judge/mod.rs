//! Judges which promises held. This is pure: it takes a history and returns findings. Each promise has a file.
//!
//! | file | promise |
//! | --- | --- |
//! | `exclusion` | no two sections of one name or slot at once while their leases are valid, unless both read; no more holders of a semaphore than slots |
//! | `tokens` | no token twice, and tokens grow in the order of the grants; a reader's is between two writers' |
//! | `updates` | no update is lost where tokens are checked, elsewhere only by a stale holder; nothing changes under a reader |
//! | `leftovers` | no lock, no slot and no place is left on a node |
//! | `order` | no waiter is overtaken by one that asked long after it; for a semaphore, except among a few in front; for a read-write lock, no writer by a reader |
//! | `progress` | every name is granted soon enough, and again after the last fault |

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

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    /// Names the operations that it is about.
    pub(super) text: String,
}

/// The result for one history.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    pub(super) scenario: Scenario,
    /// The kind of lock that was tested.
    pub(super) locks: Locks,
    pub(super) sections: usize,
    pub(super) grants: usize,
    pub(super) faults: usize,
    /// Holders that were told of a loss.
    pub(super) losses: usize,
    /// Sections that the store refused.
    pub(super) refused: usize,
    /// Updates that were lost where tokens are checked, and where they are not.
    pub(super) lost_fenced: u64,
    pub(super) lost_plain: u64,
    pub(super) left: usize,
    /// Pairs of waiters whose order was certain, and was kept.
    pub(super) in_order: usize,
    /// The longest time without a grant of any one name, in ns.
    pub(super) longest_gap: Option<u64>,
    /// True if there was a store in which updates could be lost.
    pub(super) with_store: bool,
    pub(super) findings: Vec<Finding>,
}

impl Summary {
    /// Returns true if the result is the expected one.
    pub(super) fn held(&self) -> bool {
        let found = |kind: &Kind| self.findings.iter().any(|finding| finding.kind == *kind);
        match self.scenario.must_find.is_empty() {
            true => self.breaches().next().is_none(),
            false => self.scenario.must_find.iter().all(found),
        }
    }

    /// The findings, without those that this scenario allows.
    pub(super) fn breaches(&self) -> impl Iterator<Item = &Finding> {
        let allowed = &self.scenario.may_break;
        self.findings
            .iter()
            .filter(|finding| !allowed.contains(&finding.kind))
    }
}

/// Judges one history. `name` is used if the history does not name itself. Returns an error if the parts cannot be read
/// as one history.
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

/// Finds what a run failed to show: a run that shows nothing proves nothing.
fn vacuous(summary: &Summary, held_at_the_last_fault: bool) -> Vec<Finding> {
    let mut missing = Vec::new();
    let least = summary.scenario.at_least.max(1);
    if (summary.sections as u64) < least {
        missing.push(format!(
            "only {} sections, but at least {least} must run",
            summary.sections
        ));
    }
    for sight in &summary.scenario.must_see {
        match sight {
            Sight::Refusal if summary.refused == 0 => {
                missing.push(
                    "the store refused no stale holder, but the fault should have made one"
                        .to_owned(),
                );
            }
            Sight::Loss if summary.losses == 0 => {
                missing.push(
                    "no holder lost its lease, but the fault should have made one do so".to_owned(),
                );
            }
            Sight::Order if summary.in_order == 0 => {
                missing
                    .push("for no two waiters was it certain which one had asked first".to_owned());
            }
            Sight::Held if !held_at_the_last_fault => {
                missing.push(
                    "at the last fault nobody held a lease that was valid for half a second more"
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
