//! What operators ask of a name: who holds it and who waits for it, and freeing it.

mod told;

use std::collections::HashMap;

use self::told::Evicted;
use super::{net::Net, round, timers::Key};
use crate::{
    Error, Inspection, Silence,
    base::{name::Name, owner::Entry, rules::Rule},
    lease::response::Responder,
    node::{
        Operation,
        answer::{Answer, MutexInspection, PoolInspection, RwlockInspection},
        request::{self, Family, Pool, Side, Target},
        session::{Purpose, RoundId, Tag},
    },
    protocol::ballot::answers::{Answers, Heard},
};

/// What belongs to one question.
const REQUESTS: [Purpose; 3] = [
    Purpose::Question,
    Purpose::QuestionOfSlots,
    Purpose::QuestionOfRwlock,
];

/// Questions under way. Each waits for every node: an operator wants to know what each one says.
#[derive(Default)]
pub(super) struct Questions(HashMap<RoundId, Question>);

struct Question {
    name: Name,
    asks: Asks,
}

enum Asks {
    WhoHolds {
        mutex: Answers<MutexInspection>,
        slots: Answers<PoolInspection>,
        rwlock: Answers<RwlockInspection>,
        reply: Responder<Inspection>,
    },
    ToFree {
        mutex: Answers<Evicted>,
        rwlock: Answers<Evicted>,
        reply: Responder<bool>,
    },
}

impl Questions {
    pub(super) fn inspect(&mut self, net: &mut Net, name: Name, reply: Responder<Inspection>) {
        let pool = Pool {
            name: name.clone(),
            family: Family::Permits,
        };
        let operations = [
            (
                Purpose::Question,
                request::Question::InspectMutex(name.clone()),
            ),
            (
                Purpose::QuestionOfSlots,
                request::Question::InspectPool(pool),
            ),
            (
                Purpose::QuestionOfRwlock,
                request::Question::InspectRwlock(name.clone()),
            ),
        ];
        let asks = Asks::WhoHolds {
            mutex: Answers::new(net.total()),
            slots: Answers::new(net.total()),
            rwlock: Answers::new(net.total()),
            reply,
        };
        self.ask(net, Question { name, asks }, operations);
    }

    pub(super) fn evict(&mut self, net: &mut Net, name: Name, reply: Responder<bool>) {
        let operations = [
            (
                Purpose::Question,
                request::Question::EvictMutex(name.clone()),
            ),
            (
                Purpose::QuestionOfRwlock,
                request::Question::EvictRwlock(name.clone()),
            ),
        ];
        let asks = Asks::ToFree {
            mutex: Answers::new(net.total()),
            rwlock: Answers::new(net.total()),
            reply,
        };
        // Behind it, the release of nobody's mutex: where the name is free now it goes to who waits. (Who waits for the
        // read-write lock is told by the eviction itself.)
        let nobody = net.chance.owner().ok();
        let nobody = nobody.map(|owner| Entry::new(owner, &net.settings.label));
        self.ask(
            net,
            Question {
                name: name.clone(),
                asks,
            },
            operations,
        );
        if let Some(nobody) = nobody {
            release(net, &Target::mutex(name), &nobody);
        }
    }

    pub(super) fn heard(
        &mut self,
        net: &mut Net,
        tag: Tag,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        if let Some(question) = self.0.get_mut(&tag.round) {
            question.asks.heard(tag, node, answer);
            question.free_elsewhere(net, tag, node);
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
        operations: impl IntoIterator<Item = (Purpose, request::Question)>,
    ) {
        let round = net.new_round();
        for (purpose, asked) in operations {
            let (tag, nodes) = (purpose.of(round), 0..net.total());
            for (node, silence) in round::ask(net, tag, &Operation::new(asked), nodes) {
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
                net.timers.cancel(Key::of(request.of(round)));
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
            Asks::WhoHolds {
                mutex,
                slots,
                rwlock,
                ..
            } => mutex.waiting() + slots.waiting() + rwlock.waiting() == 0,
            Asks::ToFree { mutex, rwlock, .. } => mutex.waiting() + rwlock.waiting() == 0,
        }
    }

    /// Whom an EVICT found on one node may stand in line on another, and be handed the mutex there again: with a third that no
    /// EVICT reached it would have a majority. One who is about to get a read-write lock may be granted it on another a
    /// moment later.
    fn free_elsewhere(&self, net: &mut Net, tag: Tag, node: usize) {
        let Asks::ToFree { mutex, rwlock, .. } = &self.asks else {
            return;
        };
        let name = self.name.clone();
        let (answers, target) = match is_of(tag, Purpose::QuestionOfRwlock) {
            // A release frees whatever the entry has.
            true => (rwlock, Target::Rwlock(name, Side::Writer)),
            false => (mutex, Target::mutex(name)),
        };
        let holders = |heard: &Heard<Evicted>| match heard {
            Heard::Said(evicted) => evicted.holders.clone(),
            _ => Vec::new(),
        };
        for found in answers.get(node).map(holders).unwrap_or_default() {
            let known = answers.iter().map(holders);
            let known = known.filter(|others| others.contains(&found)).count();
            if known == 1 && net.holds(Rule::EvictionLasts) {
                release(net, &target, &found);
            }
        }
    }

    /// Every node has answered, or will not.
    fn end(self, net: &Net) {
        let name = self.name.as_str();
        match self.asks {
            Asks::WhoHolds {
                mutex,
                slots,
                rwlock,
                reply,
            } => {
                let heard = mutex.iter().zip(slots.iter()).zip(rwlock.iter());
                let nodes = net.settings.nodes.iter().zip(heard);
                let nodes = nodes.map(|(node, ((mutex, slots), rwlock))| {
                    told::inspection(node, mutex, slots, rwlock)
                });
                let _ = reply.send(Ok(Inspection {
                    name: name.to_owned(),
                    nodes: nodes.collect(),
                }));
            }
            Asks::ToFree {
                mutex,
                rwlock,
                reply,
            } => {
                let mut answers = Answers::new(net.total());
                for (node, (mutex, rwlock)) in mutex.iter().zip(rwlock.iter()).enumerate() {
                    answers.set(node, told::eviction(mutex, rwlock));
                }
                let _ = reply.send(match answers.count(|_| true) >= net.needed {
                    true => Ok(answers.count(|evicted| evicted.held) > 0),
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
    fn heard(&mut self, tag: Tag, node: usize, answer: Result<Answer, Silence>) {
        match self {
            Self::WhoHolds { slots, .. } if is_of(tag, Purpose::QuestionOfSlots) => {
                slots.set(node, read(answer, Answer::into_pool));
            }
            Self::WhoHolds { rwlock, .. } if is_of(tag, Purpose::QuestionOfRwlock) => {
                rwlock.set(node, read(answer, told::rwlock));
            }
            Self::WhoHolds { mutex, .. } => mutex.set(node, read(answer, told::mutex)),
            Self::ToFree { mutex, rwlock, .. } => {
                let evicted = read(answer, told::evicted);
                match is_of(tag, Purpose::QuestionOfRwlock) {
                    true => rwlock.set(node, evicted),
                    false => mutex.set(node, evicted),
                }
            }
        }
    }

    fn outstanding(&self, tag: Tag) -> Vec<usize> {
        match self {
            Self::WhoHolds { slots, .. } if is_of(tag, Purpose::QuestionOfSlots) => {
                slots.outstanding().collect()
            }
            Self::WhoHolds { rwlock, .. } if is_of(tag, Purpose::QuestionOfRwlock) => {
                rwlock.outstanding().collect()
            }
            Self::WhoHolds { mutex, .. } => mutex.outstanding().collect(),
            Self::ToFree { rwlock, .. } if is_of(tag, Purpose::QuestionOfRwlock) => {
                rwlock.outstanding().collect()
            }
            Self::ToFree { mutex, .. } => mutex.outstanding().collect(),
        }
    }
}

fn is_of(tag: Tag, request: Purpose) -> bool {
    tag.purpose == request
}

fn read<T>(
    answer: Result<Answer, Silence>,
    read: impl FnOnce(Answer) -> Option<T>,
) -> Result<T, Silence> {
    // No other reply fits the command.
    answer.and_then(|reply| read(reply).ok_or(Silence::TimedOut))
}

/// On all nodes, as far as they answer soon.
fn release(net: &mut Net, target: &Target, entry: &Entry) {
    let operation = target.ask(entry, net.release(0, None));
    let until = net.now.plus(net.settings.node_timeout);
    round::release(net, None, &operation, 0..net.total(), until);
}
