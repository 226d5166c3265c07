//! How an engine ends: closed by its callers, or with its runtime.

use std::{sync::Arc, time::Duration};

use super::Core;
use crate::{
    Error,
    node::status::{NodeState, NodeStatus},
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

    pub(super) fn is_clean(&self) -> bool {
        self.holdings.is_clean() && self.net.is_idle()
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
