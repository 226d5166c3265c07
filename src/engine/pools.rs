//! What is asked of a semaphore as a whole: how many slots are free, and another limit.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    net::Net,
    round::{self, Request},
    timers::Key,
};
use crate::ballot::answers::Said;
use crate::{
    Error, LimitConflict, Report, Silence, Vote,
    ballot::answers::{Answers, Evidence, Heard},
    claim::{self, Inspected, Pool, vote_of},
    limit::{Agreed, Limit},
    node::{Operation, Reply, session::RoundId, status::NodeState},
    response::Responder,
    rules::Rule,
};

/// Questions about semaphores that are under way.
#[derive(Default)]
pub(super) struct Pools(HashMap<RoundId, Asks>);

struct Asks {
    pool: Pool,
    agreed: Arc<Agreed>,
    for_what: For,
}

enum For {
    Available(Answers<Inspected>, Responder<Vec<Duration>>),
    /// The limit that stands is read first.
    ToResize(Answers<Inspected>, u32, Responder<()>),
    Resize(Answers<Found>, Limit, Responder<()>),
}

/// The limit that stands on a node.
#[derive(PartialEq)]
struct Found(Limit);

impl Evidence for Inspected {
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
        let operation = claim::look(&pool);
        let for_what = For::Available(Answers::new(net.total()), reply);
        let asks = Asks {
            pool,
            agreed,
            for_what,
        };
        self.ask(net, Request::Look, asks, &operation);
    }

    pub(super) fn resize(
        &mut self,
        net: &mut Net,
        (pool, agreed): (Pool, Arc<Agreed>),
        to: u32,
        reply: Responder<()>,
    ) {
        let operation = claim::look(&pool);
        let for_what = For::ToResize(Answers::new(net.total()), to, reply);
        let asks = Asks {
            pool,
            agreed,
            for_what,
        };
        self.ask(net, Request::Look, asks, &operation);
    }

    pub(super) fn heard(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Reply, Silence>,
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

    fn ask(&mut self, net: &mut Net, request: Request, mut asks: Asks, operation: &Arc<Operation>) {
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
        let Some(Asks {
            pool,
            agreed,
            for_what,
        }) = self.0.remove(&round)
        else {
            return;
        };
        net.timers.cancel(Key::of(for_what.request().of(round)));
        match for_what {
            For::Available(answers, reply) => {
                let _ = reply.send(free(net, &pool, &agreed, &answers));
            }
            For::ToResize(answers, to, reply) => match limit_of(net, &answers) {
                Ok(known) => {
                    let limit = Limit {
                        // Beyond what programs were made with.
                        version: known.map_or(1, |known| known.version.max(1)) + 1,
                        slots: to,
                    };
                    let operation = claim::resize(&pool, limit, net.fleet().max_ttl());
                    let for_what = For::Resize(Answers::new(net.total()), limit, reply);
                    let asks = Asks {
                        pool,
                        agreed,
                        for_what,
                    };
                    self.ask(net, Request::Resize, asks, &operation);
                }
                Err(of) => {
                    let report = answers.report(
                        pool.name.as_str(),
                        net.needed,
                        &net.settings.nodes,
                        Some(net.try_again(net.needed)),
                    );
                    let _ = reply.send(Err(of(report)));
                }
            },
            For::Resize(answers, limit, reply) => {
                let _ = reply.send(resized(net, &pool, &agreed, &answers, limit));
            }
        }
    }
}

impl For {
    fn request(&self) -> Request {
        match self {
            Self::Available(..) | Self::ToResize(..) => Request::Look,
            Self::Resize(..) => Request::Resize,
        }
    }

    fn heard(&mut self, node: usize, answer: Result<Reply, Silence>) {
        // No other reply fits the command.
        match self {
            Self::Available(answers, _) | Self::ToResize(answers, ..) => {
                let seen = answer.and_then(|reply| claim::looked(reply).ok_or(Silence::TimedOut));
                answers.set(node, seen);
            }
            Self::Resize(answers, ..) => {
                let found = answer.and_then(|reply| match vote_of(reply) {
                    Said::Limit(limit) => Ok(Found(limit)),
                    _ => Err(Silence::TimedOut),
                });
                answers.set(node, found);
            }
        }
    }

    fn outstanding(&self) -> Vec<usize> {
        match self {
            Self::Available(answers, _) | Self::ToResize(answers, ..) => {
                answers.outstanding().collect()
            }
            Self::Resize(answers, ..) => answers.outstanding().collect(),
        }
    }
}

/// How an error is made of the evidence.
type Of = fn(Report) -> Error;

/// The greatest limit that is known, if Q nodes have answered.
fn limit_of(net: &Net, answers: &Answers<Inspected>) -> Result<Option<Limit>, Of> {
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
    answers: &Answers<Inspected>,
) -> Result<Vec<Duration>, Error> {
    let known = limit_of(net, answers).map_err(|of| {
        let again = Some(net.try_again(net.needed));
        of(answers.report(pool.name.as_str(), net.needed, &net.settings.nodes, again))
    })?;
    if let Some(known) = known {
        agreed.set(known, net.now, net.settings.rules);
    }
    let slots = known.map_or(agreed.slots(), |known| known.slots);
    let seen: Vec<&Inspected> = answers
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
fn left(seen: &Inspected, slot: u32) -> Duration {
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
