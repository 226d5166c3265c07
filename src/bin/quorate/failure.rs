//! What can end a command early: the exit status, and the text that says what to do.

use std::time::Duration;

use quorate::{Error, LossReason, Report, Vote};
use serde_json::{Value, json};

use crate::output;

// The numbers of sysexits.h where there is one.
pub(crate) const USAGE: u8 = 64;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const SOFTWARE: u8 = 70;
pub(crate) const HELD: u8 = 75;
pub(crate) const LOST: u8 = 79;
pub(crate) const CANNOT_RUN: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// One word for programs.
    kind: &'static str,
    text: String,
    nodes: Vec<(String, String)>,
}

impl Failure {
    pub(crate) fn new(code: u8, kind: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            kind,
            text: text.into(),
            nodes: Vec::new(),
        }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, "usage", text)
    }

    /// This process was told to end, by signal `number`.
    pub(crate) fn interrupted(number: i32) -> Self {
        let code = 128_u8.saturating_add(u8::try_from(number).unwrap_or(0));
        Self::new(
            code,
            "interrupted",
            "ended while waiting for the lock; nothing was run",
        )
    }

    pub(crate) fn lost(name: &str, reason: LossReason, then: &str) -> Self {
        Self::new(
            LOST,
            "lost",
            format!("the lock {name:?} was lost while the command ran: {reason}; {then}"),
        )
    }

    /// The same in other words.
    pub(crate) fn saying(self, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..self
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Says it on stderr.
    pub(crate) fn tell(&self, json: bool) {
        if json {
            let nodes = self
                .nodes
                .iter()
                .map(|(node, reason)| json!({"node": node, "reason": reason}));
            let nodes: Vec<Value> = nodes.collect();
            let object = json!({"error": self.kind, "message": self.text, "exit": self.code, "nodes": nodes});
            output::to_stderr(&object.to_string());
            return;
        }
        output::complain(&self.text);
        for (node, reason) in &self.nodes {
            output::complain(&format!("  {node}: {reason}"));
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let with = |code, kind, report: &Report, text: String| Self {
            nodes: reasons(report),
            ..Self::new(code, kind, text)
        };
        match &error {
            Error::Held(report) => {
                let text = format!("{:?} is held by somebody else", report.subject());
                with(HELD, "held", report, text)
            }
            Error::NoQuorum(report) => {
                let well = report
                    .nodes()
                    .iter()
                    .filter(|node| !matches!(node.vote, Vote::None(_)))
                    .count();
                let total = report.nodes().len();
                with(
                    UNAVAILABLE,
                    "no_quorum",
                    report,
                    format!(
                        "no majority: {well} of {total} nodes vote and {} are needed; look at what each one says:",
                        report.needed()
                    ),
                )
            }
            Error::TooSlow(report) => with(
                UNAVAILABLE,
                "too_slow",
                report,
                format!(
                    "{:?} was granted too late to be of use: raise --ttl, or look at why the nodes are slow",
                    report.subject()
                ),
            ),
            Error::Quarantined(report) => {
                let left = error.retry_after().unwrap_or(Duration::ZERO);
                with(
                    UNAVAILABLE,
                    "quarantined",
                    report,
                    format!(
                        "too few nodes may vote yet; enough will in {}. If these servers are brand-new, \
                     `quorate bootstrap` admits them within seconds",
                        output::seconds(left)
                    ),
                )
            }
            Error::Lost(lost) => {
                Self::new(LOST, "lost", format!("the lock was lost: {}", lost.reason))
            }
            Error::Invalid(why) => Self::new(USAGE, "invalid", why.clone()),
            other => Self::new(UNAVAILABLE, "closed", other.to_string()),
        }
    }
}

/// What every node said, a line each.
fn reasons(report: &Report) -> Vec<(String, String)> {
    report
        .nodes()
        .iter()
        .map(|node| (node.node.to_string(), node.vote.to_string()))
        .collect()
}
