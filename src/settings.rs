//! What a deployment agrees on, as the builder checked it.

use std::{sync::Arc, time::Duration};

use crate::{owner::Label, rules::Rules};

/// Settings of one quorum.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// host:port of every node; their number is N.
    pub(crate) nodes: Vec<Arc<str>>,
    pub(crate) node_timeout: Duration,
    pub(crate) max_ttl: Duration,
    /// M: added to every quarantine.
    pub(crate) margin: Duration,
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
