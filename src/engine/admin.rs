//! Coming up and shutting down.

use std::{mem, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    Reply as Answer,
    bootstrap::Bootstrap,
    core::{Core, SHORTEST_PAUSE},
    holding::Holding,
    status::health,
};
use crate::{
    Error, LossReason, NodeReport, Report, Vote,
    clock::Tick,
    node::status::{Health, NodeState},
};

/// A caller of `connect` waits for all nodes this long at most once a majority is there or cannot be:
/// so that two addresses of one server are told at once, an error knows of every node, and a dead
/// node costs little.
const LONGEST_GRACE: Duration = Duration::from_millis(200);
const SHORTEST_GRACE: Duration = Duration::from_millis(50);

/// What is asked about the quorum as a whole.
#[derive(Default)]
pub(super) struct Admin {
    closed: bool,
    gave_up: bool,
    ready: Vec<Ready>,
    voting: Vec<Voting>,
    pub(super) bootstrap: Option<Bootstrap>,
    shutdowns: Vec<Shutdown>,
}

struct Ready {
    since: Tick,
    deadline: Tick,
    grace_until: Option<Tick>,
    reply: Answer<()>,
}

/// Waits for a majority that votes.
struct Voting {
    deadline: Tick,
    reply: Answer<()>,
}

struct Shutdown {
    deadline: Tick,
    reply: oneshot::Sender<Vec<String>>,
}

impl Admin {
    /// Of an engine that has ended.
    pub(super) fn closed() -> Self {
        Self {
            closed: true,
            ..Self::default()
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// The time for a clean end is over.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// How many wait for nodes to answer or to vote.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn callers(&self) -> usize {
        self.ready.len() + self.voting.len()
    }

    pub(super) fn next_tick(&self) -> Option<Tick> {
        let ready = self
            .ready
            .iter()
            .map(|r| r.grace_until.unwrap_or(r.deadline))
            .min();
        let voting = self.voting.iter().map(|v| v.deadline).min();
        let bootstrap = self.bootstrap.as_ref().map(Bootstrap::deadline);
        let shutdown = self.shutdowns.iter().map(|s| s.deadline).min();
        [ready, voting, bootstrap, shutdown]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Core {
    pub(super) fn ready(&mut self, now: Tick, within: Duration, reply: Answer<()>) {
        let ready = Ready {
            since: now,
            deadline: now.plus(within),
            grace_until: None,
            reply,
        };
        self.admin.ready.push(ready);
    }

    pub(super) fn voting(&mut self, now: Tick, within: Duration, reply: Answer<()>) {
        let deadline = now.plus(within);
        self.admin.voting.push(Voting { deadline, reply });
    }

    /// The last handshakes, where one brings a quarantine nearer to its end.
    pub(super) fn part(&mut self, now: Tick) {
        for node in 0..self.settings.total() {
            self.session(now, node, |session, step| session.part(step));
        }
    }

    pub(super) fn shutdown(
        &mut self,
        now: Tick,
        within: Duration,
        reply: oneshot::Sender<Vec<String>>,
    ) {
        self.close_wishes(now);
        self.part(now);
        // Their callers find the channels closed.
        self.admin.ready.clear();
        self.admin.voting.clear();
        let deadline = now.plus(within);
        self.admin.shutdowns.push(Shutdown { deadline, reply });
    }

    /// Looks whether anybody who waits can be told.
    pub(super) fn admin_due(&mut self, now: Tick) {
        // A caller that is gone waits for nothing.
        self.admin.ready.retain(|ready| !ready.reply.is_closed());
        self.admin.voting.retain(|voting| !voting.reply.is_closed());
        if !self.admin.ready.is_empty() {
            self.ready_due(now);
        }
        if !self.admin.voting.is_empty() {
            self.voting_due(now);
        }
        if self.admin.bootstrap.is_some() {
            self.bootstrap_due(now);
        }
        let late = |s: &Shutdown| s.deadline <= now;
        if !self.admin.shutdowns.is_empty()
            && (self.is_clean() || self.admin.shutdowns.iter().any(late))
        {
            let name = |holding: &Holding| holding.shared.name.as_str().to_owned();
            let held: Vec<String> = self.leases.values().map(name).collect();
            self.admin.gave_up = true;
            let ids: Vec<u64> = self.leases.keys().copied().collect();
            for id in ids {
                self.lost(id, LossReason::NodesLost);
            }
            for shutdown in mem::take(&mut self.admin.shutdowns) {
                let _ = shutdown.reply.send(held.clone());
            }
        }
    }

    // ---- coming up ------------------------------------------------------------------------

    fn ready_due(&mut self, now: Tick) {
        let verdict = self.readiness(now);
        let mut waiting = Vec::new();
        for mut ready in mem::take(&mut self.admin.ready) {
            let told = match &verdict {
                Some((answer, true)) => Some(answer.clone()),
                Some((answer, false)) => {
                    let took = now.since(ready.since);
                    let grace = (took * 2).clamp(SHORTEST_GRACE, LONGEST_GRACE);
                    let until = *ready.grace_until.get_or_insert(now.plus(grace));
                    (until <= now).then(|| answer.clone())
                }
                None => {
                    ready.grace_until = None;
                    (ready.deadline <= now).then(|| {
                        Err(Error::NoQuorum(self.state_report(
                            now,
                            "connect",
                            self.needed,
                        )))
                    })
                }
            };
            match told {
                Some(answer) => drop(ready.reply.send(answer)),
                None => waiting.push(ready),
            }
        }
        self.admin.ready.append(&mut waiting);
    }

    /// A majority answers, or there is no hope; and whether nothing more can be learnt: all nodes
    /// were tried.
    fn readiness(&self, now: Tick) -> Option<(Result<(), Error>, bool)> {
        let states = self.states(now);
        if let Some(twice) = self.given_twice(&states) {
            return Some((Err(twice), true));
        }
        let answers = |s: &&NodeState| matches!(s, NodeState::Voting | NodeState::Quarantined(_));
        let refused = states
            .iter()
            .filter(|s| matches!(s, NodeState::Refused(_)))
            .count();
        let all_tried = self.sessions().iter().all(|s| s.was_tried());
        if states.iter().filter(answers).count() >= self.needed {
            Some((Ok(()), all_tried))
        } else if states.len() - refused < self.needed {
            Some((
                Err(Error::NoQuorum(self.state_report(
                    now,
                    "connect",
                    self.needed,
                ))),
                all_tried,
            ))
        } else {
            None
        }
    }

    /// Two addresses lead to one server.
    fn given_twice(&self, states: &[NodeState]) -> Option<Error> {
        let duplicate = self.sessions().iter().position(|s| s.is_duplicate())?;
        match (self.settings.nodes.get(duplicate)?, states.get(duplicate)?) {
            (node, NodeState::Refused(why)) => Some(Error::Invalid(format!("{node}: {why}"))),
            _ => None,
        }
    }

    /// A quarantined node answers: all that is asked of it here.
    pub(super) fn state_report(&self, now: Tick, subject: &str, needed: usize) -> Report {
        let states = self.states(now);
        let nodes = self
            .settings
            .nodes
            .iter()
            .zip(&states)
            .map(|(node, state)| NodeReport {
                node: Arc::clone(node),
                vote: match state {
                    NodeState::Quarantined(_) => Vote::Confirmed,
                    state => state.silence().map_or(Vote::Confirmed, Vote::None),
                },
                holder: None,
            });
        let again = self.try_again(now, needed);
        Report::new(subject, needed, nodes.collect(), Some(again))
    }

    // ---- voting ---------------------------------------------------------------------------

    fn voting_due(&mut self, now: Tick) {
        let states = self.states(now);
        let Health {
            voting,
            needed,
            votes_in,
            ..
        } = health(&states);
        let answer = match self.given_twice(&states) {
            Some(twice) => Some(Err(twice)),
            None => (voting >= needed).then_some(Ok(())),
        };
        let waiting = mem::take(&mut self.admin.voting);
        let too_few = || {
            let nodes = self.settings.nodes.iter().zip(&states);
            let nodes = nodes.map(|(node, state)| NodeReport {
                node: Arc::clone(node),
                vote: state.silence().map_or(Vote::Confirmed, Vote::None),
                holder: None,
            });
            let again = match votes_in {
                Some(left) => left.max(SHORTEST_PAUSE),
                None => self.try_again(now, needed),
            };
            let report = Report::new("voting", needed, nodes.collect(), Some(again));
            match votes_in {
                Some(_) => Error::Quarantined(report),
                None => Error::NoQuorum(report),
            }
        };
        let mut left = Vec::new();
        for voting in waiting {
            let late = || (voting.deadline <= now).then(|| Err(too_few()));
            match answer.clone().or_else(late) {
                Some(answer) => drop(voting.reply.send(answer)),
                None => left.push(voting),
            }
        }
        self.admin.voting = left;
    }
}
