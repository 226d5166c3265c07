//! How long a session is good: pure arithmetic on the instants at which Consul was asked.

use std::time::Duration;

use crate::{
    base::clock::Tick,
    protocol::ballot::validity::{notice, valid_until},
};

/// A session that is older than this part of its TTL is renewed before a lease uses it.
const FRESH: u32 = 10;

/// The life of one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    ttl: Duration,
    /// Just before Consul was asked for the last renewal that it did, or to make the session.
    renewed_at: Tick,
}

impl Life {
    pub(super) fn new(ttl: Duration, asked_at: Tick) -> Self {
        Self {
            ttl,
            renewed_at: asked_at,
        }
    }

    /// Notes a renewal that Consul was asked for at this time. Answers may come in any order.
    pub(super) fn renewed(&mut self, asked_at: Tick) {
        self.renewed_at = self.renewed_at.max(asked_at);
    }

    /// The end until which the session can be relied on. Consul ends it no sooner than a TTL after its renewal.
    pub(super) fn good_until(&self) -> Tick {
        valid_until(self.renewed_at, self.ttl)
    }

    /// Returns true if a grant by this session is still of use: the session outlasts the notice of a loss.
    pub(super) fn is_in_time(&self, now: Tick) -> bool {
        self.good_until().minus(notice(self.ttl)) > now
    }

    /// Returns true if nearly all of its TTL is left.
    pub(super) fn is_fresh(&self, now: Tick) -> bool {
        now.since(self.renewed_at) <= self.ttl / FRESH
    }

    /// When to renew it while its owner waits.
    pub(super) fn renew_at(&self) -> Tick {
        self.renewed_at.plus(self.ttl / 3)
    }

    /// The time by which Consul has ended it.
    pub(super) fn gone_at(&self) -> Tick {
        self.renewed_at.plus(self.ttl * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_session_is_good_for_its_ttl_less_drift_from_the_request() {
        // The drift is 1 % and 2 ms.
        let life = Life::new(TTL, at(1_000));
        assert_eq!(life.good_until(), at(1_000 + 10_000 - 102));
        assert_eq!(life.gone_at(), at(21_000));
        assert_eq!(life.renew_at(), at(1_000).plus(TTL / 3));
    }

    #[test]
    fn a_session_is_fresh_for_a_tenth_of_its_ttl() {
        let life = Life::new(TTL, at(1_000));
        assert!(life.is_fresh(at(2_000)));
        assert!(!life.is_fresh(Tick::from_nanos(2_000_000_001)));
    }

    #[test]
    fn a_session_is_in_time_until_its_loss_would_be_announced() {
        let life = Life::new(TTL, at(1_000));
        // A twentieth of the TTL before its end.
        let announced = at(1_000 + 10_000 - 102 - 500);
        assert!(life.is_in_time(announced.minus(Duration::from_nanos(1))));
        assert!(!life.is_in_time(announced));
    }

    #[test]
    fn a_late_renewal_answer_does_not_shorten_the_session() {
        let mut life = Life::new(TTL, at(1_000));
        life.renewed(at(5_000));
        life.renewed(at(4_000));
        assert_eq!(life.good_until(), at(5_000 + 10_000 - 102));
    }
}
