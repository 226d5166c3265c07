//! Logs renewals that fail, without flooding the log. Lines beyond the budget of WARN are still written at DEBUG.

use crate::{
    Error, Report,
    base::{
        clock::Tick,
        logs::{self, budget::Budget},
    },
    lease::shared::Shared,
};

/// How many leases a minute get a warning about their failing renewal. One further line stands for the others: if the
/// servers are away, the same is true of all leases.
const RENEWALS: usize = 10;

/// How much may still be written about failing renewals.
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
    /// Logs that a renewal of this lease failed. `first` says whether it is the first failure of this outage. This
    /// process holds `leases` leases.
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
