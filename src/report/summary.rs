//! A report in one line, for the text of [`Error`](crate::Error). That text easily reaches end users, although it is
//! not meant for them. So it shows no address: neither a node's nor one within a reason.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use super::{NodeReport, Report, Silence, Vote};
use crate::base::printable::{LONGEST, cut};

/// At most this many reasons of one kind are shown; the others are counted.
const MOST_REASONS: usize = 2;
/// At most this many characters of one reason are shown.
const LONGEST_REASON: usize = 2 * LONGEST;

/// How many nodes gave what was asked. Silent nodes do not count, nor do nodes where the caller does not have the lock.
pub(crate) fn answered(report: &Report) -> usize {
    let gave = |node: &&NodeReport| !matches!(node.vote, Vote::None(_) | Vote::NotOurs);
    report.nodes().iter().filter(gave).count()
}

/// The nodes that did not give what was asked, as in ` (2 unreachable, 1 stalled, 1 refused: its ACL withholds HMGET)`.
/// Empty if all did.
pub(crate) struct Missing<'a>(pub(crate) &'a Report);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Parts { f, any: false };
        parts.count(self.0, "stalled", |s| matches!(s, Silence::Stalled))?;
        parts.count(self.0, "without an answer in time", |s| {
            matches!(s, Silence::TimedOut | Silence::WaitOver)
        })?;
        parts.count(self.0, "whose connection was lost", |s| {
            matches!(s, Silence::ConnectionLost)
        })?;
        parts.count(self.0, "quarantined", |s| {
            matches!(s, Silence::Quarantined(_))
        })?;
        parts.count(self.0, "whose scripts were flushed", |s| {
            matches!(s, Silence::ScriptsFlushed)
        })?;
        parts.count(self.0, "whose memory changed", |s| {
            matches!(s, Silence::NotAdmitted)
        })?;
        parts.count(self.0, "too far away for this limit", |s| {
            matches!(s, Silence::OutOfReach(_))
        })?;
        let nodes = self.0.nodes().iter();
        let not_ours = nodes.filter(|node| node.vote == Vote::NotOurs).count();
        parts.put(not_ours, "where this client does not have the lock", None)?;
        // These come with a reason, so they stand last.
        parts.unreachable(self.0)?;
        parts.reasons(self.0, "refused", |silence| match silence {
            Silence::Unfit(why) => Some(why),
            _ => None,
        })?;
        parts.reasons(self.0, "with an error", |silence| match silence {
            Silence::Failed(why) => Some(why),
            _ => None,
        })?;
        parts.end()
    }
}

/// The reason why the only server that was asked did not help, as in `: unreachable: no route`.
pub(crate) struct Alone<'a>(pub(crate) &'a Report);

impl fmt::Display for Alone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.0.nodes();
        let why = nodes.iter().find_map(|node| Some((node, silence(node)?)));
        match why {
            Some((node, why)) => {
                write!(f, ": {}", without_addresses(&why.to_string(), node, nodes))
            }
            None => Ok(()),
        }
    }
}

struct Parts<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    any: bool,
}

impl Parts<'_, '_> {
    fn count(&mut self, report: &Report, what: &str, is: impl Fn(&Silence) -> bool) -> fmt::Result {
        let nodes = report.nodes().iter();
        let count = nodes.filter(|node| silence(node).is_some_and(&is)).count();
        self.put(count, what, None)
    }

    /// Counts the nodes that cannot be reached. The reason is mostly about the network in between, so it is shown only
    /// if it is the same for all.
    fn unreachable(&mut self, report: &Report) -> fmt::Result {
        let reasons = counted(report, |silence| match silence {
            Silence::Unreachable(why) => Some(why),
            _ => None,
        });
        match reasons.as_slice() {
            [(why, count)] => self.put(*count, "unreachable", Some(why)),
            many => self.put(many.iter().map(|(_, n)| n).sum(), "unreachable", None),
        }
    }

    fn reasons(
        &mut self,
        report: &Report,
        what: &str,
        reason: impl Fn(&Silence) -> Option<&String>,
    ) -> fmt::Result {
        let reasons = counted(report, reason);
        let (told, others) = reasons.split_at(reasons.len().min(MOST_REASONS));
        for (why, count) in told {
            self.put(*count, what, Some(why))?;
        }
        let others = others.iter().map(|(_, count)| count).sum();
        self.put(others, what, Some("other reasons"))
    }

    fn put(&mut self, count: usize, what: &str, why: Option<&str>) -> fmt::Result {
        if count == 0 {
            return Ok(());
        }
        let before = match (self.any, why) {
            (false, _) => " (",
            (true, None) => ", ",
            (true, Some(_)) => "; ",
        };
        self.any = true;
        write!(self.f, "{before}{count} {what}")?;
        match why {
            Some(why) => write!(self.f, ": {why}"),
            None => Ok(()),
        }
    }

    fn end(self) -> fmt::Result {
        match self.any {
            true => self.f.write_str(")"),
            false => Ok(()),
        }
    }
}

fn silence(node: &NodeReport) -> Option<&Silence> {
    match &node.vote {
        Vote::None(silence) => Some(silence),
        _ => None,
    }
}

/// The reasons of one kind without addresses, and how many nodes gave each. The most frequent comes first.
fn counted(report: &Report, reason: impl Fn(&Silence) -> Option<&String>) -> Vec<(String, usize)> {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for node in report.nodes() {
        let Some(why) = silence(node).and_then(&reason) else {
            continue;
        };
        let why = without_addresses(why, node, report.nodes());
        match reasons.iter_mut().find(|(other, _)| *other == why) {
            Some((_, count)) => *count += 1,
            None => reasons.push((why, 1)),
        }
    }
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    reasons
}

/// Replaces every address in a node's reason by `another node` or an ellipsis.
fn without_addresses(why: &str, of: &NodeReport, nodes: &[NodeReport]) -> String {
    let mut text = String::with_capacity(why.len());
    let mut rest = why;
    while !rest.is_empty() {
        let start = rest.find(in_address).unwrap_or(rest.len());
        let (between, behind) = rest.split_at(start);
        text.push_str(between);
        // A control character appears as `\n` or the like: its letter does not belong to the word.
        let escape = between.ends_with('\\') && behind.starts_with(['n', 'r', 't', '0']);
        let (letter, behind) = behind.split_at(usize::from(escape));
        text.push_str(letter);
        let end = behind.find(|c| !in_address(c)).unwrap_or(behind.len());
        let (word, behind) = behind.split_at(end);
        // The word is also tried without the full stop or colon of the sentence.
        let bare = word.trim_end_matches(['.', ':']);
        // rustls writes the names of a certificate like this.
        let named = text.ends_with("DnsName(\"");
        let address = [bare, word]
            .into_iter()
            .find(|word| named || is_address(word, nodes));
        match address {
            Some(address) => {
                let other = *of.node != *address && nodes.iter().any(|n| *n.node == *address);
                text.push_str(if other { "another node" } else { "…" });
                text.push_str(word.get(address.len()..).unwrap_or_default());
            }
            None => text.push_str(word),
        }
        rest = behind;
    }
    cut(text, LONGEST_REASON)
}

fn in_address(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | ':' | '-' | '[' | ']' | '/' | '@' | '%')
}

/// A node's name or host, an IP address, a full host with a port, a URL, or a path.
fn is_address(word: &str, nodes: &[NodeReport]) -> bool {
    if word.is_empty() {
        return false;
    }
    let is_node = |node: &NodeReport| {
        let host = node.node.rsplit_once(':').map(|(host, _)| host);
        // A host may be called `name` or `master`. Such a word tells nothing by itself, and masking it would spoil the
        // text.
        let telling = |host: &str| host.contains(|c: char| !c.is_alphabetic());
        *node.node == *word || host.is_some_and(|host| host == word && telling(host))
    };
    if nodes.iter().any(is_node) {
        return true;
    }
    if let Some((_, behind)) = word.split_once("://") {
        return !behind.is_empty();
    }
    (word.starts_with('/') && word.len() > 1) || word.split(['/', '@', '%']).any(is_endpoint)
}

fn is_endpoint(word: &str) -> bool {
    let bare = word.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok() {
        return true;
    }
    // Not every word with a number after it is an address: key prefixes and fleets may be called `jobs:1`.
    word.rsplit_once(':').is_some_and(|(host, port)| {
        (host.contains('.') || host == "localhost")
            && port.parse::<u16>().is_ok()
            && port.bytes().all(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests;
