//! What operators ask of a name: who holds it and who waits for it, and freeing it.

mod told;

use std::{collections::HashMap, sync::Arc};

use super::{
    net::Net,
    round::{self, Request},
    timers::Key,
};
use crate::{
    Error, Inspection, Silence, Vote,
    ballot::answers::{Answers, Evidence, Heard},
    claim::{self, Claim, Family, Inspected, Lock, Pool, Seen},
    name::Name,
    node::{
        Operation, Reply,
        session::{RoundId, Tag},
    },
    owner::Entry,
    response::Responder,
    rules::Rule,
};

/// What belongs to one question.
const REQUESTS: [Request; 2] = [Request::Question, Request::QuestionOfSlots];

/// Questions under way. Each waits for every node: an operator wants to know what each one says.
#[derive(Default)]
pub(super) struct Questions(HashMap<RoundId, Question>);

struct Question {
    name: Name,
    asks: Asks,
}

enum Asks {
    /// The mutex, and the slots of the semaphore.
    WhoHolds(Answers<Seen>, Answers<Inspected>, Responder<Inspection>),
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
        let pool = Pool {
            name: name.clone(),
            family: Family::Permits,
        };
        let operations = [
            (Request::Question, claim::inspect(name.clone())),
            (Request::QuestionOfSlots, claim::look(&pool)),
        ];
        let none = (Answers::new(net.total()), Answers::new(net.total()));
        let asks = Asks::WhoHolds(none.0, none.1, reply);
        self.ask(net, Question { name, asks }, &operations);
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
            &[(Request::Question, operation)],
        );
        if let Some(nobody) = nobody {
            release(net, name, &nobody);
        }
    }

    pub(super) fn heard(
        &mut self,
        net: &mut Net,
        tag: Tag,
        node: usize,
        answer: Result<Reply, Silence>,
    ) {
        if let Some(question) = self.0.get_mut(&tag.round) {
            question.asks.heard(tag, node, answer);
            question.free_elsewhere(net, node);
            self.look(net, tag.round);
        }
    }

    /// Answers are due.
    pub(super) fn round_due(&mut self, net: &mut Net, tag: Tag) {
        let Some(question) = self.0.get_mut(&tag.round) else {
            return;
        };
        let outstanding = question.asks.outstanding(tag).into_iter();
        let outstanding = outstanding.map(|node| (node, None));
        for (node, silence) in round::due(net, tag, outstanding) {
            question.asks.heard(tag, node, Err(silence));
        }
        self.look(net, tag.round);
    }

    /// The engine ends.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn ask(
        &mut self,
        net: &mut Net,
        mut question: Question,
        operations: &[(Request, Arc<Operation>)],
    ) {
        let round = net.new_round();
        for (request, operation) in operations {
            let (tag, nodes) = (request.of(round), 0..net.total());
            for (node, silence) in round::ask(net, tag, operation, nodes) {
                question.asks.heard(tag, node, Err(silence));
            }
            round::arm(net, tag);
        }
        self.0.insert(round, question);
        self.look(net, round);
    }

    fn look(&mut self, net: &mut Net, round: RoundId) {
        if self.0.get(&round).is_some_and(Question::is_answered) {
            for request in REQUESTS {
                net.timers.cancel(Key::Round(request.of(round)));
            }
            if let Some(question) = self.0.remove(&round) {
                question.end(net);
            }
        }
    }
}

impl Question {
    fn is_answered(&self) -> bool {
        match &self.asks {
            Asks::WhoHolds(mutex, slots, _) => mutex.waiting() + slots.waiting() == 0,
            Asks::ToFree(answers, _) => answers.waiting() == 0,
        }
    }

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
            Asks::WhoHolds(mutex, slots, reply) => {
                let heard = mutex.iter().zip(slots.iter());
                let nodes = net.settings.nodes.iter().zip(heard);
                let nodes =
                    nodes.map(|(node, (mutex, slots))| told::inspection(node, mutex, slots));
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
    fn heard(&mut self, tag: Tag, node: usize, answer: Result<Reply, Silence>) {
        // No other reply fits the command.
        match self {
            Self::WhoHolds(_, slots, _) if is_of_slots(tag) => {
                let seen = answer.and_then(|reply| claim::looked(reply).ok_or(Silence::TimedOut));
                slots.set(node, seen);
            }
            Self::WhoHolds(mutex, ..) => {
                let seen = answer.and_then(|reply| claim::seen(reply).ok_or(Silence::TimedOut));
                mutex.set(node, seen);
            }
            Self::ToFree(answers, _) => {
                let evicted =
                    answer.and_then(|reply| claim::evicted(&reply).ok_or(Silence::TimedOut));
                answers.set(node, evicted.map(|(held, holder)| Evicted(held, holder)));
            }
        }
    }

    fn outstanding(&self, tag: Tag) -> Vec<usize> {
        match self {
            Self::WhoHolds(_, slots, _) if is_of_slots(tag) => slots.outstanding().collect(),
            Self::WhoHolds(mutex, ..) => mutex.outstanding().collect(),
            Self::ToFree(answers, _) => answers.outstanding().collect(),
        }
    }
}

fn is_of_slots(tag: Tag) -> bool {
    Request::from(tag) == Some(Request::QuestionOfSlots)
}

/// On all nodes, as far as they answer soon.
fn release(net: &mut Net, name: Name, entry: &Entry) {
    let operation = Claim::Lock(Lock::Mutex(name)).release(entry, net.undo(0, None));
    let until = net.now.plus(net.settings.node_timeout);
    round::release(net, None, &operation, 0..net.total(), until);
}
