//! Requests that were made before the nodes are met.
//!
//! They wait until a majority votes, as long as handshakes are under way. Without that wait the first requests of a
//! program would be answered with `NoQuorum`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    cluster::Cluster,
    event::{AcquisitionId, Event},
};
use crate::{base::clock::Tick, node::status::NodeState};

/// The requests that wait.
pub(super) struct Startup {
    /// In the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    /// The times by which some callers must have their answer.
    ends: BTreeSet<(Tick, u64)>,
    last: u64,
    /// With the nodes that are being met there would be a majority.
    is_coming_up: bool,
}

struct Waiting {
    /// The request waits until this time. It waits longer for handshakes that are not late.
    until: Tick,
    /// The request never waits longer than this, because its caller must have its answer.
    end: Option<Tick>,
    asked: Asked,
}

/// A request that waits.
pub(super) enum Asked {
    Event(Box<Event>),
    /// An acquisition whose rest is over.
    Rested(AcquisitionId),
}

impl Startup {
    pub(super) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            ends: BTreeSet::new(),
            last: 0,
            is_coming_up: true,
        }
    }

    pub(super) fn is_coming_up(&self) -> bool {
        self.is_coming_up
    }

    /// Must be called whenever the state of a node has changed.
    pub(super) fn look(&mut self, cluster: &Cluster) {
        let of = |state| cluster.states().filter(|s| *s == state).count();
        // Connecting: the node is being met, for the first time or again.
        self.is_coming_up = of(NodeState::Voting) < cluster.needed && of(NodeState::Connecting) > 0;
    }

    /// Adds a request. It may wait as long as for any other answer, but not beyond `end`.
    pub(super) fn push(
        &mut self,
        now: Tick,
        node_timeout: Duration,
        end: Option<Tick>,
        asked: Asked,
    ) {
        self.last += 1;
        self.ends.extend(end.map(|end| (end, self.last)));
        let until = now.plus(node_timeout);
        self.waiting
            .insert(self.last, Waiting { until, end, asked });
    }

    /// Takes out the request that came first.
    pub(super) fn pop(&mut self) -> Option<Asked> {
        let (first, _) = self.waiting.first_key_value()?;
        self.take(*first)
    }

    /// Takes out a request that may not wait any longer.
    pub(super) fn pop_due(&mut self, cluster: &Cluster, seen: Tick) -> Option<Asked> {
        match self.ends.first() {
            Some((end, id)) if *end <= seen => self.take(*id),
            _ if self.late_at(cluster).is_some_and(|at| at <= seen) => self.pop(),
            _ => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// All callers find their channels closed.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.ends.clear();
    }

    /// The time at which [`pop_due`](Self::pop_due) returns something.
    pub(super) fn due(&self, cluster: &Cluster) -> Option<Tick> {
        let end = self.ends.first().map(|(end, _)| *end);
        self.late_at(cluster).into_iter().chain(end).min()
    }

    /// The time until which the first request may wait. It waits for a handshake that is not late.
    fn late_at(&self, cluster: &Cluster) -> Option<Tick> {
        let (_, Waiting { until, .. }) = self.waiting.first_key_value()?;
        let met = cluster
            .sessions()
            .iter()
            .filter(|s| s.state(*until, cluster.fleet()) == NodeState::Connecting);
        let patience = met
            .filter_map(|s| s.patience(None, &cluster.settings))
            .min();
        Some(patience.map_or(*until, |patience| patience.max(*until)))
    }

    fn take(&mut self, id: u64) -> Option<Asked> {
        let Waiting { end, asked, .. } = self.waiting.remove(&id)?;
        if let Some(end) = end {
            let had_an_end = self.ends.remove(&(end, id));
            debug_assert!(had_an_end, "its end is not known");
        }
        debug_assert!(
            self.ends.len() <= self.waiting.len(),
            "an end of no request"
        );
        Some(asked)
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.ends.len()
    }
}
