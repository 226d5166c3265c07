//! Decides what to do about a lease, and when: renew it, or give it up. Pure.

use std::time::Duration;

use super::Renewal;
use crate::{
    LossReason,
    base::clock::Tick,
    protocol::ballot::validity::{drift, notice, valid_until},
};

/// The first renewal, and one more while that one is unanswered.
const MOST_IN_FLIGHT: u32 = 2;
/// A provisional lease is confirmed after this fraction of its term. A shorter section is spared the request. That
/// matters where many wait, because short sections follow one another quickly there.
const CONFIRMED_AFTER: u32 = 100;
/// A lease that is renewed without a break for this many ttl is warned about once.
const WARN_AFTER: u32 = 60;

/// One lease over time.
#[derive(Debug)]
pub(crate) struct Upkeep {
    ttl: Duration,
    asked_at: Tick,
    valid_until: Tick,
    /// How long before `valid_until` the loss is announced.
    notice: Duration,
    /// The lease is valid for a short term only, until an extension confirms it.
    is_provisional: bool,
    /// The first extension goes out soon, and does not count as a renewal.
    confirms: bool,
    renewal: Renewal,
    renewals: u32,
    next_renewal: Tick,
    in_flight: u32,
    /// When to send a second renewal beside the unanswered one.
    again_at: Tick,
    /// When a renewal was last counted.
    counted_at: Tick,
    /// A renewal was tried since the last one that succeeded.
    tried: bool,
    /// A renewal failed since the last one that succeeded.
    failed: bool,
    warned: bool,
}

/// How long a lease is valid once it is won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Good {
    pub(crate) until: Tick,
    /// How long before `until` the loss is announced.
    pub(crate) notice: Duration,
    /// The lease has to be confirmed to be valid for its ttl. Until then it is valid for a term that may be shorter.
    pub(crate) is_provisional: bool,
    /// Some nodes may still have it in their queues. The first extension ends that.
    pub(crate) is_partial: bool,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Renew,
    Lose(LossReason),
    /// Nothing before this time.
    Wait(Tick),
}

impl Upkeep {
    /// A lease that counts as held since `since`.
    pub(crate) fn new(
        ttl: Duration,
        since: Tick,
        good: Good,
        renewal: Renewal,
        jitter: Duration,
    ) -> Self {
        // When a lease that is valid until `good.until` would have been asked for.
        let t0 = good.until.minus(ttl.saturating_sub(drift(ttl)));
        let confirms = good.is_provisional || good.is_partial;
        let next_renewal = match (confirms, renewal.auto) {
            (false, _) => renewal_at(t0, ttl, jitter),
            // Its caller waits for the confirmation.
            (true, false) => since,
            (true, true) => since.plus(good.until.since(since) / CONFIRMED_AFTER),
        };
        Self {
            ttl,
            asked_at: since,
            valid_until: good.until,
            notice: good.notice,
            is_provisional: good.is_provisional,
            confirms,
            renewal,
            renewals: 0,
            next_renewal,
            in_flight: 0,
            again_at: since,
            counted_at: since,
            tried: false,
            failed: false,
            warned: false,
        }
    }

    /// How long before its end a loss is announced.
    pub(crate) fn notice(&self) -> Duration {
        self.notice
    }

    /// Returns true if an extension still has to confirm the lease.
    pub(crate) fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The end of the lease: what the nodes granted, and never beyond `max_hold`.
    pub(crate) fn valid_until(&self) -> Tick {
        self.hold_end()
            .map_or(self.valid_until, |end| end.min(self.valid_until))
    }

    /// The reason of the loss if nothing more happens.
    pub(crate) fn reason_at_end(&self) -> LossReason {
        if self.hold_end().is_some_and(|end| end <= self.valid_until) {
            LossReason::MaxHold
        } else if self.tried {
            LossReason::NodesLost
        } else {
            LossReason::Expired
        }
    }

    /// Returns the next thing to do. `beat_at` is the time of the last heartbeat.
    pub(crate) fn due(&self, now: Tick, beat_at: Tick) -> Due {
        let end = self.valid_until().minus(self.notice);
        if now >= end {
            return Due::Lose(self.reason_at_end());
        }
        let beat_end = self.renewal.heartbeat.map(|d| beat_at.plus(d));
        if beat_end.is_some_and(|at| now >= at) {
            return Due::Lose(LossReason::NoHeartbeat);
        }
        let next = match self.in_flight {
            0 => self.next_renewal,
            _ => self.again_at.max(self.next_renewal),
        };
        let renewal = self.wants_renewal().then_some(next);
        if renewal.is_some_and(|at| now >= at) {
            return Due::Renew;
        }
        Due::Wait(
            [Some(end), beat_end, renewal]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(end),
        )
    }

    /// Notes that a renewal was sent. If it stays unanswered, half of the time that is left belongs to a second try,
    /// because the node timeout may be longer than all of it.
    pub(crate) fn renewal_sent(&mut self, now: Tick) {
        let end = self.valid_until().minus(self.notice);
        self.again_at = now.plus(end.since(now) / 2);
        self.in_flight += 1;
        debug_assert!(self.in_flight <= MOST_IN_FLIGHT, "too many renewals");
        self.tried = true;
    }

    /// Notes that an extension that was sent at `t1` has succeeded now.
    pub(crate) fn extended(&mut self, t1: Tick, now: Tick, automatic: bool, jitter: Duration) {
        self.valid_until = self.valid_until.max(valid_until(t1, self.ttl));
        self.notice = notice(self.ttl);
        self.is_provisional = false;
        let confirms = std::mem::replace(&mut self.confirms, false);
        self.next_renewal = self.next_renewal.max(renewal_at(t1, self.ttl, jitter));
        (self.tried, self.failed) = (false, false);
        if automatic {
            debug_assert!(self.in_flight > 0, "a renewal that was not sent");
            self.in_flight = self.in_flight.saturating_sub(1);
            // The second of a pair was already on its way when the first was counted, so it does not count.
            if t1 >= self.counted_at && !confirms {
                self.counted_at = now;
                self.renewals = self.renewals.saturating_add(1);
            }
        }
    }

    /// Notes that a renewal failed: the old validity stands, and it is tried again soon. Returns true for the first
    /// failure since a renewal succeeded.
    pub(crate) fn renewal_failed(&mut self, now: Tick) -> bool {
        debug_assert!(self.in_flight > 0, "a renewal that was not sent");
        self.in_flight = self.in_flight.saturating_sub(1);
        let mut soon = self.ttl / 24;
        if self.is_provisional {
            // Its term may be far shorter than the ttl.
            let end = self.valid_until().minus(self.notice);
            soon = soon.min(end.since(now) / 8);
        }
        let soon = now.plus(soon.max(Duration::from_millis(5)));
        self.next_renewal = self.next_renewal.max(soon);
        !std::mem::replace(&mut self.failed, true)
    }

    /// Returns true, once, when it is time to warn that this lease has been held for very long.
    pub(crate) fn warn_once(&mut self, now: Tick) -> bool {
        let unbounded = self.renewal.max_hold.is_none() && self.renewal.max_renewals.is_none();
        let long = now.since(self.asked_at) >= self.ttl.saturating_mul(WARN_AFTER);
        let warn = !self.warned && unbounded && long;
        self.warned |= warn;
        warn
    }

    fn wants_renewal(&self) -> bool {
        let left = self
            .renewal
            .max_renewals
            .is_none_or(|most| self.renewals < most);
        let useful = self.hold_end().is_none_or(|end| end > self.valid_until);
        let wanted = self.is_provisional || self.renewal.auto && left && useful;
        wanted && self.in_flight < MOST_IN_FLIGHT
    }

    fn hold_end(&self) -> Option<Tick> {
        self.renewal.max_hold.map(|d| self.asked_at.plus(d))
    }
}

/// When to renew a lease that was asked for at `t1`: a third of the ttl later, less the jitter, in steps of a 600th of
/// the ttl. The steps make the renewals of many leases leave together. A renewal that leaves alone costs the CPU time
/// of a lock.
fn renewal_at(t1: Tick, ttl: Duration, jitter: Duration) -> Tick {
    let at = t1.plus(ttl / 3).minus(jitter);
    let step = Tick::default().plus(ttl / 600).nanos().max(1);
    Tick::from_nanos(at.nanos() - at.nanos() % step)
}

#[cfg(test)]
mod tests;
