//! What a client knows of all nodes together.

use std::{sync::Arc, time::Duration};

use crate::node::admission;

/// The fleet as read so far: the longest `max_ttl` on any node, the guard that follows from it, and
/// which process answers at which address.
pub(crate) struct Fleet {
    total: usize,
    max_ttl: Duration,
    longest_read: Option<Duration>,
    guard: Arc<str>,
    runs: Vec<Option<String>>,
}

impl Fleet {
    pub(crate) fn new(total: usize) -> Self {
        let guard = admission::guard(total, Duration::ZERO).into();
        Self {
            total,
            max_ttl: Duration::ZERO,
            longest_read: None,
            guard,
            runs: vec![None; total],
        }
    }

    pub(crate) fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    /// What `<prefix>:open` must say, the same for every node.
    pub(crate) fn guard(&self) -> &Arc<str> {
        &self.guard
    }

    /// The longest `max_ttl` on any node, whether it is ours or not.
    pub(crate) fn longest_read(&self) -> Option<Duration> {
        self.longest_read
    }

    /// A node stores this `max_ttl`.
    pub(crate) fn read(&mut self, max_ttl: Duration) {
        self.longest_read = self.longest_read.max(Some(max_ttl));
    }

    /// A node that may count stores this `max_ttl`: the others have to store it too.
    pub(crate) fn learn(&mut self, max_ttl: Duration) {
        if max_ttl > self.max_ttl {
            self.max_ttl = max_ttl;
            self.guard = admission::guard(self.total, max_ttl).into();
        }
    }

    /// The process behind this node; or the other node that already has it.
    pub(crate) fn claim_run(&mut self, node: usize, run: &str) -> Result<(), usize> {
        let process = run.split('/').next().unwrap_or(run);
        let same = |other: &Option<String>| other.as_deref() == Some(process);
        if let Some(other) = self
            .runs
            .iter()
            .enumerate()
            .position(|(i, r)| i != node && same(r))
        {
            return Err(other);
        }
        if let Some(slot) = self.runs.get_mut(node) {
            *slot = Some(process.to_owned());
        }
        Ok(())
    }

    pub(crate) fn forget_run(&mut self, node: usize) {
        if let Some(slot) = self.runs.get_mut(node) {
            *slot = None;
        }
    }
}
