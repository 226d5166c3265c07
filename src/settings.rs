//! What a deployment agrees on, as the builder checked it.

use std::{sync::Arc, time::Duration};

use crate::{node::admission::Terms, owner::Label, rules::Rules};

/// Settings of one quorum.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// host:port of every node; their number is N.
    pub(crate) nodes: Vec<Arc<str>>,
    /// The word for the list of them: `Builder::fleet`, or what follows from their addresses.
    pub(crate) list: String,
    /// What every key begins with.
    pub(crate) prefix: String,
    pub(crate) node_timeout: Duration,
    /// What this client asks of the fleet: `max_ttl`, and M.
    pub(crate) terms: Terms,
    pub(crate) label: Label,
    pub(crate) allow_eviction: bool,
    pub(crate) rules: Rules,
}

impl Settings {
    /// N.
    pub(crate) fn total(&self) -> usize {
        self.nodes.len()
    }

    /// A node that has been silent for this long is dialled anew.
    pub(crate) fn silence_limit(&self) -> Duration {
        (self.node_timeout * 4).max(Duration::from_secs(2))
    }
}
