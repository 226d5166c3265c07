//! The state that both kinds of queued acquisitions share: their identity on the nodes, and the outcome of a look at
//! one.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use crate::{
    Error,
    base::owner::Entry,
    engine::{
        acquire::{reach::Reach, waiter::Waiter},
        cluster::Cluster,
        grant::Won,
        rollback::roll_back,
    },
    node::{
        request::Target,
        session::{Purpose, RoundId, Session, Tag},
    },
};

/// How the nodes know a queued acquisition, and what they have answered.
pub(in crate::engine::acquire) struct Common {
    pub(in crate::engine::acquire) round: RoundId,
    pub(in crate::engine::acquire) owner: Entry,
    pub(super) reach: Reach,
    /// The greatest counter in any answer.
    pub(in crate::engine::acquire) counter: u64,
}

/// The outcome of a look at a queued acquisition.
pub(in crate::engine::acquire) enum Outcome {
    /// It waits, and has set its timer.
    Waits,
    Won(Box<Won>),
    /// It begins again under a new owner. A RELEASE of the old owner may still be on its way to some nodes.
    NewOwner,
    /// It wanted a place behind all others, but other waiters came first. It takes a new place behind them.
    NewPlace,
    /// Too few nodes know of its place, so it makes an attempt instead.
    Attempt,
    /// It is for a writer's turn, and too few nodes hear it. The writer asks for its lock without the turn.
    NoTurn,
    /// The wait is over.
    Over(Error),
}

impl Common {
    pub(super) fn new(cluster: &mut Cluster, owner: Entry, counter: u64) -> Self {
        Self {
            round: cluster.new_round(),
            owner,
            reach: Reach::new(cluster.total()),
            counter,
        }
    }

    /// The tag under which the deadlines of a slot search ring. A waiter for a mutex has none.
    pub(in crate::engine::acquire) fn tag(&self) -> Tag {
        Purpose::Take.of(self.round)
    }

    /// From now on the nodes know it under this owner.
    pub(super) fn set_owner(&mut self, cluster: &mut Cluster, owner: Entry) {
        *self = Self::new(cluster, owner, self.counter);
    }

    pub(super) fn saw(&mut self, waiter: &Waiter, counter: u64) {
        self.counter = self.counter.max(counter);
        waiter.acquisition.request.seen.fetch_max(counter, Relaxed);
    }

    /// Takes back everything that may stand on the nodes. It may stand there for `life` at most.
    pub(super) fn roll_back(
        &self,
        cluster: &mut Cluster,
        target: &Target,
        asked: impl Iterator<Item = usize>,
        granted: impl Iterator<Item = usize>,
        life: Duration,
    ) {
        let release = cluster.release_verb(self.counter, None);
        let release = target.operation(&self.owner, release);
        roll_back(cluster, &release, life, asked, granted);
    }
}

/// Returns true if this node can push to this process.
pub(super) fn can_push(cluster: &Cluster, node: usize) -> bool {
    let session = cluster.sessions().get(node);
    !cluster.settings.channel.is_empty() && session.is_some_and(Session::hears)
}

/// The nodes among these that can push to this process, or those that cannot.
pub(super) fn pushing(cluster: &Cluster, nodes: &[usize], can: bool) -> Vec<usize> {
    let nodes = nodes.iter().copied();
    nodes
        .filter(|node| can_push(cluster, *node) == can)
        .collect()
}
