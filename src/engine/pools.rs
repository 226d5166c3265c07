//! Questions about a semaphore as a whole: how many slots are free, another limit, and freeing a slot.

mod evict;

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{net::Net, round, timers::Key};

use crate::{
    Error, LimitConflict, Report, Silence, Vote,
    base::{
        limit::{Agreed, Limit},
        rules::Rule,
    },
    lease::response::Responder,
    node::{
        Operation,
        answer::{Answer, PoolInspection},
        request::{Pool, Question},
        session::{Purpose, RoundId},
        status::NodeState,
    },
    protocol::ballot::answers::{Answers, Evidence, Heard},
};

/// Questions about semaphores that are under way.
#[derive(Default)]
pub(super) struct Pools(HashMap<RoundId, Asks>);

struct Asks {
    pool: Pool,
    for_what: For,
}

enum For {
    Available(
        Answers<PoolInspection>,
        Arc<Agreed>,
        Responder<Vec<Duration>>,
    ),
    /// The limit that stands is read first.
    ToResize(Answers<PoolInspection>, Arc<Agreed>, u32, Responder<()>),
    Resize(Answers<Found>, Arc<Agreed>, Limit, Responder<()>),
    /// The holder of the slot is read first.
    ToEvict(Answers<PoolInspection>, u32, Responder<bool>),
    Evict(Answers<Freed>, Responder<bool>),
}

/// The limit that stands on a node.
#[derive(PartialEq)]
struct Found(Limit);

/// A node confirmed that a slot is free.
#[derive(PartialEq)]
struct Freed;

impl Evidence for Freed {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

impl Evidence for PoolInspection {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

impl Evidence for Found {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

impl Pools {
    pub(super) fn available(
        &mut self,
        net: &mut Net,
        pool: Pool,
        agreed: Arc<Agreed>,
        reply: Responder<Vec<Duration>>,
    ) {
        let operation = Operation::new(Question::InspectPool(pool.clone()));
        let for_what = For::Available(Answers::new(net.total()), agreed, reply);
        let asks = Asks { pool, for_what };
        self.ask(net, Purpose::Look, asks, &operation);
    }

    pub(super) fn resize(
        &mut self,
        net: &mut Net,
        pool: Pool,
        agreed: Arc<Agreed>,
        to: u32,
        reply: Responder<()>,
    ) {
        let operation = Operation::new(Question::InspectPool(pool.clone()));
        let for_what = For::ToResize(Answers::new(net.total()), agreed, to, reply);
        let asks = Asks { pool, for_what };
        self.ask(net, Purpose::Look, asks, &operation);
    }

    pub(super) fn evict(&mut self, net: &mut Net, pool: Pool, slot: u32, reply: Responder<bool>) {
        let operation = Operation::new(Question::InspectPool(pool.clone()));
        let for_what = For::ToEvict(Answers::new(net.total()), slot, reply);
        let asks = Asks { pool, for_what };
        self.ask(net, Purpose::Look, asks, &operation);
    }

    pub(super) fn heard(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        if let Some(asks) = self.0.get_mut(&round) {
            asks.for_what.heard(node, answer);
            self.look(net, round);
        }
    }

    /// Answers are due.
    pub(super) fn round_due(&mut self, net: &mut Net, round: RoundId) {
        let Some(asks) = self.0.get_mut(&round) else {
            return;
        };
        let outstanding = asks.for_what.outstanding().into_iter();
        let outstanding = outstanding.map(|node| (node, None));
        for (node, silence) in round::due(net, asks.for_what.request().of(round), outstanding) {
            asks.for_what.heard(node, Err(silence));
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

    fn ask(&mut self, net: &mut Net, request: Purpose, mut asks: Asks, operation: &Arc<Operation>) {
        let round = net.new_round();
        let (tag, nodes) = (request.of(round), 0..net.total());
        for (node, silence) in round::ask(net, tag, operation, nodes) {
            asks.for_what.heard(node, Err(silence));
        }
        round::arm(net, tag);
        self.0.insert(round, asks);
        self.look(net, round);
    }

    /// Every node has answered, or will not: does what follows.
    fn look(&mut self, net: &mut Net, round: RoundId) {
        let answered = |asks: &Asks| asks.for_what.outstanding().is_empty();
        if !self.0.get(&round).is_some_and(answered) {
            return;
        }
        let Some(Asks { pool, for_what }) = self.0.remove(&round) else {
            return;
        };
        net.timers.cancel(Key::of(for_what.request().of(round)));
        match for_what {
            For::Available(mut answers, agreed, reply) => {
                let history = pool.family.history();
                if let Some(error) = net.needs_history(pool.name.as_str(), history) {
                    drop(reply.send(Err(error)));
                    return;
                }
                // Units that such a node has forgotten may still count.
                for (node, state) in net.states().enumerate() {
                    if state == NodeState::Voting
                        && let Some(left) = net.too_young(node, history)
                    {
                        answers.set(node, Err(Silence::Quarantined(left)));
                    }
                }
                let _ = reply.send(free(net, &pool, &agreed, &answers));
            }
            For::ToResize(answers, agreed, to, reply) => match limit_of(net, &answers) {
                Ok(known) => {
                    let limit = Limit {
                        // Beyond what programs were made with.
                        version: known.map_or(1, |known| known.version.max(1)) + 1,
                        slots: to,
                    };
                    let operation = Operation::new(Question::Resize(pool.clone(), limit));
                    let for_what = For::Resize(Answers::new(net.total()), agreed, limit, reply);
                    let asks = Asks { pool, for_what };
                    self.ask(net, Purpose::Resize, asks, &operation);
                }
                Err(of) => drop(reply.send(Err(of(report(net, &pool, &answers))))),
            },
            For::ToEvict(answers, slot, reply) => match limit_of(net, &answers) {
                Ok(_) => match evict::holders(&answers, slot) {
                    Ok(holders) if holders.iter().all(Option::is_none) => {
                        drop(reply.send(Ok(false)))
                    }
                    Ok(holders) => {
                        let round = net.new_round();
                        let answers = {
                            let nodes = answers.iter().zip(&holders);
                            evict::free(net, round, &pool, slot, nodes)
                        };
                        let for_what = For::Evict(answers, reply);
                        self.0.insert(round, Asks { pool, for_what });
                        self.look(net, round);
                    }
                    Err(error) => drop(reply.send(Err(error))),
                },
                Err(of) => drop(reply.send(Err(of(report(net, &pool, &answers))))),
            },
            For::Evict(answers, reply) => {
                let _ = reply.send(match answers.count(|_| true) >= net.needed {
                    true => Ok(true),
                    false => Err(Error::NoQuorum(report(net, &pool, &answers))),
                });
            }
            For::Resize(answers, agreed, limit, reply) => {
                let _ = reply.send(resized(net, &pool, &agreed, &answers, limit));
            }
        }
    }
}

/// The answers of all nodes, for an error.
fn report<T: Evidence + PartialEq>(net: &Net, pool: &Pool, answers: &Answers<T>) -> Report {
    let again = Some(net.try_again(net.needed));
    answers.report(pool.name.as_str(), net.needed, &net.settings.nodes, again)
}

impl For {
    fn request(&self) -> Purpose {
        match self {
            Self::Available(..) | Self::ToResize(..) | Self::ToEvict(..) => Purpose::Look,
            Self::Resize(..) => Purpose::Resize,
            Self::Evict(..) => Purpose::EvictSlot,
        }
    }

    fn heard(&mut self, node: usize, answer: Result<Answer, Silence>) {
        // No other reply fits the command.
        match self {
            Self::Available(answers, ..)
            | Self::ToResize(answers, ..)
            | Self::ToEvict(answers, ..) => {
                let seen = answer.and_then(|reply| reply.into_pool().ok_or(Silence::TimedOut));
                answers.set(node, seen);
            }
            Self::Resize(answers, ..) => {
                let found = answer.and_then(|reply| match reply {
                    Answer::Limit(limit) => Ok(Found(limit)),
                    _ => Err(Silence::TimedOut),
                });
                answers.set(node, found);
            }
            Self::Evict(answers, _) => {
                let freed = answer.and_then(|reply| match reply {
                    Answer::Released(_) => Ok(Freed),
                    _ => Err(Silence::TimedOut),
                });
                answers.set(node, freed);
            }
        }
    }

    fn outstanding(&self) -> Vec<usize> {
        match self {
            Self::Available(answers, ..)
            | Self::ToResize(answers, ..)
            | Self::ToEvict(answers, ..) => answers.outstanding().collect(),
            Self::Resize(answers, ..) => answers.outstanding().collect(),
            Self::Evict(answers, _) => answers.outstanding().collect(),
        }
    }
}

/// How an error is made of the evidence.
type Of = fn(Report) -> Error;

/// The greatest limit that is known, if Q nodes have answered.
fn limit_of(net: &Net, answers: &Answers<PoolInspection>) -> Result<Option<Limit>, Of> {
    if answers.count(|_| true) >= net.needed {
        let rules = net.settings.rules;
        let known = answers.iter().filter_map(|heard| match heard {
            Heard::Said(inspected) => inspected.limit,
            _ => None,
        });
        let greater = |one: Limit, other: Limit| match other.beats(one, rules) {
            true => other,
            false => one,
        };
        return Ok(known.reduce(greater));
    }
    let quarantined = net
        .states()
        .filter(|s| matches!(s, NodeState::Quarantined(_)));
    match answers.count(|_| true) + quarantined.count() >= net.needed {
        true => Err(Error::Quarantined),
        false => Err(Error::NoQuorum),
    }
}

/// When each slot is free on Q nodes, the first first.
fn free(
    net: &Net,
    pool: &Pool,
    agreed: &Agreed,
    answers: &Answers<PoolInspection>,
) -> Result<Vec<Duration>, Error> {
    let known = limit_of(net, answers).map_err(|of| of(report(net, pool, answers)))?;
    if let Some(known) = known {
        agreed.set(known, net.now, net.settings.rules);
    }
    let slots = known.map_or(agreed.slots(), |known| known.slots);
    let seen: Vec<&PoolInspection> = answers
        .iter()
        .filter_map(|heard| match heard {
            Heard::Said(inspected) => Some(inspected),
            _ => None,
        })
        .collect();
    let free = |slot: u32| {
        let mut waits: Vec<Duration> = seen.iter().map(|seen| left(seen, slot)).collect();
        waits.sort_unstable();
        let last = waits.get(net.needed.saturating_sub(1));
        last.copied().unwrap_or(Duration::MAX)
    };
    let mut free: Vec<Duration> = (0..slots).map(free).collect();
    free.sort_unstable();
    Ok(free)
}

/// For how much longer a slot is taken. Of more than an inspection shows that is not known.
fn left(seen: &PoolInspection, slot: u32) -> Duration {
    if !seen.taken.has(slot) {
        return Duration::ZERO;
    }
    let held = seen.holders.iter().find(|held| held.slot == slot);
    // A slot is free in the ms after its end.
    held.map_or(Duration::MAX, |held| {
        held.remaining + Duration::from_millis(1)
    })
}

/// Whether the limit is in force: every node has it, but those in quarantine, which know none.
fn resized(
    net: &Net,
    pool: &Pool,
    agreed: &Agreed,
    answers: &Answers<Found>,
    limit: Limit,
) -> Result<(), Error> {
    let name = pool.name.as_str();
    let report = |needed: usize, again| answers.report(name, needed, &net.settings.nodes, again);
    let quarantined = |silence: &Silence| matches!(silence, Silence::Quarantined(_));
    let counts = |heard: &&Heard<Found>| match heard {
        Heard::Said(_) => true,
        Heard::Silent(silence) => quarantined(silence),
        Heard::Waiting => false,
    };
    let answered = answers.iter().filter(counts).count();
    let needed = match net.holds(Rule::ResizeAll) {
        true => net.total(),
        false => net.needed,
    };
    let other = answers.iter().find_map(|heard| match heard {
        Heard::Said(Found(found)) if found.slots != limit.slots => Some(*found),
        _ => None,
    });
    if let Some(found) = other {
        return Err(Error::LimitConflict(LimitConflict {
            asked: limit.slots,
            found: found.slots,
            report: report(net.needed, None),
        }));
    }
    if answered < needed {
        return Err(Error::NoQuorum(report(needed, Some(net.try_again(needed)))));
    }
    agreed.changed(limit, net.now);
    Ok(())
}
