//! What was asked while nodes were being met.
//!
//! Until a majority votes, and as long as handshakes are under way, a request waits for them: the answer
//! would else be that there is no quorum.

use std::{collections::VecDeque, time::Duration};

use super::{
    event::{Event, WishId},
    net::Net,
};
use crate::{clock::Tick, node::status::NodeState};

/// Requests that wait, and for how long.
pub(super) struct Early {
    waiting: VecDeque<(Tick, Asked)>,
    /// Nodes that are being met would make a majority.
    is_coming_up: bool,
}

/// What waits.
pub(super) enum Asked {
    Event(Event),
    /// A wish whose rest is over.
    Rested(WishId),
}

impl Early {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            is_coming_up: true,
        }
    }

    pub(super) fn is_coming_up(&self) -> bool {
        self.is_coming_up
    }

    /// To be called whenever a node has changed.
    pub(super) fn look(&mut self, net: &Net) {
        let of = |state| net.states().filter(|s| *s == state).count();
        // Connecting: it is being met for the first time, or again.
        self.is_coming_up = of(NodeState::Voting) < net.needed && of(NodeState::Connecting) > 0;
    }

    /// It may wait as long as for any other answer.
    pub(super) fn push(&mut self, now: Tick, node_timeout: Duration, asked: Asked) {
        self.waiting.push_back((now.plus(node_timeout), asked));
    }

    pub(super) fn pop(&mut self) -> Option<Asked> {
        self.waiting.pop_front().map(|(_, asked)| asked)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// All callers find their channels closed.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Until when the first one may wait: a handshake that is not late is waited for.
    pub(super) fn due(&self, net: &Net) -> Option<Tick> {
        let (at, _) = self.waiting.front()?;
        let met = net
            .sessions()
            .iter()
            .filter(|s| s.state(*at, net.fleet()) == NodeState::Connecting);
        let patience = met.filter_map(|s| s.patience(None, &net.settings)).min();
        Some(patience.map_or(*at, |patience| patience.max(*at)))
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}
