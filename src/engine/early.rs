//! What was asked while nodes were being met.
//!
//! Until a majority votes, and as long as handshakes are under way, a request waits for them: the answer
//! would else be that there is no quorum.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    event::{Event, WishId},
    net::Net,
};
use crate::{base::clock::Tick, node::status::NodeState};

/// Requests that wait, and for how long.
pub(super) struct Early {
    /// In the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    /// When the callers of some of them have to be told.
    ends: BTreeSet<(Tick, u64)>,
    last: u64,
    /// Nodes that are being met would make a majority.
    is_coming_up: bool,
}

struct Waiting {
    /// It waits until then, and longer for handshakes that are not late.
    until: Tick,
    /// It never waits longer than this: its caller has to be told.
    end: Option<Tick>,
    asked: Asked,
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
            waiting: BTreeMap::new(),
            ends: BTreeSet::new(),
            last: 0,
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

    /// It may wait as long as for any other answer, and at most until this `end`.
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

    /// The one that came first.
    pub(super) fn pop(&mut self) -> Option<Asked> {
        let (first, _) = self.waiting.first_key_value()?;
        self.take(*first)
    }

    /// One that may wait no longer.
    pub(super) fn pop_due(&mut self, net: &Net, seen: Tick) -> Option<Asked> {
        match self.ends.first() {
            Some((end, id)) if *end <= seen => self.take(*id),
            _ if self.late_at(net).is_some_and(|at| at <= seen) => self.pop(),
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

    /// When [`pop_due`](Self::pop_due) has something.
    pub(super) fn due(&self, net: &Net) -> Option<Tick> {
        let end = self.ends.first().map(|(end, _)| *end);
        self.late_at(net).into_iter().chain(end).min()
    }

    /// Until when the first one may wait: a handshake that is not late is waited for.
    fn late_at(&self, net: &Net) -> Option<Tick> {
        let (_, Waiting { until, .. }) = self.waiting.first_key_value()?;
        let met = net
            .sessions()
            .iter()
            .filter(|s| s.state(*until, net.fleet()) == NodeState::Connecting);
        let patience = met.filter_map(|s| s.patience(None, &net.settings)).min();
        Some(patience.map_or(*until, |patience| patience.max(*until)))
    }

    fn take(&mut self, id: u64) -> Option<Asked> {
        let Waiting { end, asked, .. } = self.waiting.remove(&id)?;
        if let Some(end) = end {
            self.ends.remove(&(end, id));
        }
        Some(asked)
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.ends.len()
    }
}
