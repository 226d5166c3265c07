//! Who waits in line: what each node says, and all of them together.

use std::{cmp::Reverse, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use super::{Inspection, NodeInspection};
use crate::base::{
    owner::owner_of,
    text::{seconds, table},
};

/// At most this many are printed; the others are counted.
pub(super) const PRINTED: usize = 20;

/// One who waits in line for a name. `Display`: `web-4:12, for 1.2 s`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// `<owner>@<label>` as it stands on the node: who waits, for this one wait.
    pub entry: String,
    /// The label that the waiter's quorum was built with.
    pub label: String,
    /// For how long it has waited, as far as that can be told: its ticket is the time of its own wall clock when it
    /// took its place, and is compared with the node's clock. So this is wrong by what the two clocks differ, and
    /// never below zero. (A clock that is behind everybody's in line takes the next ticket after theirs, so the
    /// order does not suffer.)
    pub waited: Duration,
    /// The nodes on which it stands in line. In [`NodeInspection::line`] it is that node alone.
    pub nodes: Vec<Arc<str>>,
}

impl Waiter {
    /// The owner's uuid, with its hyphens: new for every wait, and the [`Holder`](crate::Holder)'s when its turn has
    /// come. None if this library did not write what stands there.
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
    /// Who waits in line, longest first, each with the nodes on which it stands and the longest time that one of them
    /// says. The holder does not wait, whatever a node that was not told yet says.
    ///
    /// A place counts once a majority knows of it. Who stands on fewer nodes comes, goes, or could not reach the
    /// others. Who is dead stands there until its turn comes. Each node names the first 100;
    /// [`waiting`](Self::waiting) counts all.
    pub fn line(&self) -> Vec<Waiter> {
        let holder = self.holder().map(|holder| holder.entry.as_str());
        let waiters = self.nodes.iter().flat_map(|node| &node.line);
        merged(waiters.filter(|waiter| holder != Some(waiter.entry.as_str())))
    }

    /// How many wait in line: the most that any node counts, or that all of them name together.
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
    /// How many wait there; none if it did not say.
    pub(super) fn length(&self) -> Option<String> {
        self.silence.is_none().then(|| self.waiting.to_string())
    }
}

/// Those whom nodes name, longest first, each once.
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

/// The longest of the lines, each with how many it has, without those who hold already.
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

/// The end of the first line that an operator reads.
pub(super) fn print_count(waiting: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match waiting {
        0 => Ok(()),
        1 => f.write_str("; 1 waits in line"),
        more => write!(f, "; {more} wait in line"),
    }
}

/// A row for each of the first; nothing if nobody waits.
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
    write!(f, "\n\n{}", table(&["IN LINE", "WAITED", "ON"], &rows))?;
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

    /// A node, those who wait there, and how many it counts beyond them.
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
    fn an_operator_reads_who_waits_for_how_long_and_where() {
        let seen = seen([
            node("h:1", Some("eve"), &[("ann", 8_250), ("bob", 600)], 0),
            node("h:2", Some("eve"), &[("ann", 8_300), ("bob", 650)], 0),
            node("h:3", Some("eve"), &[("ann", 7_900)], 0),
            silent("h:4"),
        ]);
        assert_eq!(
            seen.to_string(),
            r#""a" is held on 3 of 4 nodes by eve:1, for 3.0 s more unless it is renewed; 2 wait in line

NODE  HOLDER  REMAINING  TOKEN  WAITING  STATE
h:1   eve:1   3.0 s      -      2        voting
h:2   eve:1   3.0 s      -      2        voting
h:3   eve:1   3.0 s      -      1        voting
h:4   -       -          -      -        stalled: an earlier request is unanswered

IN LINE  WAITED  ON
ann:1    8.3 s   3 of 4 nodes
bob:1    650 ms  2 of 4 nodes"#
        );
        let line = seen.line();
        assert_eq!(line[1].nodes, ["h:1", "h:2"].map(Arc::from));
        assert_eq!(line[0].to_string(), "ann:1, for 8.3 s");
        assert_eq!(line[0].owner(), None, "not one of ours");
    }

    #[test]
    fn a_name_may_have_a_line_and_no_holder() {
        let some = || node("h:1", None, &[("ann", 10)], 0);
        let text = seen([some(), some(), some()]).to_string();
        assert!(
            text.starts_with("\"a\" is free; 1 waits in line\n"),
            "{text}"
        );
        assert!(text.ends_with("\nann:1    10 ms   3 of 3 nodes"), "{text}");
        let nobody = || node("h:1", None, &[], 0);
        let text = seen([nobody(), nobody(), nobody()]).to_string();
        assert!(!text.contains("IN LINE"), "{text}");
    }

    #[test]
    fn a_long_line_is_cut_and_counted() {
        let names: Vec<String> = (0..30).map(|i| format!("w{i:02}")).collect();
        let line: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 50)).collect();
        let all = || node("h:1", Some("eve"), &line, 7);
        let seen = seen([all(), all(), all()]);
        assert_eq!((seen.line().len(), seen.waiting()), (30, 37));
        let text = seen.to_string();
        assert!(text.contains("; 37 wait in line\n"), "{text}");
        assert!(text.ends_with(" nodes\nand 17 more"), "{text}");
        assert!(text.contains("\nw19:1") && !text.contains("w20"), "{text}");
    }

    #[test]
    fn the_holder_does_not_wait_where_a_node_was_not_told_yet() {
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
    fn those_who_waited_equally_long_stand_in_one_order() {
        let one = seen([node("h:1", None, &[("bob", 5), ("ann", 5)], 0)]);
        let labels: Vec<String> = one.line().into_iter().map(|one| one.label).collect();
        assert_eq!(labels, ["ann:1", "bob:1"], "as on the nodes: by entry");
    }
}
