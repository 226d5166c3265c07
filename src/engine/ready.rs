//! Callers that wait until a majority of nodes answers, or votes.

use std::{mem, time::Duration};

use super::{
    cluster::{Cluster, SHORTEST_PAUSE, vote_of},
    status::health,
};
use crate::{
    Error,
    base::clock::Tick,
    lease::response::Responder,
    node::status::{Health, NodeState},
};

/// Once the result of `connect` is known, the caller still waits for the other nodes, at most this long. So two
/// addresses of one server are reported at once, an error names every node, and a dead node costs little.
const LONGEST_GRACE: Duration = Duration::from_millis(200);
const SHORTEST_GRACE: Duration = Duration::from_millis(50);

/// The callers that wait.
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
    pub(super) fn answering(&mut self, cluster: &Cluster, within: Duration, reply: Responder<()>) {
        self.answering.push(Answering {
            since: cluster.now,
            deadline: cluster.now.plus(within),
            grace_until: None,
            reply,
        });
    }

    pub(super) fn voting(&mut self, cluster: &Cluster, within: Duration, reply: Responder<()>) {
        let deadline = cluster.now.plus(within);
        self.voting.push(Voting { deadline, reply });
    }

    /// The callers find their channels closed.
    pub(super) fn clear(&mut self) {
        self.answering.clear();
        self.voting.clear();
    }

    /// Answers the callers that can be answered now.
    pub(super) fn look(&mut self, cluster: &Cluster) {
        // A caller that is gone waits for nothing.
        self.answering.retain(|caller| !caller.reply.is_closed());
        self.voting.retain(|caller| !caller.reply.is_closed());
        if !self.answering.is_empty() {
            self.look_who_answers(cluster);
        }
        if !self.voting.is_empty() {
            self.look_who_votes(cluster);
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

    fn look_who_answers(&mut self, cluster: &Cluster) {
        let verdict = readiness(cluster);
        let mut waiting = Vec::new();
        for mut caller in mem::take(&mut self.answering) {
            let told = match &verdict {
                Some((answer, true)) => Some(answer.clone()),
                Some((answer, false)) => {
                    let took = cluster.now.since(caller.since);
                    let grace = (took * 2).clamp(SHORTEST_GRACE, LONGEST_GRACE);
                    let until = *caller.grace_until.get_or_insert(cluster.now.plus(grace));
                    (until <= cluster.now).then(|| answer.clone())
                }
                None => {
                    caller.grace_until = None;
                    (caller.deadline <= cluster.now).then(|| Err(no_answers(cluster)))
                }
            };
            match told {
                Some(answer) => drop(caller.reply.send(answer)),
                None => waiting.push(caller),
            }
        }
        self.answering = waiting;
    }

    fn look_who_votes(&mut self, cluster: &Cluster) {
        let states: Vec<_> = cluster.published().collect();
        let health = health(&states);
        let answer = match given_twice(cluster, &states) {
            Some(twice) => Some(Err(twice)),
            None => health.is_ready().then_some(Ok(())),
        };
        let mut waiting = Vec::new();
        for caller in mem::take(&mut self.voting) {
            let late = || {
                (caller.deadline <= cluster.now).then(|| Err(no_votes(cluster, &states, &health)))
            };
            match answer.clone().or_else(late) {
                Some(answer) => drop(caller.reply.send(answer)),
                None => waiting.push(caller),
            }
        }
        self.voting = waiting;
    }
}

/// The result for callers of `connect`, if it is known: a majority answers, or none can. The second value is true if
/// nothing more can be learnt, because all nodes were tried.
fn readiness(cluster: &Cluster) -> Option<(Result<(), Error>, bool)> {
    let states: Vec<_> = cluster.states().collect();
    if let Some(twice) = given_twice(cluster, &states) {
        return Some((Err(twice), true));
    }
    let answers = |s: &&NodeState| matches!(s, NodeState::Voting | NodeState::Quarantined(_));
    let refused = |s: &NodeState| matches!(s, NodeState::Refused(_) | NodeState::RefusesWrites(_));
    // A node that clients of another fleet have taken is not hopeless: they may go at any moment.
    let sessions = states.iter().zip(cluster.sessions());
    let refused = sessions.filter(|(state, session)| refused(state) && !session.is_taken());
    let refused = refused.count();
    let all_tried = cluster.sessions().iter().all(|s| s.was_tried());
    if states.iter().filter(answers).count() >= cluster.needed {
        Some((Ok(()), all_tried))
    } else if states.len() - refused < cluster.needed {
        Some((Err(no_answers(cluster)), all_tried))
    } else {
        None
    }
}

fn no_answers(cluster: &Cluster) -> Error {
    Error::NoQuorum(cluster.state_report("connect", cluster.needed))
}

fn no_votes(cluster: &Cluster, states: &[NodeState], health: &Health) -> Error {
    let again = match health.votes_in {
        Some(left) => left.max(SHORTEST_PAUSE),
        None => cluster.try_again(health.needed),
    };
    let votes = states.iter().map(vote_of).collect();
    let report = cluster.report("voting", health.needed, votes, again);
    match health.votes_in {
        Some(_) => cluster.quarantined(report),
        None => Error::NoQuorum(report),
    }
}

/// The error if two addresses lead to one server.
fn given_twice(cluster: &Cluster, states: &[NodeState]) -> Option<Error> {
    let duplicate = cluster.sessions().iter().position(|s| s.is_duplicate())?;
    match (
        cluster.settings.nodes.get(duplicate)?,
        states.get(duplicate)?,
    ) {
        (node, NodeState::Refused(why)) => Some(Error::Invalid(format!("{node}: {why}"))),
        _ => None,
    }
}
