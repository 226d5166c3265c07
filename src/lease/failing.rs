//! What is logged of renewals that fail: never a flood. What is too much at WARN is still there at DEBUG.

use crate::{
    Error, Report,
    base::{
        clock::Tick,
        logs::{self, budget::Budget},
    },
    lease::shared::Shared,
};

/// Leases within a minute whose failing renewal is warned about. One line then stands for the others:
/// where the servers are away, the same is true of all leases.
const RENEWALS: usize = 10;

/// What was written of failing renewals.
pub(crate) struct FailingRenewals {
    told: Budget,
    more: Budget,
}

impl Default for FailingRenewals {
    fn default() -> Self {
        Self {
            told: Budget::new(RENEWALS),
            more: Budget::new(1),
        }
    }
}

impl FailingRenewals {
    /// A renewal of this lease failed, for the `first` time in this outage or again. This process holds `leases` of them.
    pub(crate) fn failed(
        &mut self,
        now: Tick,
        lease: &Shared,
        first: bool,
        error: &Error,
        leases: usize,
    ) {
        if first && self.told.pass(now) {
            logs::warn!(
                name = lease.name.as_str(),
                left_ms = logs::ms(lease.validity()),
                reason = error.to_string(),
                nodes = error.report().map(Report::to_string),
                "a renewal failed, it is tried again"
            );
            return;
        }
        if first && self.more.pass(now) {
            logs::warn!(leases, "more renewals fail");
        }
        logs::debug!(
            name = lease.name.as_str(),
            left_ms = logs::ms(lease.validity()),
            reason = error.to_string(),
            "a renewal failed"
        );
    }
}
