//! Prints the judgement: a row for each history, then every finding.

use std::time::Duration;

use serde_json::{Value, json};

use super::{history::Kind, judge::Summary};
use crate::output;

/// At most this many findings of one kind are printed for each history. The rest is counted.
const TOLD: usize = 3;
const KINDS: [(Kind, &str); 9] = [
    (Kind::Exclusion, "two holders"),
    (Kind::Token, "tokens"),
    (Kind::LostUpdate, "lost updates"),
    (Kind::Fence, "fence"),
    (Kind::Leftover, "left over"),
    (Kind::Unseen, "not looked at"),
    (Kind::Order, "order"),
    (Kind::Progress, "progress"),
    (Kind::Vacuous, "shows nothing"),
];

pub(super) fn as_text(summaries: &[Summary]) -> String {
    let head = [
        "SCENARIO",
        "LOCKS",
        "SECTIONS",
        "NO GRANT FOR",
        "PROMISED",
        "FAULTS",
        "REFUSED",
        "LOST",
        "UNFENCED",
        "LEFT",
        "HELD",
    ];
    let mut rows: Vec<Vec<String>> = summaries.iter().map(row).collect();
    if summaries.len() > 1 {
        rows.push(sum(summaries));
    }
    let mut text = output::table(&head, &rows);
    let findings = summaries.iter().flat_map(told);
    for finding in findings {
        text.push_str("\n\n");
        text.push_str(&finding);
    }
    text
}

fn row(summary: &Summary) -> Vec<String> {
    let scenario = &summary.scenario;
    let gap = summary.longest_gap.map(Duration::from_nanos);
    let promised = scenario.gap_ms.map(Duration::from_millis);
    let dash = || "-".to_owned();
    let of_store = |text: String| if summary.with_store { text } else { dash() };
    vec![
        scenario.name.clone(),
        summary.locks.to_string(),
        summary.sections.to_string(),
        gap.map_or_else(dash, output::seconds),
        promised.map_or_else(dash, output::seconds),
        summary.faults.to_string(),
        of_store(summary.refused.to_string()),
        of_store(summary.lost_fenced.to_string()),
        of_store(summary.lost_plain.to_string()),
        summary.left.to_string(),
        verdict(summary),
    ]
}

fn sum(summaries: &[Summary]) -> Vec<String> {
    // Findings that had to appear because a rule was switched off do not count in the sum.
    let all = || {
        summaries
            .iter()
            .filter(|summary| summary.scenario.must_find.is_empty())
    };
    let held = summaries.iter().filter(|summary| summary.held()).count();
    let total = |of: fn(&Summary) -> u64| all().map(of).sum::<u64>().to_string();
    vec![
        "all".to_owned(),
        String::new(),
        total(|s| s.sections as u64),
        String::new(),
        String::new(),
        total(|s| s.faults as u64),
        total(|s| s.refused as u64),
        total(|s| s.lost_fenced),
        total(|s| s.lost_plain),
        total(|s| s.left as u64),
        format!("{held} of {}", summaries.len()),
    ]
}

fn verdict(summary: &Summary) -> String {
    let kinds = |wanted: &dyn Fn(Kind) -> bool| {
        let named = KINDS.iter().filter(|(kind, _)| wanted(*kind));
        named.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    };
    let found = |kind| summary.findings.iter().any(|finding| finding.kind == kind);
    let expected = &summary.scenario.must_find;
    if !expected.is_empty() {
        let missed = kinds(&|kind| expected.contains(&kind) && !found(kind));
        return match missed.as_str() {
            "" => format!(
                "found, as expected: {}",
                kinds(&|kind| expected.contains(&kind))
            ),
            missed => format!("NOT FOUND: {missed}"),
        };
    }
    let broken = kinds(&|kind| summary.breaches().any(|finding| finding.kind == kind));
    let excused = kinds(&|kind| summary.scenario.may_break.contains(&kind) && found(kind));
    match (broken.as_str(), excused.as_str()) {
        ("", "") => "all".to_owned(),
        ("", excused) => format!("all that is promised (not: {excused})"),
        (broken, _) => format!("BROKEN: {broken}"),
    }
}

/// Every kind of finding, with a few of each. Where a rule was switched off, one of the findings that had to appear is
/// enough.
fn told(summary: &Summary) -> Vec<String> {
    let expected = &summary.scenario.must_find;
    let mut lines = Vec::new();
    for (kind, name) in KINDS {
        let (wanted, most) = match expected.is_empty() {
            true => (true, TOLD),
            false => (expected.contains(&kind), 1),
        };
        let of_kind = summary.findings.iter();
        let of_kind = of_kind.filter(|finding| wanted && finding.kind == kind);
        let texts: Vec<&str> = of_kind.map(|finding| finding.text.as_str()).collect();
        for text in texts.iter().take(most) {
            lines.push(format!("{}: {name}: {text}", summary.scenario.name));
        }
        if let Some(more) = texts.len().checked_sub(most).filter(|more| *more > 0) {
            let scenario = &summary.scenario.name;
            lines.push(format!("{scenario}: {name}: and {more} more like these"));
        }
    }
    lines
}

pub(super) fn as_json(summary: &Summary) -> Value {
    let scenario = &summary.scenario;
    let findings = summary.findings.iter();
    let findings: Vec<Value> = findings
        .map(|finding| json!({"kind": finding.kind, "text": finding.text}))
        .collect();
    json!({
        "scenario": scenario.name,
        "locks": summary.locks.to_string(),
        "held": summary.held(),
        "sections": summary.sections,
        "grants": summary.grants,
        "longest_gap_ms": summary.longest_gap.map(|gap| gap / 1_000_000),
        "promised_gap_ms": scenario.gap_ms,
        "faults": summary.faults,
        "losses": summary.losses,
        "refused": summary.with_store.then_some(summary.refused),
        "lost_fenced": summary.with_store.then_some(summary.lost_fenced),
        "lost_unfenced": summary.with_store.then_some(summary.lost_plain),
        "left": summary.left,
        "in_order": summary.in_order,
        "findings": findings,
    })
}
