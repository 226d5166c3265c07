//! The waiters in a queue: as each node names them, and merged.

use std::{cmp::Reverse, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use super::{Inspection, NodeInspection};
use crate::base::{
    owner::owner_of,
    text::{seconds, table},
};

/// At most this many waiters are printed; the others are counted.
pub(super) const PRINTED: usize = 20;

/// A waiter in the queue of a name. `Display`: `web-4:12, for 1.2 s`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The text on the node, `<owner>@<label>`. It belongs to this one wait.
    pub entry: String,
    /// The waiter's label: that of its handle, or of its quorum.
    pub label: String,
    /// How long it has waited, never below zero. The start is its ticket, the time of the waiter's own wall clock when
    /// it joined the queue. That is compared with the node's clock, so the value is wrong by the difference of the two
    /// clocks. (If a waiter's clock is behind, it takes the ticket after the last one in the queue, so the order does
    /// not suffer.)
    pub waited: Duration,
    /// The nodes on which it is in the queue. In [`NodeInspection::line`] it is that node alone.
    pub nodes: Vec<Arc<str>>,
}

impl Waiter {
    /// The owner's uuid, with its hyphens. It is new for every wait, and becomes the [`Holder`](crate::Holder)'s when
    /// its turn has come. `None` if this library did not write the text on the node.
    pub fn owner(&self) -> Option<String> {
        owner_of(&self.entry).map(|owner| owner.to_string())
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, for {}", self.label, seconds(self.waited))
    }
}

impl Inspection {
    /// The waiters for the mutex of this name, longest wait first. Each has its nodes, and the longest wait that one of
    /// them names.
    ///
    /// A place counts once a majority knows of it. A waiter on fewer nodes has just come, is leaving, or could not
    /// reach the others. A dead waiter stays in the queue until its turn comes. The holder is left out, even if a node
    /// that was not told yet still names it as a waiter.
    ///
    /// Each node names its first 100 waiters; [`waiting`](Self::waiting) counts all.
    pub fn line(&self) -> Vec<Waiter> {
        let holder = self.holder().map(|holder| holder.entry.as_str());
        let waiters = self.nodes.iter().flat_map(|node| &node.line);
        merged(waiters.filter(|waiter| holder != Some(waiter.entry.as_str())))
    }

    /// How many wait for the mutex: the most that any node counts, or that all of them name together.
    pub fn waiting(&self) -> u64 {
        let holder = self.holder().map(|holder| holder.entry.as_str());
        let is_holder = |waiter: &Waiter| holder == Some(waiter.entry.as_str());
        let lines = self
            .nodes
            .iter()
            .map(|node| (node.line.as_slice(), node.waiting));
        count(lines, is_holder).max(length(self.line().len()))
    }
}

impl NodeInspection {
    /// How many wait there; `None` if the node did not say.
    pub(super) fn length(&self) -> Option<String> {
        self.silence.is_none().then(|| self.waiting.to_string())
    }
}

/// The waiters that nodes name, longest wait first, each once.
pub(super) fn merged<'w>(waiters: impl Iterator<Item = &'w Waiter>) -> Vec<Waiter> {
    let mut line: BTreeMap<&str, Waiter> = BTreeMap::new();
    for waiter in waiters {
        match line.get_mut(waiter.entry.as_str()) {
            Some(known) => {
                known.waited = known.waited.max(waiter.waited);
                known.nodes.extend(waiter.nodes.iter().cloned());
            }
            None => {
                line.insert(&waiter.entry, waiter.clone());
            }
        }
    }
    let mut line: Vec<Waiter> = line.into_values().collect();
    line.sort_by_key(|waiter| Reverse(waiter.waited));
    line
}

/// The length of the longest queue, without the waiters that already hold the lock. Each queue comes with its count.
pub(super) fn count<'w>(
    lines: impl Iterator<Item = (&'w [Waiter], u64)>,
    is_holder: impl Fn(&Waiter) -> bool,
) -> u64 {
    let counts = lines.map(|(line, waiting)| {
        let holders = line.iter().filter(|waiter| is_holder(waiter)).count();
        waiting.saturating_sub(length(holders))
    });
    counts.max().unwrap_or(0)
}

/// The end of the first line of the text for operators.
pub(super) fn print_count(waiting: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match waiting {
        0 => Ok(()),
        1 => f.write_str("; 1 waits in the queue"),
        more => write!(f, "; {more} wait in the queue"),
    }
}

/// Prints a row for each of the first waiters; nothing if nobody waits.
pub(super) fn print(
    line: &[Waiter],
    waiting: u64,
    total: usize,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if line.is_empty() {
        return Ok(());
    }
    let rows = line.iter().take(PRINTED).map(|waiter| {
        vec![
            waiter.label.clone(),
            seconds(waiter.waited),
            format!("{} of {total} nodes", waiter.nodes.len()),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    write!(f, "\n\n{}", table(&["WAITER", "WAITED", "ON"], &rows))?;
    match waiting.saturating_sub(length(rows.len())) {
        0 => Ok(()),
        more => write!(f, "\nand {more} more"),
    }
}

pub(super) fn length(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Holder, Silence};

    fn waiter(who: &str, waited: u64) -> Waiter {
        Waiter {
            entry: format!("{who}@{who}:1"),
            label: format!("{who}:1"),
            waited: Duration::from_millis(waited),
            nodes: Vec::new(),
        }
    }

    /// A node, its waiters, and how many more it counts.
    fn node(at: &str, holder: Option<&str>, line: &[(&str, u64)], more: u64) -> NodeInspection {
        let line: Vec<Waiter> = line
            .iter()
            .map(|(who, waited)| Waiter {
                nodes: vec![at.into()],
                ..waiter(who, *waited)
            })
            .collect();
        NodeInspection {
            node: at.into(),
            holder: holder.map(|who| Holder {
                entry: format!("{who}@{who}:1"),
                label: format!("{who}:1"),
                remaining: Some(Duration::from_secs(3)),
            }),
            token: None,
            waiting: length(line.len()) + more,
            line,
            semaphore: None,
            rwlock: None,
            silence: None,
        }
    }

    fn silent(at: &str) -> NodeInspection {
        NodeInspection {
            silence: Some(Silence::Stalled),
            ..node(at, None, &[], 0)
        }
    }

    fn seen(nodes: impl IntoIterator<Item = NodeInspection>) -> Inspection {
        Inspection {
            name: "a".into(),
            nodes: nodes.into_iter().collect(),
        }
    }

    #[test]
    fn the_text_shows_waiters_their_waits_and_their_nodes() {
        let seen = seen([
            node("h:1", Some("eve"), &[("ann", 8_250), ("bob", 600)], 0),
            node("h:2", Some("eve"), &[("ann", 8_300), ("bob", 650)], 0),
            node("h:3", Some("eve"), &[("ann", 7_900)], 0),
            silent("h:4"),
        ]);
        assert_eq!(
            seen.to_string(),
            r#""a" is held on 3 of 4 nodes by eve:1, for 3.0 s more unless it is renewed; 2 wait in the queue

NODE  HOLDER  REMAINING  TOKEN  WAITING  STATE
h:1   eve:1   3.0 s      -      2        voting
h:2   eve:1   3.0 s      -      2        voting
h:3   eve:1   3.0 s      -      1        voting
h:4   -       -          -      -        stalled: an earlier request is unanswered

WAITER  WAITED  ON
ann:1   8.3 s   3 of 4 nodes
bob:1   650 ms  2 of 4 nodes"#
        );
        let line = seen.line();
        assert_eq!(line[1].nodes, ["h:1", "h:2"].map(Arc::from));
        assert_eq!(line[0].to_string(), "ann:1, for 8.3 s");
        assert_eq!(
            line[0].owner(),
            None,
            "this library did not write the entry"
        );
    }

    #[test]
    fn a_name_may_have_waiters_and_no_holder() {
        let some = || node("h:1", None, &[("ann", 10)], 0);
        let text = seen([some(), some(), some()]).to_string();
        assert!(
            text.starts_with("\"a\" is free; 1 waits in the queue\n"),
            "{text}"
        );
        assert!(text.ends_with("\nann:1   10 ms   3 of 3 nodes"), "{text}");
        let nobody = || node("h:1", None, &[], 0);
        let text = seen([nobody(), nobody(), nobody()]).to_string();
        assert!(!text.contains("WAITER"), "{text}");
    }

    #[test]
    fn a_long_queue_is_cut_and_counted() {
        let names: Vec<String> = (0..30).map(|i| format!("w{i:02}")).collect();
        let line: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 50)).collect();
        let all = || node("h:1", Some("eve"), &line, 7);
        let seen = seen([all(), all(), all()]);
        assert_eq!((seen.line().len(), seen.waiting()), (30, 37));
        let text = seen.to_string();
        assert!(text.contains("; 37 wait in the queue\n"), "{text}");
        assert!(text.ends_with(" nodes\nand 17 more"), "{text}");
        assert!(text.contains("\nw19:1") && !text.contains("w20"), "{text}");
    }

    #[test]
    fn a_holder_is_not_shown_as_a_waiter_on_a_late_node() {
        let seen = seen([
            node("h:1", Some("ann"), &[("bob", 10)], 0),
            node("h:2", Some("ann"), &[("bob", 10)], 0),
            node("h:3", None, &[("ann", 900), ("bob", 10)], 0),
        ]);
        let labels: Vec<String> = seen.line().into_iter().map(|one| one.label).collect();
        assert_eq!(labels, ["bob:1"]);
        assert_eq!(seen.waiting(), 1);
    }

    #[test]
    fn waiters_of_equal_age_are_sorted_by_entry() {
        let one = seen([node("h:1", None, &[("bob", 5), ("ann", 5)], 0)]);
        let labels: Vec<String> = one.line().into_iter().map(|one| one.label).collect();
        assert_eq!(labels, ["ann:1", "bob:1"], "as on the nodes: by entry");
    }
}
