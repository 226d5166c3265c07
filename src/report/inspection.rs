//! The holders and waiters of a name as every node sees them: the answer of
//! [`Quorum::inspect`](crate::Quorum::inspect).

mod line;
mod rwlock;
mod slots;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use crate::{
    FencingToken, Silence,
    base::{
        majority::majority,
        owner::owner_of,
        printable::HIDDEN,
        text::{are_needed, seconds, table},
    },
};

pub use line::Waiter;
pub use rwlock::{NodeRwlock, Reader, WaitingWriter};
pub use slots::{NodeSlots, Slot};

/// The holders and waiters of a name as every node sees them.
///
/// It covers the mutex, the semaphore and the read-write lock of that name. A holder of several names holds the mutex
/// of each of them.
///
/// `Display` is meant for operators: the holder, a row for each node, and a row for each of the first 20 waiters. For a
/// semaphore there is also a row for each slot that is taken, and for a read-write lock one for each of the first 20
/// readers. Primitives that nobody uses by that name are left out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// let quorum = quorate::Quorum::in_memory(3);
/// let lease = quorum.mutex("nightly").lock().await?;
/// let seen = quorum.inspect("nightly").await?;
/// assert!(seen.to_string().starts_with("\"nightly\" is held on "));
/// println!("{seen}");
/// # drop(lease); Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The name.
    pub name: String,
    /// Every node, in the order in which they were given to the builder.
    pub nodes: Vec<NodeInspection>,
}

impl Inspection {
    /// The holder of the mutex, as a majority of nodes names it.
    pub fn holder(&self) -> Option<&Holder> {
        self.of_a_majority(self.nodes.iter().filter_map(|node| node.holder.as_ref()))
    }

    /// The newest token that any node has given out for the mutex of this name.
    pub fn newest_token(&self) -> Option<FencingToken> {
        self.nodes.iter().filter_map(|node| node.token).max()
    }

    /// The holder that a majority of nodes names. Holders with hidden texts cannot be told apart, so they are not
    /// counted.
    fn of_a_majority<'h>(&self, named: impl Iterator<Item = &'h Holder>) -> Option<&'h Holder> {
        let mut votes: BTreeMap<&str, (usize, &Holder)> = BTreeMap::new();
        for holder in named.filter(|holder| holder.entry != HIDDEN) {
            votes.entry(&holder.entry).or_insert((0, holder)).0 += 1;
        }
        let most = votes.into_values().max_by_key(|(votes, _)| *votes);
        most.filter(|(votes, _)| *votes >= majority(self.nodes.len()))
            .map(|(_, holder)| holder)
    }

    /// How many nodes answered.
    fn answered(&self) -> usize {
        let answered = |node: &&NodeInspection| node.silence.is_none();
        self.nodes.iter().filter(answered).count()
    }

    /// How many nodes name a holder that matches `by`.
    fn held(&self, by: impl Fn(&Holder) -> bool) -> usize {
        let held = |node: &&NodeInspection| node.holder.as_ref().is_some_and(&by);
        self.nodes.iter().filter(held).count()
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uses_mutex = self.held(|_| true) > 0 || self.waiting() > 0;
        let (semaphore, rwlock) = (self.has_semaphore(), self.uses_rwlock());
        let mutex = uses_mutex || !(semaphore || rwlock);
        if mutex {
            self.print_mutex(f)?;
        }
        if rwlock {
            f.write_str(if mutex { "\n\n" } else { "" })?;
            self.print_rwlock(f)?;
        }
        if semaphore {
            f.write_str(if mutex || rwlock { "\n\n" } else { "" })?;
            self.print_semaphore(f)?;
        }
        Ok(())
    }
}

impl Inspection {
    fn print_mutex(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, total) = (&self.name, self.nodes.len());
        let (answered, needed) = (self.answered(), majority(total));
        match (self.holder(), self.held(|_| true)) {
            (Some(holder), _) => {
                let on = self.held(|other| other.entry == holder.entry);
                write!(f, "{name:?} is held on {on} of {total} nodes by {holder}")
            }
            (None, _) if answered < needed => write!(
                f,
                "{name:?}: the holder is unknown, {answered} of {total} nodes answered and {}",
                are_needed(needed)
            ),
            (None, 0) if answered == total => write!(f, "{name:?} is free"),
            (None, 0) => write!(
                f,
                "{name:?} is free on the {answered} of {total} nodes that answered"
            ),
            (None, some) => write!(
                f,
                "{name:?} is held by nobody: entries on {some} of {total} nodes, but {needed} nodes must name the same holder"
            ),
        }?;
        line::print_count(self.waiting(), f)?;
        let rows: Vec<Vec<String>> = self.nodes.iter().map(NodeInspection::row).collect();
        let head = ["NODE", "HOLDER", "REMAINING", "TOKEN", "WAITING", "STATE"];
        write!(f, "\n\n{}", table(&head, &rows))?;
        line::print(&self.line(), self.waiting(), total, f)
    }
}

/// One node's part of an [`Inspection`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInspection {
    /// The node's address: host:port, or the path of its socket.
    pub node: Arc<str>,
    /// The holder of the mutex there.
    pub holder: Option<Holder>,
    /// The newest token that was given out there for the mutex.
    pub token: Option<FencingToken>,
    /// The first waiters for the mutex there, in the order of the queue: up to 100.
    pub line: Vec<Waiter>,
    /// How many wait for the mutex there.
    pub waiting: u64,
    /// The semaphore there. `None` if nobody has used one by that name for long.
    pub semaphore: Option<NodeSlots>,
    /// The read-write lock there. `None` if nobody has used one by that name for long.
    pub rwlock: Option<NodeRwlock>,
    /// Why the node did not answer; `None` if it did.
    pub silence: Option<Silence>,
}

impl NodeInspection {
    /// The node's row in the table of an [`Inspection`].
    fn row(&self) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let holder = self.holder.as_ref();
        vec![
            self.node.to_string(),
            or_dash(holder.map(|holder| holder.label.clone())),
            or_dash(holder.map(Holder::time_left)),
            or_dash(self.token.map(|token| token.to_string())),
            or_dash(self.length()),
            self.state(),
        ]
    }

    fn state(&self) -> String {
        let silence = self.silence.as_ref().map(ToString::to_string);
        silence.unwrap_or_else(|| "voting".to_owned())
    }
}

/// A holder of a mutex, of a slot or of a read-write lock, as a node knows it. `Display`:
/// `web-3:77, for 8.2 s more unless it is renewed`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The text on the node, `<owner>@<label>`. It belongs to this one attempt.
    pub entry: String,
    /// The holder's label: that of its handle, or of its quorum.
    pub label: String,
    /// How much longer it holds the lock unless it renews. `None` if that has no end.
    pub remaining: Option<Duration>,
}

impl Holder {
    /// The owner's uuid, with its hyphens. It is new for every attempt, so it tells two leases with the same label
    /// apart. `None` if the lock's key holds a text that this library did not write.
    pub fn owner(&self) -> Option<String> {
        owner_of(&self.entry).map(|owner| owner.to_string())
    }

    /// The time left, such as `8.2 s`, or that it has no end.
    fn time_left(&self) -> String {
        let left = self.remaining.map(seconds);
        left.unwrap_or_else(|| "no end".to_owned())
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)?;
        match self.remaining {
            Some(left) => write!(f, ", for {} more unless it is renewed", seconds(left)),
            None => f.write_str(", without an end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: &str, owner: &str) -> NodeInspection {
        NodeInspection {
            node: node.into(),
            holder: Some(Holder {
                entry: format!("{owner}@web-3:77"),
                label: "web-3:77".into(),
                remaining: Some(Duration::from_millis(8_250)),
            }),
            token: Some(FencingToken::from_counter(42)),
            line: Vec::new(),
            waiting: 0,
            semaphore: None,
            rwlock: None,
            silence: None,
        }
    }

    fn free(at: &str) -> NodeInspection {
        NodeInspection {
            holder: None,
            token: None,
            ..node(at, "")
        }
    }

    fn silent(at: &str) -> NodeInspection {
        NodeInspection {
            silence: Some(Silence::Stalled),
            ..free(at)
        }
    }

    fn seen(nodes: impl IntoIterator<Item = NodeInspection>) -> Inspection {
        Inspection {
            name: "a \"b\"".into(),
            nodes: nodes.into_iter().collect(),
        }
    }

    #[test]
    fn the_text_shows_the_holder_and_each_nodes_answer() {
        let mut endless = node("10.0.0.12:6379", "one");
        if let Some(holder) = &mut endless.holder {
            holder.remaining = None;
        }
        let seen = seen([
            node("h:1", "one"),
            endless,
            silent("h:3"),
            free("h:4"),
            node("h:5", "one"),
        ]);
        assert_eq!(
            seen.to_string(),
            r#""a \"b\"" is held on 3 of 5 nodes by web-3:77, for 8.2 s more unless it is renewed

NODE            HOLDER    REMAINING  TOKEN  WAITING  STATE
h:1             web-3:77  8.2 s      42     0        voting
10.0.0.12:6379  web-3:77  no end     42     0        voting
h:3             -         -          -      -        stalled: an earlier request is unanswered
h:4             -         -          -      0        voting
h:5             web-3:77  8.2 s      42     0        voting"#
        );
    }

    #[test]
    fn an_owner_is_printed_as_a_uuid() {
        let owner = |entry: &str| {
            let mut node = node("h:1", "one");
            node.holder.as_mut().unwrap().entry = entry.into();
            node.holder.unwrap().owner()
        };
        assert_eq!(
            owner("67e5504410b1426f9247bb680e5fe0c8@web-3:77").as_deref(),
            Some("67e55044-10b1-426f-9247-bb680e5fe0c8")
        );
        assert_eq!(owner("somebody else's"), None);
    }

    #[test]
    fn holders_that_may_not_be_shown_are_not_taken_for_one() {
        let hidden = |at| {
            let mut node = node(at, "one");
            node.holder.as_mut().unwrap().entry = HIDDEN.into();
            node
        };
        let seen = seen([hidden("h:1"), hidden("h:2"), hidden("h:3")]);
        assert!(seen.holder().is_none(), "{seen}");
    }

    #[test]
    fn an_unknown_state_is_not_called_free() {
        let (one, two) = (|| node("h:1", "one"), || node("h:2", "two"));
        let (free, silent) = (|| free("h:3"), || silent("h:4"));
        for (nodes, verdict) in [
            (vec![free(), free(), free()], "is free"),
            (
                vec![free(), free(), silent()],
                "is free on the 2 of 3 nodes that answered",
            ),
            (
                vec![one(), two(), free()],
                "is held by nobody: entries on 2 of 3 nodes, but 2 nodes must name the same holder",
            ),
            (
                vec![one(), silent(), silent()],
                ": the holder is unknown, 1 of 3 nodes answered and 2 are needed",
            ),
        ] {
            let text = seen(nodes).to_string();
            let first = text.lines().next().unwrap();
            let said = first.strip_prefix(r#""a \"b\"""#).unwrap();
            assert_eq!(said.trim_start(), verdict);
        }
    }
}
