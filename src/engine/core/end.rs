//! How an engine ends: closed by its callers, or with its runtime.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::Core;
use crate::{
    Error,
    base::{logs, owner::Entry},
    node::{
        session::Session,
        status::{NodeState, NodeStatus},
    },
};

impl Core {
    /// No new wishes; leave when all is clean. For an engine whose handles are all gone.
    pub(crate) fn close(&mut self) {
        self.net.look_at_the_clock();
        self.close_doors();
        self.settle();
    }

    pub(super) fn close_doors(&mut self) {
        self.shutdown.close();
        self.early.clear();
        self.wishes.close(&mut self.net);
        self.rates.clear();
        self.rests.clear();
        self.ready.clear();
        self.net.part();
    }

    /// The runtime is gone: every caller finds its channel closed, and no lease is renewed any more. What
    /// is released from now on still goes out.
    pub(crate) fn end(&mut self) {
        self.holdings.end();
        self.close();
        self.questions.clear();
        self.pools.clear();
        self.bootstrap.clear();
        self.shutdown.forget();
        self.announce_end();
        self.ended = true;
    }

    /// Nobody renews any more, and no node is reached.
    fn announce_end(&mut self) {
        let closed = |id: &Arc<str>| NodeStatus {
            node: Arc::clone(id),
            state: NodeState::Unreachable(Duration::ZERO, Error::Closed.to_string()),
            note: None,
            used: false,
            round_trip: None,
            limits_up_to: Duration::ZERO,
        };
        let nodes = self.net.settings.nodes.iter().map(closed).collect();
        self.status.close(self.net.clock.now(), nodes);
        self.holdings.end();
    }

    /// Closed, nothing held, nothing left to take back or to tell.
    pub(crate) fn is_done(&self) -> bool {
        self.shutdown.is_closed() && (self.is_clean() || self.shutdown.gave_up())
    }

    /// Whether there are leases that were not dropped yet.
    pub(crate) fn holds(&self) -> bool {
        self.holdings.is_any_held()
    }

    fn is_clean(&self) -> bool {
        self.holdings.is_clean() && self.net.is_idle()
    }

    /// Returns true if a shutdown has nothing left to wait for. Every lease is dropped, and a majority is free of it. Nodes that
    /// answer are waited for beyond that. A node that is away or stalled is not: it would cost every program that ends
    /// during an outage the whole timeout, and what stands there is a minority, which ends with its ttl.
    pub(super) fn may_end(&self) -> bool {
        let waits = |session: &Session| session.is_confirming() || session.is_parting();
        self.holdings.is_clean()
            && !self.net.sessions().iter().any(waits)
            && self.on_most() <= self.net.total() - self.net.needed
    }

    /// On how many nodes one entry may still stand that was released, at most.
    fn on_most(&self) -> usize {
        let mut on: BTreeMap<&Entry, usize> = BTreeMap::new();
        for entry in self.net.sessions().iter().flat_map(Session::unconfirmed) {
            *on.entry(entry).or_default() += 1;
        }
        on.into_values().max().unwrap_or(0)
    }

    /// Tells the callers of shutdown what is still held, and the log what is left of the rest.
    pub(super) fn end_shutdown(&mut self) {
        let sessions = self.net.sessions().iter();
        let left = sessions
            .map(Session::unconfirmed)
            .zip(&self.net.settings.nodes);
        let left: Vec<(usize, &Arc<str>)> = left
            .map(|(entries, node)| (entries.len(), node))
            .filter(|(releases, _)| *releases > 0)
            .collect();
        let is_free = self.on_most() <= self.net.total() - self.net.needed;
        for (releases, node) in left {
            match is_free {
                true => {
                    logs::info!(%node, releases, "a node has not confirmed releases: they are left to the ttl there");
                }
                false => {
                    logs::warn!(%node, releases, "no majority has confirmed releases: they are left to the ttl");
                }
            }
        }
        let held = self.holdings.names();
        self.holdings.lose_all();
        self.shutdown.end(&held);
    }
}

impl Drop for Core {
    /// Waiting callers find their channels closed.
    fn drop(&mut self) {
        if !self.ended {
            self.announce_end();
        }
    }
}
