//! The errors that end a command: an exit status, and a text that says what to do.

use std::time::Duration;

use quorate::{Error, Holder, Inspection, LimitConflict, Report, Silence, Vote, cli::are_needed};
use serde_json::{Map, Value, json};

use crate::output;

const QUARANTINED: &str = "quarantined";
const NO_QUORUM: &str = "no_quorum";
const HELD_KIND: &str = "held";
const INTERRUPT: &str = "interrupted";

// The numbers are those of sysexits.h, where it has one.
pub(crate) const USAGE: u8 = 64;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const SOFTWARE: u8 = 70;
pub(crate) const HELD: u8 = 75;
pub(crate) const LOST: u8 = 79;
pub(crate) const INTERRUPTED: u8 = 130;
pub(crate) const CANNOT_RUN: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// The hint for servers that may be new.
pub(crate) const IF_NEW: &str = "if these servers have never held a lock, `quorate bootstrap --new` admits them \
     within about 7 s";

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// One word, for programs.
    kind: &'static str,
    text: String,
    nodes: Vec<Node>,
    /// Further fields of the JSON object, for programs.
    details: Map<String, Value>,
    /// The servers did not answer, so there is no need to wait for them again.
    is_unavailable: bool,
}

/// One node, and its reason.
#[derive(Debug)]
struct Node {
    node: String,
    reason: String,
    /// True if the node votes, or will by itself, so that nobody has to look at it.
    is_well: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, kind: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            kind,
            text: text.into(),
            nodes: Vec::new(),
            details: Map::new(),
            is_unavailable: code == UNAVAILABLE,
        }
    }

    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self::new(UNAVAILABLE, NO_QUORUM, text)
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, "usage", text)
    }

    /// A signal with this number told the process to end. `when` says what the process was doing.
    pub(crate) fn interrupted(number: i32, when: impl Into<String>) -> Self {
        let code = 128_u8.saturating_add(u8::try_from(number).unwrap_or(0));
        Self::new(code, INTERRUPT, when)
    }

    /// The lock or slot of a running command is lost. `is_outage` is true if too few nodes could be reached.
    pub(crate) fn lost(text: String, name: &str, is_outage: bool) -> Self {
        Self {
            is_unavailable: is_outage,
            ..Self::new(LOST, "lost", text).with("name", name.into())
        }
    }

    /// A lock could not be taken. `why` is a phrase such as `is held by ..`.
    pub(crate) fn held(name: &str, holder: Option<&Holder>, why: &str) -> Self {
        Self::new(HELD, HELD_KIND, format!("{name:?} {why}"))
            .with("name", name.into())
            .with("holder", output::holder_json(holder))
    }

    /// No slot of a semaphore could be taken.
    pub(crate) fn full(name: &str, seen: Option<&Inspection>, why: &str) -> Self {
        Self::new(HELD, HELD_KIND, format!("{name:?}: {why}"))
            .with("name", name.into())
            .with("limit", seen.and_then(Inspection::limit).into())
            .with("taken", seen.map(Inspection::taken_slots).into())
    }

    /// A rate limit has no room. `said` holds the JSON fields for programs.
    pub(crate) fn denied(text: String, said: Map<String, Value>) -> Self {
        Self {
            details: said,
            ..Self::new(HELD, "denied", text)
        }
    }

    /// Another process holds it in Consul.
    #[cfg(feature = "consul")]
    pub(crate) fn held_in_consul(report: &Report, text: String) -> Self {
        Self::new(HELD, HELD_KIND, text)
            .with("name", report.subject().into())
            .with("held_by", report.holder().into())
    }

    /// An error of Consul.
    #[cfg(feature = "consul")]
    pub(crate) fn of_consul(error: Error) -> Self {
        let text = match &error {
            Error::NoQuorum(_) => "Consul could not be used:".to_owned(),
            Error::TooSlow(report) => format!(
                "{:?} was granted, but its validity had already run out: raise --ttl, or find out why Consul is \
                 slow",
                report.subject()
            ),
            Error::LimitConflict(conflict) => other_limit(conflict),
            _ => return error.into(),
        };
        Self::from(error).saying(text)
    }

    /// Adds a field to the JSON object for programs.
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.details.insert(key.to_owned(), value);
        self
    }

    /// The terminal interrupted the command, and this process with it, so nothing is printed.
    pub(crate) fn silent_interrupt() -> Self {
        Self::new(INTERRUPTED, INTERRUPT, "")
    }

    /// The same failure with another text.
    pub(crate) fn saying(self, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..self
        }
    }

    /// For a failure because others hold the lock: uses the exit status that the user chose for that, and no text if
    /// `quiet`.
    pub(crate) fn if_held(self, code: u8, quiet: bool) -> Self {
        match (self.kind == HELD_KIND, quiet) {
            (false, _) => self,
            (true, false) => Self { code, ..self },
            (true, true) => Self { code, ..self }.saying(""),
        }
    }

    /// Returns true if the terminal interrupted this process.
    pub(crate) fn is_interrupt(&self) -> bool {
        self.kind == INTERRUPT && self.code == INTERRUPTED
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        self.is_unavailable
    }

    /// Prints the failure to stderr.
    pub(crate) fn tell(&self, json: bool) {
        if self.text.is_empty() {
            return;
        }
        if json {
            let mut object = json!({"error": self.kind, "message": self.text, "exit": self.code, "nodes": self.nodes_json()});
            if let Some(object) = object.as_object_mut() {
                object.extend(self.details.clone());
            }
            output::to_stderr(&object.to_string());
            return;
        }
        self.tell_people();
    }

    /// Prints the failure as a warning, because it changes nothing for the command. `warning` is the word for programs.
    pub(crate) fn warn(&self, json: bool, warning: &str) {
        if json {
            let nodes = self.nodes_json();
            let object = json!({"warning": warning, "message": self.text, "nodes": nodes});
            output::to_stderr(&object.to_string());
            return;
        }
        self.tell_people();
    }

    fn tell_people(&self) {
        output::complain(&self.text);
        // A quarantine is printed once, not once for each node.
        let quarantined = self.kind == QUARANTINED;
        for node in self
            .nodes
            .iter()
            .filter(|node| !(quarantined && node.is_well))
        {
            output::complain(&format!("  {}: {}", node.node, node.reason));
        }
    }

    fn nodes_json(&self) -> Vec<Value> {
        let said = |node: &Node| json!({"node": node.node, "reason": node.reason});
        self.nodes.iter().map(said).collect()
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
                let holder = report.holder().unwrap_or("somebody else");
                let text = format!("{:?} is held by {holder}", report.subject());
                with(HELD, HELD_KIND, report, text)
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
                    NO_QUORUM,
                    report,
                    format!(
                        "no majority: {well} of {total} nodes vote and {}; each node's reason:",
                        are_needed(report.needed())
                    ),
                )
            }
            Error::TooSlow(report) => with(
                UNAVAILABLE,
                "too_slow",
                report,
                format!(
                    "{:?} was granted, but its validity had already run out: raise --ttl, or find out why the nodes \
                     are slow",
                    report.subject()
                ),
            ),
            Error::Quarantined(report) => {
                let left = error.retry_after().unwrap_or(Duration::ZERO);
                let then = ends_by_itself(left, false);
                let text = format!("too few nodes may vote yet; {then}");
                with(UNAVAILABLE, QUARANTINED, report, text)
            }
            Error::Lost(lost) => {
                Self::new(LOST, "lost", format!("the lock was lost: {}", lost.reason))
            }
            Error::Invalid(why) => Self::new(USAGE, "invalid", why.clone()),
            Error::LimitConflict(conflict) => {
                let text = format!(
                    "{}, or change it for all programs: `quorate resize NAME --limit {}`",
                    other_limit(conflict),
                    conflict.asked
                );
                Self::new(USAGE, "limit_conflict", text).with("limit", conflict.found.into())
            }
            Error::System(why) => Self::new(UNAVAILABLE, "system", why.clone()),
            other => Self::new(UNAVAILABLE, "closed", other.to_string()),
        }
    }
}

fn other_limit(conflict: &LimitConflict) -> String {
    let (name, found, asked) = (conflict.report.subject(), conflict.found, conflict.asked);
    format!("{name:?} has a limit of {found}, and {asked} was asked for: use --limit {found}")
}

/// The reason of every node, one line for each.
fn reasons(report: &Report) -> Vec<Node> {
    let said = report.nodes().iter().map(|node| Node {
        node: node.node.to_string(),
        reason: node.vote.to_string(),
        is_well: matches!(
            &node.vote,
            Vote::None(Silence::Quarantined(_)) | Vote::NotWaitedFor | Vote::Confirmed
        ),
    });
    said.collect()
}

/// Advice about a quarantine of `left`: wait, unless the servers are new.
pub(crate) fn ends_by_itself(left: Duration, may_be_new: bool) -> String {
    let text = format!(
        "the quarantine ends by itself: enough will vote in {}",
        output::seconds(left)
    );
    match may_be_new {
        true => format!("{text}; {IF_NEW}"),
        false => text,
    }
}
