//! What operators ask: who holds a name, and freeing it.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use super::{
    Reply as Answer,
    core::{Core, Outstanding, Task},
    timers::Key,
};
use crate::{
    Error, FencingToken, Silence, Vote,
    ballot::{
        answers::{Answers, Evidence, Heard},
        majority::majority,
    },
    claim,
    clock::Tick,
    columns::{seconds, table},
    name::Name,
    node::{
        Operation, Reply, admission,
        session::{RoundId, Tag},
    },
    owner::label_of,
};

/// A question to all nodes under way.
pub(super) struct Asking {
    name: Name,
    answers: Answers<Reply>,
    reply: Asker,
}

enum Asker {
    Inspect(Answer<Inspection>),
    Evict(Answer<bool>),
}

impl Asking {
    pub(super) fn vote(&mut self, node: usize, answer: Result<Reply, Silence>) {
        self.answers.set(node, answer);
    }

    pub(super) fn outstanding(&self) -> Vec<Outstanding> {
        let nodes = self.answers.outstanding();
        nodes.map(|node| (node, None)).collect()
    }
}

/// Who holds a name, as every node sees it. `Display` is what an operator reads: who holds it, and a line for
/// each node.
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
    /// Every node, in the order they were given to the builder.
    pub nodes: Vec<NodeInspection>,
}

impl Inspection {
    /// Whoever holds the name on a majority of nodes: the mutex's holder.
    pub fn holder(&self) -> Option<&Holder> {
        let mut votes: BTreeMap<&str, (usize, &Holder)> = BTreeMap::new();
        for holder in self.nodes.iter().filter_map(|node| node.holder.as_ref()) {
            votes.entry(&holder.entry).or_insert((0, holder)).0 += 1;
        }
        let most = votes.into_values().max_by_key(|(votes, _)| *votes);
        most.filter(|(votes, _)| *votes >= majority(self.nodes.len()))
            .map(|(_, holder)| holder)
    }

    /// The newest token that any node has given out for the name.
    pub fn newest_token(&self) -> Option<FencingToken> {
        self.nodes.iter().filter_map(|node| node.token).max()
    }

    /// How many nodes said who holds it.
    fn answered(&self) -> usize {
        let answered = |node: &&NodeInspection| node.silence.is_none();
        self.nodes.iter().filter(answered).count()
    }

    /// On how many nodes the holder is one like this.
    fn held(&self, by: impl Fn(&Holder) -> bool) -> usize {
        let held = |node: &&NodeInspection| node.holder.as_ref().is_some_and(&by);
        self.nodes.iter().filter(held).count()
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, total) = (&self.name, self.nodes.len());
        let (answered, needed) = (self.answered(), majority(total));
        match (self.holder(), self.held(|_| true)) {
            (Some(holder), _) => {
                let on = self.held(|other| other.entry == holder.entry);
                write!(f, "{name:?} is held on {on} of {total} nodes by {holder}")
            }
            (None, _) if answered < needed => write!(
                f,
                "{name:?}: cannot be told, {answered} of {total} nodes answered and {needed} are needed"
            ),
            (None, 0) if answered == total => write!(f, "{name:?} is free"),
            (None, 0) => write!(
                f,
                "{name:?} is free on the {answered} of {total} nodes that answered"
            ),
            (None, some) => write!(
                f,
                "{name:?} is held by nobody: on {some} of {total} nodes there is an entry, {needed} are needed"
            ),
        }?;
        let rows: Vec<Vec<String>> = self.nodes.iter().map(NodeInspection::row).collect();
        let head = ["NODE", "HOLDER", "REMAINING", "TOKEN", "STATE"];
        write!(f, "\n\n{}", table(&head, &rows))
    }
}

/// One node's part of an [`Inspection`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInspection {
    /// host:port, or the path of its socket.
    pub node: Arc<str>,
    /// Who holds the mutex there.
    pub holder: Option<Holder>,
    /// The newest token that was given out there.
    pub token: Option<FencingToken>,
    /// Why the node did not say.
    pub silence: Option<Silence>,
}

impl NodeInspection {
    /// As it stands under the head of an [`Inspection`].
    fn row(&self) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let holder = self.holder.as_ref();
        let remaining = holder.map(|holder| {
            let remaining = holder.remaining.map(seconds);
            remaining.unwrap_or_else(|| "no end".to_owned())
        });
        let silence = self.silence.as_ref().map(ToString::to_string);
        vec![
            self.node.to_string(),
            or_dash(holder.map(|holder| holder.label.clone())),
            or_dash(remaining),
            or_dash(self.token.map(|token| token.to_string())),
            silence.unwrap_or_else(|| "voting".to_owned()),
        ]
    }
}

/// A holder, as a node knows it. `Display`: `web-3:77, for 8.2 s more unless it is renewed`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// `<owner>@<label>`: who, for this one attempt.
    pub entry: String,
    /// The label that the holder's quorum was built with.
    pub label: String,
    /// For how much longer unless it is renewed; none: without an end.
    pub remaining: Option<Duration>,
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

impl Core {
    pub(super) fn inspect(&mut self, now: Tick, name: Name, reply: Answer<Inspection>) {
        let command = claim::inspect(name.clone());
        self.ask_all(now, name, command, Asker::Inspect(reply));
    }

    pub(super) fn evict(&mut self, now: Tick, name: Name, reply: Answer<bool>) {
        let command = claim::evict(name.clone());
        self.ask_all(now, name, command, Asker::Evict(reply));
    }

    fn ask_all(&mut self, now: Tick, name: Name, operation: Arc<Operation>, reply: Asker) {
        let total = self.settings.total();
        let mut answers = Answers::new(total);
        let ticket = self.new_ticket();
        let tag = Tag {
            round: RoundId(ticket),
            request: 0,
        };
        for node in 0..total {
            let asked = self.session(now, node, |session, step| {
                session.ask(step, tag, &operation)
            });
            if let Some(Err(silence)) = asked {
                answers.set(node, Err(silence));
            }
        }
        self.put(
            ticket,
            Task::Asking(Asking {
                name,
                answers,
                reply,
            }),
        );
        self.timers
            .at(Key::Task(ticket), now.plus(self.settings.node_timeout));
        self.asking_heard(now, ticket);
    }

    /// Waits for every node: an operator wants to know what each one says.
    pub(super) fn asking_heard(&mut self, now: Tick, ticket: u64) {
        match self.task(ticket) {
            Some(Task::Asking(asking)) if asking.answers.waiting() == 0 => {}
            _ => return,
        }
        let Some(Task::Asking(Asking {
            name,
            answers,
            reply,
        })) = self.take(ticket)
        else {
            return;
        };
        match reply {
            Asker::Inspect(reply) => {
                let nodes = self.settings.nodes.iter().zip(answers.iter());
                let nodes = nodes
                    .map(|(node, heard)| node_inspection(node, heard))
                    .collect();
                let _ = reply.send(Ok(Inspection {
                    name: name.as_str().to_owned(),
                    nodes,
                }));
            }
            Asker::Evict(reply) => {
                let freed = answers.count(|r| claim::evicted(r) == Some(true)) > 0;
                let answered = answers.count(|r| claim::evicted(r).is_some());
                let report = || {
                    let again = self.try_again(now, self.needed);
                    answers.report(
                        name.as_str(),
                        self.needed,
                        &self.settings.nodes,
                        Some(again),
                    )
                };
                let _ = reply.send(match answered >= self.needed {
                    true => Ok(freed),
                    false => Err(Error::NoQuorum(report())),
                });
            }
        }
    }
}

impl Evidence for Reply {
    fn vote(&self) -> Vote {
        match self {
            Self::Admission(admission::Reply::Admitted(false)) => Vote::None(Silence::NotAdmitted),
            _ => Vote::Confirmed,
        }
    }
}

fn node_inspection(node: &Arc<str>, heard: &Heard<Reply>) -> NodeInspection {
    let node = Arc::clone(node);
    let seen = match heard {
        Heard::Said(reply) => claim::seen(reply.clone()),
        Heard::Waiting | Heard::Silent(_) => None,
    };
    match (heard, seen) {
        (_, Some(claim::Seen { holder, counter })) => NodeInspection {
            node,
            holder: holder.as_ref().map(|(entry, remaining)| Holder {
                entry: entry.clone(),
                label: label_of(entry).to_owned(),
                remaining: *remaining,
            }),
            token: (counter > 0).then(|| FencingToken::from_counter(counter)),
            silence: None,
        },
        (Heard::Silent(silence), None) => NodeInspection {
            node,
            holder: None,
            token: None,
            silence: Some(silence.clone()),
        },
        (Heard::Waiting | Heard::Said(_), None) => NodeInspection {
            node,
            holder: None,
            token: None,
            silence: Some(Silence::TimedOut),
        },
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
    fn an_operator_reads_who_holds_and_what_each_node_says() {
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

NODE            HOLDER    REMAINING  TOKEN  STATE
h:1             web-3:77  8.2 s      42     voting
10.0.0.12:6379  web-3:77  no end     42     voting
h:3             -         -          -      stalled: an earlier request is unanswered
h:4             -         -          -      voting
h:5             web-3:77  8.2 s      42     voting"#
        );
    }

    #[test]
    fn what_cannot_be_told_is_not_called_free() {
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
                "is held by nobody: on 2 of 3 nodes there is an entry, 2 are needed",
            ),
            (
                vec![one(), silent(), silent()],
                ": cannot be told, 1 of 3 nodes answered and 2 are needed",
            ),
        ] {
            let text = seen(nodes).to_string();
            let first = text.lines().next().unwrap();
            let said = first.strip_prefix(r#""a \"b\"""#).unwrap();
            assert_eq!(said.trim_start(), verdict);
        }
    }
}
