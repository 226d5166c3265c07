//! The settings of one quorum, after they were checked.

use std::{sync::Arc, time::Duration};

use super::admission::{Terms, record::THROWAWAY};
use crate::base::{owner::Label, rules::Rules};

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `host:port` of every node, or the path of its socket. Their number is N.
    pub(crate) nodes: Vec<Arc<str>>,
    /// The list word: `Builder::fleet`, or a hash of the nodes' addresses.
    pub(crate) list: String,
    /// By node: its position in the sorted list of addresses. `None` if the fleet has a name, because its clients may
    /// know the nodes by other addresses.
    pub(crate) ranks: Option<Vec<usize>>,
    /// The prefix of every key.
    pub(crate) prefix: String,
    pub(crate) node_timeout: Duration,
    /// `max_ttl` and the restart margin that this client asks for.
    pub(crate) terms: Terms,
    pub(crate) label: Label,
    /// The channel on which waiters of this quorum are told that it is their turn. No other quorum has it.
    pub(crate) channel: Arc<str>,
    pub(crate) allow_eviction: bool,
    pub(crate) rules: Rules,
}

impl Settings {
    /// A node's position in the sorted list, if all clients of the fleet have the same list.
    pub(crate) fn rank(&self, node: usize) -> Option<usize> {
        self.ranks.as_ref()?.get(node).copied()
    }

    /// Nothing that a memory forgot is waited for, because the servers are thrown away after this run.
    pub(crate) fn is_throwaway(&self) -> bool {
        self.list == THROWAWAY
    }

    /// N: the number of nodes.
    pub(crate) fn total(&self) -> usize {
        self.nodes.len()
    }

    /// A node that has been silent for this long is dialled again.
    pub(crate) fn silence_limit(&self) -> Duration {
        (self.node_timeout * 4).max(Duration::from_secs(2))
    }
}
