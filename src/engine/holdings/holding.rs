//! One lease, as the engine keeps it.

use std::{sync::Arc, time::Duration};

use super::lacks::Lacks;
use crate::{
    FencingToken, LossReason,
    ballot::validity::notice,
    claim::Claim,
    engine::{attempt::Attempt, event::Wish, net::Net},
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
    pub(super) lacks: Lacks,
    /// Its loss was logged.
    pub(super) told: bool,
}

impl Holding {
    /// What an attempt has won, with this token.
    pub(super) fn new(net: &mut Net, wish: &Wish, attempt: Attempt, token: u64) -> Self {
        let jitter = jitter(net, wish.ttl);
        let upkeep = Upkeep::new(wish.ttl, attempt.t0, wish.renewal, jitter);
        let shared = Shared::new(
            wish.name().clone(),
            FencingToken::from_counter(token),
            Arc::clone(&net.clock),
            attempt.t0,
            notice(wish.ttl),
            upkeep.valid_until(),
        );
        let mut lacks = Lacks::new(token);
        for (node, counter) in attempt.granted() {
            lacks.granted(node, counter);
        }
        // Its counter may be too small, until a late answer says that it is not.
        for node in attempt.raising() {
            lacks.granted(node, 0);
        }
        Self {
            shared: Arc::new(shared),
            upkeep,
            claim: wish.claim.clone(),
            held_on: attempt.granted().map(|(node, _)| node).collect(),
            entry: attempt.entry,
            lock_delay: wish.lock_delay,
            asked: attempt.asked,
            lacks,
            told: false,
        }
    }

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
