//! What operators ask: who holds a name, and freeing it.

use std::sync::Arc;

use super::{
    Reply as Answer,
    core::{Core, Outstanding, Task},
    timers::Key,
};
use crate::{
    Error, FencingToken, Holder, Inspection, NodeInspection, Silence,
    ballot::answers::{Answers, Heard},
    clock::Tick,
    name::Name,
    node::{Batch, Command, Reply},
    owner::label_of,
};

/// A question to all nodes under way.
pub(super) struct Asking {
    name: Name,
    answers: Answers,
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

impl Core {
    pub(super) fn inspect(&mut self, now: Tick, name: Name, reply: Answer<Inspection>) {
        let command = Command::Inspect { name: name.clone() };
        self.ask_all(now, name, command, Asker::Inspect(reply));
    }

    pub(super) fn evict(&mut self, now: Tick, name: Name, reply: Answer<bool>) {
        let command = Command::Evict { name: name.clone() };
        self.ask_all(now, name, command, Asker::Evict(reply));
    }

    fn ask_all(&mut self, now: Tick, name: Name, command: Command, reply: Asker) {
        let batch = Batch::one(command);
        let total = self.settings.total();
        let mut answers = Answers::new(total);
        let ticket = self.new_ticket();
        for node in 0..total {
            let asked = self.session(now, node, |session, step| session.ask(step, ticket, &batch));
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
                let freed = answers.count(|r| *r == Reply::Evicted(true)) > 0;
                let answered = answers.count(|r| matches!(r, Reply::Evicted(_)));
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

fn node_inspection(node: &Arc<str>, heard: &Heard) -> NodeInspection {
    let node = Arc::clone(node);
    match heard {
        Heard::Said(Reply::Inspected { holder, counter }) => NodeInspection {
            node,
            holder: holder.as_ref().map(|(entry, remaining)| Holder {
                entry: entry.clone(),
                label: label_of(entry).to_owned(),
                remaining: *remaining,
            }),
            token: (*counter > 0).then(|| FencingToken::from_counter(*counter)),
            silence: None,
        },
        Heard::Silent(silence) => NodeInspection {
            node,
            holder: None,
            token: None,
            silence: Some(silence.clone()),
        },
        Heard::Waiting | Heard::Said(_) => NodeInspection {
            node,
            holder: None,
            token: None,
            silence: Some(Silence::TimedOut),
        },
    }
}
