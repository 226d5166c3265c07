//! One lease, as the engine keeps it.

use std::{sync::Arc, time::Duration};

use crate::{
    LossReason,
    claim::Claim,
    engine::net::Net,
    lease::{shared::Shared, upkeep::Upkeep},
    logs,
    owner::Entry,
};

/// One lease.
pub(super) struct Holding {
    pub(super) shared: Arc<Shared>,
    pub(super) upkeep: Upkeep,
    pub(super) claim: Claim,
    pub(super) entry: Entry,
    pub(super) lock_delay: Duration,
    /// Where it was asked for: where it has to be released.
    pub(super) asked: Vec<usize>,
    /// Where it was granted.
    pub(super) held_on: Vec<usize>,
    /// Where an extension found it gone: there it stays gone, as no extension re-creates.
    pub(super) gone: Vec<usize>,
    /// Its loss was logged.
    pub(super) told: bool,
}

impl Holding {
    pub(super) fn node_ttl(&self) -> Duration {
        self.upkeep.ttl() + self.lock_delay
    }

    /// It is over. What it holds on the nodes is left to expire until it is dropped.
    pub(super) fn lose(&mut self, reason: LossReason) {
        self.shared.lose(reason);
        self.log_loss();
    }

    /// Once, if it was lost and not given up.
    pub(super) fn log_loss(&mut self) {
        let Some(lost) = self.shared.lost_now() else {
            return;
        };
        let told = std::mem::replace(&mut self.told, true);
        if lost.reason != LossReason::Released && !told {
            logs::warn!(
                name = self.shared.name.as_str(),
                reason = lost.reason.to_string(),
                held_for_ms = logs::ms(self.shared.held_for()),
                "a lease is lost"
            );
        }
    }
}

pub(super) fn reason_of(shared: &Shared) -> LossReason {
    let lost = shared.lost_now();
    lost.map_or(LossReason::Expired, |lost| lost.reason)
}

/// Renewals are spread, so that many leases are not renewed in one burst.
pub(super) fn jitter(net: &mut Net, ttl: Duration) -> Duration {
    let most = u64::try_from((ttl / 20).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(net.chance.up_to(most))
}
