//! The result of an acquisition that was won, by an attempt or in the queue.

use std::time::Duration;

use super::{cluster::Cluster, event::Acquisition, rollback::roll_back};
use crate::{
    base::{clock::Tick, limit::Limit, owner::Entry},
    lease::upkeep::Good,
    node::{request::Target, session::RoundId},
};

/// An acquisition, and what was won for it.
pub(super) struct Grant {
    pub(super) acquisition: Acquisition,
    pub(super) won: Won,
}

/// A lock or a slot that is held on a majority, with one token.
pub(super) struct Won {
    pub(super) target: Target,
    /// The round that won it. Late answers to that round find the lease by it.
    pub(super) round: RoundId,
    pub(super) entry: Entry,
    pub(super) token: u64,
    /// The owner under which the nodes registered its wait for a read-write lock.
    pub(super) waited: Option<Entry>,
    /// The time from which it counts as held.
    pub(super) since: Tick,
    pub(super) good: Good,
    /// How long a part of it may stand on a node that was asked.
    pub(super) stands_for: Duration,
    /// The nodes that were asked.
    pub(super) asked: Vec<usize>,
    /// The nodes that granted, and their counters.
    pub(super) held: Vec<(usize, u64)>,
    /// The nodes that were asked to raise their counters, or to grant, and have not answered.
    pub(super) raising: Vec<usize>,
    /// The nodes that were asked and do not hold it. Something else of this acquisition may stand there.
    pub(super) lacking: Vec<usize>,
    /// For a slot: the limit under which it was won.
    pub(super) limit: Option<Limit>,
}

impl Won {
    /// Gives it back, because its caller is gone.
    pub(super) fn take_back(self, cluster: &mut Cluster) {
        let release = cluster.release_verb(self.token, self.waited);
        let granted = self.held.iter().map(|(node, _)| *node);
        let release = self.target.operation(&self.entry, release);
        roll_back(
            cluster,
            &release,
            self.stands_for,
            self.asked.into_iter(),
            granted,
        );
    }
}
