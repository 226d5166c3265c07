//! The rights that the tries on one connection have shown to be missing, and the texts for operators about them.

use super::{
    NOT_TOLD, Right,
    denial::{Denial, denial, is_unknown},
};
use crate::node::redis::encode::Keys;

/// How the refusal of a user begins that lacks rights.
const WITHHOLDS: &str = "its ACL withholds";

/// The rights that the tries on one connection have shown to be missing.
#[derive(Debug, Default)]
pub(in crate::node::redis) struct Missing {
    withheld: Vec<&'static Right>,
    /// The server has no such command, or has it under another name (`rename-command`).
    unknown: Vec<&'static Right>,
    /// A key of quorate may not be read or written.
    keys: bool,
    /// A channel of quorate may not be used.
    channels: bool,
}

impl Missing {
    /// Returns true if this error says that a right is missing, or that the command does not exist.
    pub(in crate::node::redis) fn is(error: &str) -> bool {
        denial(error).is_some() || is_unknown(error)
    }

    /// The try of this right was answered by this error.
    pub(in crate::node::redis) fn add(&mut self, right: &'static Right, error: &str) {
        match denial(error) {
            Some(Denial::Key) => self.keys = true,
            Some(Denial::Channel) => self.channels = true,
            Some(Denial::Command) => self.withheld.push(right),
            None if is_unknown(error) => self.unknown.push(right),
            // The server may be full or a replica, or the try is one that fails. In each case the right is there.
            None => {}
        }
    }

    /// Returns true if a server was refused for this reason, because the user lacks rights.
    pub(crate) fn is_reason(why: &str) -> bool {
        why.starts_with(WITHHOLDS)
    }

    /// The reason why the node cannot vote, and what to do. `None` if it can.
    pub(in crate::node::redis) fn refusal(&self, user: &str, keys: &Keys) -> Option<String> {
        let needed = |right: &&&Right| right.without.is_none();
        let withheld: Vec<&Right> = self.withheld.iter().filter(needed).copied().collect();
        let unknown: Vec<_> = self.unknown.iter().filter(needed).map(|r| r.name).collect();
        let mut names: Vec<&str> = withheld.iter().map(|right| right.name).collect();
        let mut grants: Vec<String> = withheld.iter().map(|right| right.grant()).collect();
        if self.keys {
            names.push("keys of quorate");
            grants.push(keys.pattern());
        }
        let mut sentences = Vec::new();
        if !names.is_empty() {
            sentences.push(format!(
                "{WITHHOLDS} {} from {user}: grant {} with ACL SETUSER ({})",
                listed(&names),
                if names.len() == 1 && !self.keys {
                    "it"
                } else {
                    "them"
                },
                grants.join(" ")
            ));
        }
        if !unknown.is_empty() {
            sentences.push(format!(
                "it does not know {}: quorate needs {} under its own name",
                listed(&unknown),
                if unknown.len() == 1 { "it" } else { "each" },
            ));
        }
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }

    /// Returns true if published messages cannot reach waiters.
    pub(in crate::node::redis) fn silences(&self) -> bool {
        let mut all = self.withheld.iter().chain(&self.unknown);
        self.channels || all.any(|right| right.is_of_a_channel())
    }

    /// A note for operators about a node that still votes.
    pub(in crate::node::redis) fn note(&self, keys: &Keys) -> Option<String> {
        let told = |verb: &'static str, rights: &[&Right]| -> Vec<String> {
            let useful =
                |right: &&Right| Some(format!("{verb} {}: {}", right.name, right.without?));
            rights.iter().filter_map(useful).collect()
        };
        let mut notes = told("its ACL withholds", &self.withheld);
        notes.extend(told("it does not know", &self.unknown));
        if self.channels {
            let channels = keys.channels();
            notes.push(format!(
                "its ACL withholds channels of quorate ({channels}): {NOT_TOLD}"
            ));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
