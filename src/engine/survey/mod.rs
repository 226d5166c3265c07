//! Surveys: every node is asked once, and the survey ends when each has answered or is not waited for any more.
//!
//! Operators want to know what each node says, so a majority is not enough. An eviction also acts on each answer. (The
//! SURVEY of a bootstrap is not one of these.)

mod eviction;
mod inspection;
mod pool;
mod slot;

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{cluster::Cluster, round, timers::Key};
use crate::{
    Error, Inspection, Silence,
    base::{
        limit::{Agreed, Limit},
        name::Name,
    },
    lease::response::Responder,
    node::{
        Operation,
        answer::Answer,
        request::{Family, Pool, Question},
        session::{DutyId, Purpose, RoundId, Tag},
    },
    protocol::ballot::answers::Answers,
};

/// The surveys that are under way.
#[derive(Default)]
pub(super) struct Surveys(HashMap<RoundId, Survey>);

struct Survey {
    /// The answers to each of its questions.
    answers: Vec<Answers<Answer>>,
    /// The duties to release that the survey waits for, by node.
    owed: Vec<(usize, DutyId)>,
    then: Then,
}

/// The use of the answers.
enum Then {
    Inspect {
        name: Name,
        reply: Responder<Inspection>,
    },
    Evict {
        name: Name,
        reply: Responder<bool>,
    },
    Available {
        pool: Pool,
        agreed: Arc<Agreed>,
        reply: Responder<Vec<Duration>>,
    },
    /// The limit in force is read before it is changed.
    ReadLimit {
        pool: Pool,
        agreed: Arc<Agreed>,
        to: u32,
        reply: Responder<()>,
    },
    Resize {
        pool: Pool,
        agreed: Arc<Agreed>,
        limit: Limit,
        reply: Responder<()>,
    },
    /// The holder of the slot is read before it is evicted.
    ReadHolder {
        pool: Pool,
        slot: u32,
        reply: Responder<bool>,
    },
    EvictSlot {
        pool: Pool,
        reply: Responder<bool>,
    },
}

impl Surveys {
    pub(super) fn inspect(
        &mut self,
        cluster: &mut Cluster,
        name: Name,
        reply: Responder<Inspection>,
    ) {
        let pool = Pool {
            name: name.clone(),
            family: Family::Permits,
        };
        let questions = [
            Question::InspectMutex(name.clone()),
            Question::InspectPool(pool),
            Question::InspectRwlock(name.clone()),
        ];
        self.begin(cluster, questions, Then::Inspect { name, reply });
    }

    pub(super) fn evict(&mut self, cluster: &mut Cluster, name: Name, reply: Responder<bool>) {
        let questions = [
            Question::EvictMutex(name.clone()),
            Question::EvictRwlock(name.clone()),
        ];
        let then = Then::Evict {
            name: name.clone(),
            reply,
        };
        self.begin(cluster, questions, then);
        // Each node gets this after the eviction.
        eviction::hand_over(cluster, name);
    }

    pub(super) fn available(
        &mut self,
        cluster: &mut Cluster,
        pool: Pool,
        agreed: Arc<Agreed>,
        reply: Responder<Vec<Duration>>,
    ) {
        let question = Question::InspectPool(pool.clone());
        let then = Then::Available {
            pool,
            agreed,
            reply,
        };
        self.begin(cluster, [question], then);
    }

    pub(super) fn resize(
        &mut self,
        cluster: &mut Cluster,
        pool: Pool,
        agreed: Arc<Agreed>,
        to: u32,
        reply: Responder<()>,
    ) {
        let question = Question::InspectPool(pool.clone());
        let then = Then::ReadLimit {
            pool,
            agreed,
            to,
            reply,
        };
        self.begin(cluster, [question], then);
    }

    pub(super) fn evict_slot(
        &mut self,
        cluster: &mut Cluster,
        pool: Pool,
        slot: u32,
        reply: Responder<bool>,
    ) {
        let question = Question::InspectPool(pool.clone());
        self.begin(cluster, [question], Then::ReadHolder { pool, slot, reply });
    }

    pub(super) fn heard(
        &mut self,
        cluster: &mut Cluster,
        tag: Tag,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        if let Some(survey) = self.0.get_mut(&tag.round)
            && let Purpose::Survey(question) = tag.purpose
            && let Some(answers) = survey.answers.get_mut(usize::from(question))
        {
            answers.set(node, answer);
            if let Then::Evict { name, .. } = &survey.then {
                let target = eviction::target(name.clone(), question);
                eviction::free_elsewhere(cluster, &target, answers, node);
            }
            self.look(cluster, tag.round);
        }
    }

    /// The answers to one of the questions are due.
    pub(super) fn answers_due(&mut self, cluster: &mut Cluster, tag: Tag) {
        if let Some(survey) = self.0.get_mut(&tag.round)
            && let Purpose::Survey(question) = tag.purpose
            && let Some(answers) = survey.answers.get_mut(usize::from(question))
        {
            let duty = |node| {
                let owed = survey.owed.iter().find(|(to, _)| *to == node);
                (node, owed.map(|(_, duty)| *duty))
            };
            let outstanding: Vec<_> = answers.outstanding().map(duty).collect();
            for (node, silence) in round::due(cluster, tag, outstanding) {
                answers.set(node, Err(silence));
            }
            self.look(cluster, tag.round);
        }
    }

    /// The engine ends.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn begin<const N: usize>(
        &mut self,
        cluster: &mut Cluster,
        questions: [Question; N],
        then: Then,
    ) {
        let round = self.ask(cluster, questions, then);
        self.look(cluster, round);
    }

    fn ask<const N: usize>(
        &mut self,
        cluster: &mut Cluster,
        questions: [Question; N],
        then: Then,
    ) -> RoundId {
        let round = cluster.new_round();
        let mut survey = Survey {
            answers: Vec::with_capacity(N),
            owed: Vec::new(),
            then,
        };
        for (number, question) in (0..).zip(questions) {
            let mut answers = Answers::new(cluster.total());
            let (tag, nodes) = (Purpose::Survey(number).of(round), 0..cluster.total());
            for (node, silence) in round::ask(cluster, tag, &Operation::new(question), nodes) {
                answers.set(node, Err(silence));
            }
            round::arm(cluster, tag);
            survey.answers.push(answers);
        }
        let before = self.0.insert(round, survey);
        debug_assert!(before.is_none(), "two surveys of one round");
        round
    }

    /// Ends the survey once every node has answered or is not waited for any more. Then looks at the one that follows.
    fn look(&mut self, cluster: &mut Cluster, round: RoundId) {
        let is_answered = |survey: &Survey| survey.answers.iter().all(|it| it.waiting() == 0);
        let mut next = Some(round);
        while let Some(round) = next
            && self.0.get(&round).is_some_and(is_answered)
            && let Some(Survey { answers, then, .. }) = self.0.remove(&round)
        {
            for (number, _) in (0..).zip(&answers) {
                cluster
                    .timers
                    .cancel(Key::of(Purpose::Survey(number).of(round)));
            }
            next = self.end(cluster, then, answers);
        }
    }

    /// Every node has answered, or is not waited for any more. Returns the survey that follows.
    fn end(
        &mut self,
        cluster: &mut Cluster,
        then: Then,
        answers: Vec<Answers<Answer>>,
    ) -> Option<RoundId> {
        let mut answers = answers.into_iter();
        let first = answers.next()?;
        match then {
            Then::Inspect { name, reply } => {
                let (slots, rwlock) = (answers.next()?, answers.next()?);
                let mutex = first.read(inspection::mutex);
                let slots = slots.read(Answer::into_pool);
                let rwlock = rwlock.read(inspection::rwlock);
                let heard = mutex.iter().zip(slots.iter()).zip(rwlock.iter());
                let nodes = cluster.settings.nodes.iter().zip(heard);
                let nodes = nodes.map(|(node, ((mutex, slots), rwlock))| {
                    inspection::inspection(node, mutex, slots, rwlock)
                });
                let _ = reply.send(Ok(Inspection {
                    name: name.as_str().to_owned(),
                    nodes: nodes.collect(),
                }));
            }
            Then::Evict { name, reply } => {
                let rwlock = answers.next()?;
                let mutex = first.read(eviction::evicted);
                let rwlock = rwlock.read(eviction::evicted);
                let _ = reply.send(eviction::end(cluster, &name, &mutex, &rwlock));
            }
            Then::Available {
                pool,
                agreed,
                reply,
            } => {
                let seen = first.read(Answer::into_pool);
                let _ = reply.send(pool::free_times(cluster, &pool, &agreed, seen));
            }
            Then::ReadLimit {
                pool,
                agreed,
                to,
                reply,
            } => match pool::limit_of(cluster, &pool, &first.read(Answer::into_pool)) {
                Ok(known) => {
                    let limit = pool::next_limit(known, to);
                    let question = Question::Resize(pool.clone(), limit);
                    let then = Then::Resize {
                        pool,
                        agreed,
                        limit,
                        reply,
                    };
                    return Some(self.ask(cluster, [question], then));
                }
                Err(error) => drop(reply.send(Err(error))),
            },
            Then::Resize {
                pool,
                agreed,
                limit,
                reply,
            } => {
                let found = first.read(pool::found);
                let _ = reply.send(pool::resized(cluster, &pool, &agreed, &found, limit));
            }
            Then::ReadHolder { pool, slot, reply } => {
                let seen = first.read(Answer::into_pool);
                let holders =
                    pool::limit_of(cluster, &pool, &seen).and_then(|_| slot::holders(&seen, slot));
                match holders {
                    Ok(holders) if holders.iter().all(Option::is_none) => {
                        drop(reply.send(Ok(false)));
                    }
                    Ok(holders) => {
                        let round = cluster.new_round();
                        let tag = Purpose::Survey(0).of(round);
                        let nodes = seen.iter().zip(&holders);
                        let (answers, owed) = slot::release(cluster, tag, &pool, slot, nodes);
                        let survey = Survey {
                            answers: vec![answers],
                            owed,
                            then: Then::EvictSlot { pool, reply },
                        };
                        self.0.insert(round, survey);
                        return Some(round);
                    }
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Then::EvictSlot { pool, reply } => {
                let freed = first.read(pool::freed);
                let _ = reply.send(match freed.count(|_| true) >= cluster.needed {
                    true => Ok(true),
                    false => Err(Error::NoQuorum(pool::report(cluster, &pool, &freed))),
                });
            }
        }
        None
    }
}
