//! What operators ask of a name: who holds it and who waits for it, and freeing it.

use std::{collections::HashMap, sync::Arc};

use super::{
    net::Net,
    round::{self, Request},
    timers::Key,
};
use crate::{
    Error, FencingToken, Holder, Inspection, NodeInspection, Silence, Vote, Waiter,
    ballot::answers::{Answers, Evidence, Heard},
    claim::{self, Claim, Seen},
    name::Name,
    node::{Operation, Reply, session::RoundId},
    owner::{Entry, label_of},
    response::Responder,
    rules::Rule,
};

/// Questions under way. Each waits for every node: an operator wants to know what each one says.
#[derive(Default)]
pub(super) struct Questions(HashMap<RoundId, Question>);

struct Question {
    name: Name,
    asks: Asks,
}

enum Asks {
    WhoHolds(Answers<Seen>, Responder<Inspection>),
    ToFree(Answers<Evicted>, Responder<bool>),
}

/// Whether anybody held it, and who.
#[derive(PartialEq)]
struct Evicted(bool, Option<Entry>);

impl Evidence for Evicted {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

impl Questions {
    pub(super) fn inspect(&mut self, net: &mut Net, name: Name, reply: Responder<Inspection>) {
        let operation = claim::inspect(name.clone());
        let asks = Asks::WhoHolds(Answers::new(net.total()), reply);
        self.ask(net, Question { name, asks }, &operation);
    }

    pub(super) fn evict(&mut self, net: &mut Net, name: Name, reply: Responder<bool>) {
        let operation = claim::evict(name.clone(), net.fleet().max_ttl());
        let asks = Asks::ToFree(Answers::new(net.total()), reply);
        // Behind it, the release of nobody's lock: where the name is free now it goes to who waits.
        let nobody = net.chance.owner().ok();
        let nobody = nobody.map(|owner| Entry::new(owner, &net.settings.label));
        self.ask(
            net,
            Question {
                name: name.clone(),
                asks,
            },
            &operation,
        );
        if let Some(nobody) = nobody {
            release(net, name, &nobody);
        }
    }

    pub(super) fn heard(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Reply, Silence>,
    ) {
        if let Some(question) = self.0.get_mut(&round) {
            question.asks.heard(node, answer);
            question.free_elsewhere(net, node);
            self.look(net, round);
        }
    }

    /// Answers are due.
    pub(super) fn round_due(&mut self, net: &mut Net, round: RoundId) {
        let Some(question) = self.0.get_mut(&round) else {
            return;
        };
        let outstanding = question.asks.outstanding().into_iter();
        let outstanding = outstanding.map(|node| (node, None));
        for (node, silence) in round::due(net, Request::Question.of(round), outstanding) {
            question.asks.heard(node, Err(silence));
        }
        self.look(net, round);
    }

    /// The engine ends.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn ask(&mut self, net: &mut Net, mut question: Question, operation: &Arc<Operation>) {
        let round = net.new_round();
        let (tag, nodes) = (Request::Question.of(round), 0..net.total());
        for (node, silence) in round::ask(net, tag, operation, nodes) {
            question.asks.heard(node, Err(silence));
        }
        round::arm(net, tag);
        self.0.insert(round, question);
        self.look(net, round);
    }

    fn look(&mut self, net: &mut Net, round: RoundId) {
        let answered = |question: &Question| question.asks.outstanding().is_empty();
        if self.0.get(&round).is_some_and(answered) {
            net.timers.cancel(Key::Round(Request::Question.of(round)));
            if let Some(question) = self.0.remove(&round) {
                question.end(net);
            }
        }
    }
}

impl Question {
    /// Whom an EVICT found on one node may stand in line on another, and be handed the lock there again: with a third that no
    /// EVICT reached it would have a majority.
    fn free_elsewhere(&self, net: &mut Net, node: usize) {
        let Asks::ToFree(answers, _) = &self.asks else {
            return;
        };
        let holder = |heard: &Heard<Evicted>| match heard {
            Heard::Said(Evicted(_, holder)) => holder.clone(),
            _ => None,
        };
        let Some(found) = answers.get(node).and_then(holder) else {
            return;
        };
        let known = answers
            .iter()
            .filter_map(holder)
            .filter(|other| *other == found);
        if known.count() > 1 || !net.holds(Rule::EvictionLasts) {
            return;
        }
        release(net, self.name.clone(), &found);
    }

    /// Every node has answered, or will not.
    fn end(self, net: &Net) {
        let name = self.name.as_str();
        match self.asks {
            Asks::WhoHolds(answers, reply) => {
                let nodes = net.settings.nodes.iter().zip(answers.iter());
                let nodes = nodes.map(|(node, heard)| node_inspection(node, heard));
                let _ = reply.send(Ok(Inspection {
                    name: name.to_owned(),
                    nodes: nodes.collect(),
                }));
            }
            Asks::ToFree(answers, reply) => {
                let answered = answers.count(|_| true);
                let _ = reply.send(match answered >= net.needed {
                    true => Ok(answers.count(|Evicted(held, _)| *held) > 0),
                    false => {
                        let (nodes, again) = (&net.settings.nodes, net.try_again(net.needed));
                        let report = answers.report(name, net.needed, nodes, Some(again));
                        Err(Error::NoQuorum(report))
                    }
                });
            }
        }
    }
}

impl Asks {
    fn heard(&mut self, node: usize, answer: Result<Reply, Silence>) {
        // No other reply fits the command.
        match self {
            Self::WhoHolds(answers, _) => {
                let seen = answer.and_then(|reply| claim::seen(reply).ok_or(Silence::TimedOut));
                answers.set(node, seen);
            }
            Self::ToFree(answers, _) => {
                let evicted =
                    answer.and_then(|reply| claim::evicted(&reply).ok_or(Silence::TimedOut));
                answers.set(node, evicted.map(|(held, holder)| Evicted(held, holder)));
            }
        }
    }

    fn outstanding(&self) -> Vec<usize> {
        match self {
            Self::WhoHolds(answers, _) => answers.outstanding().collect(),
            Self::ToFree(answers, _) => answers.outstanding().collect(),
        }
    }
}

/// On all nodes, as far as they answer soon.
fn release(net: &mut Net, name: Name, entry: &Entry) {
    let (floor, max_ttl) = (net.floor(0), net.fleet().max_ttl());
    let operation = Claim::Mutex(name).release(entry, floor, max_ttl);
    let until = net.now.plus(net.settings.node_timeout);
    round::release(net, None, &operation, 0..net.total(), until);
}

fn node_inspection(node: &Arc<str>, heard: &Heard<Seen>) -> NodeInspection {
    let mut inspection = NodeInspection {
        node: Arc::clone(node),
        holder: None,
        token: None,
        line: Vec::new(),
        waiting: 0,
        silence: None,
    };
    match heard {
        Heard::Said(Seen {
            holder,
            counter,
            line,
            waiting,
        }) => {
            inspection.holder = holder.as_ref().map(|(entry, remaining)| Holder {
                entry: entry.clone(),
                label: label_of(entry).to_owned(),
                remaining: *remaining,
            });
            inspection.token = (*counter > 0).then(|| FencingToken::from_counter(*counter));
            let waiters = line.iter().map(|(entry, waited)| Waiter {
                entry: entry.clone(),
                label: label_of(entry).to_owned(),
                waited: *waited,
                nodes: vec![Arc::clone(node)],
            });
            inspection.line = waiters.collect();
            inspection.waiting = *waiting;
        }
        Heard::Silent(silence) => inspection.silence = Some(silence.clone()),
        Heard::Waiting => inspection.silence = Some(Silence::TimedOut),
    }
    inspection
}
