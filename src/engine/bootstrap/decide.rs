//! Decides the next step of a bootstrap by what the nodes said. This file is pure.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{
        rules::{Rule, Rules},
        text::seconds,
    },
    node::{
        admission::{BootRecord, Mode, Terms, record::VISIT},
        session::LAST_BACKOFF,
    },
};

/// The subject that reports name.
pub(super) const SUBJECT: &str = "bootstrap";

/// The next step, after every node was met twice and said the same.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Every node votes on these terms.
    Done,
    /// More time must pass before anything can be decided.
    Wait,
    /// The nodes look new. Ask them if they were used.
    Survey,
    Admit(Mode),
}

/// G: the longest back-off, one answer, and one second for the next handshake. After that time every living client that
/// reaches any of these nodes has told it that the fleet is in use.
pub(super) fn long_enough(node_timeout: Duration) -> Duration {
    LAST_BACKOFF + node_timeout + Duration::from_secs(1)
}

/// By how much a bootstrap of new nodes may exceed the time that its caller gave. It needs G, and before that a client
/// of another fleet that has only looked at the nodes must be gone.
pub(crate) fn patience(node_timeout: Duration) -> Duration {
    long_enough(node_timeout) + VISIT + Duration::from_secs(1)
}

/// Decides the next step. `nodes` are the nodes' names and records. `g` is G in ms.
pub(super) fn decide(
    nodes: &[(Arc<str>, BootRecord)],
    own: Terms,
    mode: Mode,
    g: u64,
    rules: Rules,
) -> Result<Next, String> {
    let wanted = greatest(nodes.iter().map(|(_, record)| record), own);
    let voting = nodes.iter().find(|(_, record)| record.votes());
    if nodes.iter().all(|(_, record)| record.votes()) {
        let raises = nodes.iter().any(|(_, record)| record.terms != wanted);
        return Ok(match raises {
            true => Next::Admit(Mode::Raise),
            false => Next::Done,
        });
    }
    match mode {
        Mode::New => {}
        Mode::Forced => return Ok(Next::Admit(Mode::Forced)),
        Mode::Raise => return Ok(Next::Wait),
    }
    let left = longest_wait(nodes.iter().map(|(_, record)| record));
    let wait = by_themselves(left);
    if let Some((node, _)) = voting
        && rules.hold(Rule::BootstrapOnlyNew)
    {
        // A quarantine that is shorter than a bootstrap's wait is simply waited for.
        return match left <= g {
            true => Ok(Next::Wait),
            false => Err(format!(
                "{node} votes already, so the others are not new: they restarted, and {wait}"
            )),
        };
    }
    // A client that sees a voting node says u, and so does this one. So the first condition is only met when both rules
    // are switched off.
    if voting.is_some() || !rules.hold(Rule::BootstrapUnused) {
        return Ok(Next::Admit(Mode::Forced));
    }
    if let Some((node, _)) = nodes.iter().find(|(_, record)| record.used) {
        return Err(format!(
            "{node} was told by a client, or remembers, that this fleet has been in use, so these \
             masters are not new: they restarted, and {wait}"
        ));
    }
    let settled = nodes.iter().all(|(_, record)| record.witnessed >= g);
    Ok(if settled { Next::Survey } else { Next::Wait })
}

/// In ms: the time until the last of them votes, if they are watched until then.
pub(super) fn longest_wait<'r>(records: impl Iterator<Item = &'r BootRecord>) -> u64 {
    let left = records.map(|r| r.terms.quarantine().saturating_sub(r.witnessed));
    left.max().unwrap_or(0)
}

pub(super) fn by_themselves(left: u64) -> String {
    format!(
        "they vote by themselves in {} (use --force, or bootstrap_forced, only if every client has been \
         stopped for longer than max_ttl)",
        seconds(Duration::from_millis(left))
    )
}

pub(super) fn greatest<'r>(records: impl Iterator<Item = &'r BootRecord>, own: Terms) -> Terms {
    records.fold(own, |terms, record| terms.join(record.terms))
}

#[cfg(test)]
mod tests;
