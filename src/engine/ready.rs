//! Callers that wait until a majority of nodes answers, or votes.

use std::{mem, time::Duration};

use super::{
    net::{Net, SHORTEST_PAUSE, vote_of},
    status::health,
};
use crate::{
    Error,
    base::clock::Tick,
    lease::response::Responder,
    node::status::{Health, NodeState},
};

/// A caller of `connect` waits for all nodes this long at most once a majority is there or cannot be:
/// so that two addresses of one server are told at once, an error knows of every node, and a dead
/// node costs little.
const LONGEST_GRACE: Duration = Duration::from_millis(200);
const SHORTEST_GRACE: Duration = Duration::from_millis(50);

/// Who waits.
#[derive(Default)]
pub(super) struct Ready {
    answering: Vec<Answering>,
    voting: Vec<Voting>,
}

/// Waits for a majority that answers.
struct Answering {
    since: Tick,
    deadline: Tick,
    grace_until: Option<Tick>,
    reply: Responder<()>,
}

/// Waits for a majority that votes.
struct Voting {
    deadline: Tick,
    reply: Responder<()>,
}

impl Ready {
    pub(super) fn answering(&mut self, net: &Net, within: Duration, reply: Responder<()>) {
        self.answering.push(Answering {
            since: net.now,
            deadline: net.now.plus(within),
            grace_until: None,
            reply,
        });
    }

    pub(super) fn voting(&mut self, net: &Net, within: Duration, reply: Responder<()>) {
        let deadline = net.now.plus(within);
        self.voting.push(Voting { deadline, reply });
    }

    /// Callers find their channels closed.
    pub(super) fn clear(&mut self) {
        self.answering.clear();
        self.voting.clear();
    }

    /// Looks whether anybody can be told.
    pub(super) fn look(&mut self, net: &Net) {
        // A caller that is gone waits for nothing.
        self.answering.retain(|caller| !caller.reply.is_closed());
        self.voting.retain(|caller| !caller.reply.is_closed());
        if !self.answering.is_empty() {
            self.look_who_answers(net);
        }
        if !self.voting.is_empty() {
            self.look_who_votes(net);
        }
    }

    pub(super) fn next_tick(&self) -> Option<Tick> {
        let answering = self.answering.iter();
        let answering = answering.map(|caller| caller.grace_until.unwrap_or(caller.deadline));
        let voting = self.voting.iter().map(|caller| caller.deadline);
        answering.chain(voting).min()
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.answering.len() + self.voting.len()
    }

    fn look_who_answers(&mut self, net: &Net) {
        let verdict = readiness(net);
        let mut waiting = Vec::new();
        for mut caller in mem::take(&mut self.answering) {
            let told = match &verdict {
                Some((answer, true)) => Some(answer.clone()),
                Some((answer, false)) => {
                    let took = net.now.since(caller.since);
                    let grace = (took * 2).clamp(SHORTEST_GRACE, LONGEST_GRACE);
                    let until = *caller.grace_until.get_or_insert(net.now.plus(grace));
                    (until <= net.now).then(|| answer.clone())
                }
                None => {
                    caller.grace_until = None;
                    (caller.deadline <= net.now).then(|| Err(no_answers(net)))
                }
            };
            match told {
                Some(answer) => drop(caller.reply.send(answer)),
                None => waiting.push(caller),
            }
        }
        self.answering = waiting;
    }

    fn look_who_votes(&mut self, net: &Net) {
        let states: Vec<_> = net.published().collect();
        let health = health(&states);
        let answer = match given_twice(net, &states) {
            Some(twice) => Some(Err(twice)),
            None => health.is_ready().then_some(Ok(())),
        };
        let mut waiting = Vec::new();
        for caller in mem::take(&mut self.voting) {
            let late =
                || (caller.deadline <= net.now).then(|| Err(no_votes(net, &states, &health)));
            match answer.clone().or_else(late) {
                Some(answer) => drop(caller.reply.send(answer)),
                None => waiting.push(caller),
            }
        }
        self.voting = waiting;
    }
}

/// A majority answers, or there is no hope; and whether nothing more can be learnt: all nodes were tried.
fn readiness(net: &Net) -> Option<(Result<(), Error>, bool)> {
    let states: Vec<_> = net.states().collect();
    if let Some(twice) = given_twice(net, &states) {
        return Some((Err(twice), true));
    }
    let answers = |s: &&NodeState| matches!(s, NodeState::Voting | NodeState::Quarantined(_));
    let refused = |s: &NodeState| matches!(s, NodeState::Refused(_) | NodeState::RefusesWrites(_));
    // Clients of another fleet that have taken a node may go at any moment.
    let sessions = states.iter().zip(net.sessions());
    let refused = sessions.filter(|(state, session)| refused(state) && !session.is_taken());
    let refused = refused.count();
    let all_tried = net.sessions().iter().all(|s| s.was_tried());
    if states.iter().filter(answers).count() >= net.needed {
        Some((Ok(()), all_tried))
    } else if states.len() - refused < net.needed {
        Some((Err(no_answers(net)), all_tried))
    } else {
        None
    }
}

fn no_answers(net: &Net) -> Error {
    Error::NoQuorum(net.state_report("connect", net.needed))
}

fn no_votes(net: &Net, states: &[NodeState], health: &Health) -> Error {
    let again = match health.votes_in {
        Some(left) => left.max(SHORTEST_PAUSE),
        None => net.try_again(health.needed),
    };
    let votes = states.iter().map(vote_of).collect();
    let report = net.report("voting", health.needed, votes, again);
    match health.votes_in {
        Some(_) => Error::Quarantined(report),
        None => Error::NoQuorum(report),
    }
}

/// Two addresses lead to one server.
fn given_twice(net: &Net, states: &[NodeState]) -> Option<Error> {
    let duplicate = net.sessions().iter().position(|s| s.is_duplicate())?;
    match (net.settings.nodes.get(duplicate)?, states.get(duplicate)?) {
        (node, NodeState::Refused(why)) => Some(Error::Invalid(format!("{node}: {why}"))),
        _ => None,
    }
}
