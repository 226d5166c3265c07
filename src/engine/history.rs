//! The history and the distance of a node, as rate limits need them.

use std::time::Duration;

use crate::{
    Error, Silence, Vote,
    base::rules::Rule,
    engine::cluster::{Cluster, SHORTEST_PAUSE},
    node::{session::Session, status::NodeState},
};

impl Cluster {
    /// For how much longer this node's memory must be watched, until it knows everything that happened within
    /// `history`. Units of a rate limit count for longer than leases last (protocol §7).
    pub(super) fn too_young(&self, node: usize, history: Duration) -> Option<Duration> {
        let watched = self.sessions().get(node)?.watched_for(self.now);
        let left = history.saturating_sub(watched);
        (!left.is_zero() && self.rule_holds(Rule::HistoryOfUnits)).then_some(left)
    }

    /// The reason why a node in this state gives no units of a rate limit that needs this history. A node in quarantine
    /// has to be watched for the history as well.
    pub(super) fn silence_with_history(
        &self,
        node: usize,
        state: &NodeState,
        history: Duration,
    ) -> Option<Silence> {
        let young = self.too_young(node, history);
        match state.silence() {
            Some(Silence::Quarantined(left)) => Some(Silence::Quarantined(
                young.map_or(left, |young| young.max(left)),
            )),
            None => young.map(Silence::Quarantined),
            silence => silence,
        }
    }

    /// The error for a rate limit that uses slots, while too few nodes have such a history but enough will have it.
    pub(super) fn needs_history(&self, name: &str, history: Duration) -> Option<Error> {
        if history.is_zero() {
            return None;
        }
        let silences: Vec<Option<Silence>> = self
            .states()
            .enumerate()
            .map(|(node, state)| self.silence_with_history(node, &state, history))
            .collect();
        let left = silences.iter().filter_map(|silence| match silence {
            None => Some(Duration::ZERO),
            Some(Silence::Quarantined(left)) => Some(*left),
            Some(_) => None,
        });
        let mut left: Vec<Duration> = left.collect();
        left.sort_unstable();
        let left = left.get(self.needed.saturating_sub(1)).copied()?;
        if left.is_zero() {
            return None;
        }
        let vote = |silence: Option<Silence>| silence.map_or(Vote::NotWaitedFor, Vote::None);
        let votes = silences.into_iter().map(vote).collect();
        let report = self.report(name, self.needed, votes, left.max(SHORTEST_PAUSE));
        Some(self.quarantined(report))
    }

    /// The mean round trip to this node. It is zero before its first answer.
    pub(super) fn mean_round_trip(&self, node: usize) -> Duration {
        let session = self.sessions().get(node);
        session
            .and_then(Session::measured_round_trip)
            .unwrap_or_default()
    }
}
