//! What to do about a lease, and when: renew it, or give it up. Pure.

use std::time::Duration;

use super::Renewal;
use crate::{
    LossReason,
    ballot::validity::{drift, notice, valid_until},
    clock::Tick,
};

/// A renewal, and one more while it is unanswered.
const MOST_IN_FLIGHT: u32 = 2;
/// A provisional lease is confirmed after so great a part of its term. A section that is shorter is spared the request:
/// short ones follow one another quickly where many wait.
const CONFIRMED_AFTER: u32 = 100;
/// Renewals without a break for this many ttl are warned about once.
const WARN_AFTER: u32 = 60;

/// One lease over time.
#[derive(Debug)]
pub(crate) struct Upkeep {
    ttl: Duration,
    asked_at: Tick,
    valid_until: Tick,
    /// How long before that the loss is announced.
    notice: Duration,
    /// It is good for a short term only, until an extension confirms it.
    is_provisional: bool,
    /// The first extension goes soon, and is no renewal.
    confirms: bool,
    renewal: Renewal,
    renewals: u32,
    next_renewal: Tick,
    in_flight: u32,
    /// When to send one more beside the one that is unanswered.
    again_at: Tick,
    /// When a renewal was counted last.
    counted_at: Tick,
    /// A renewal was tried since the last one that succeeded.
    tried: bool,
    /// One failed since then.
    failed: bool,
    warned: bool,
}

/// For how long what was won is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Good {
    pub(crate) until: Tick,
    /// How long before that the loss is announced.
    pub(crate) notice: Duration,
    /// It has to be confirmed to be good for its ttl: until then it is good for a term that may be shorter.
    pub(crate) is_provisional: bool,
    /// Some nodes may still have it in their lines: the first extension puts an end to that.
    pub(crate) is_partial: bool,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Renew,
    Lose(LossReason),
    /// Nothing before this.
    Wait(Tick),
}

impl Upkeep {
    /// A lease that counts as held since then.
    pub(crate) fn new(
        ttl: Duration,
        since: Tick,
        good: Good,
        renewal: Renewal,
        jitter: Duration,
    ) -> Self {
        // When a lease that is good until then was asked for.
        let t0 = good.until.minus(ttl.saturating_sub(drift(ttl)));
        let confirms = good.is_provisional || good.is_partial;
        let next_renewal = match (confirms, renewal.auto) {
            (false, _) => renewal_at(t0, ttl, jitter),
            // Its caller waits for it.
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

    /// Whether an extension has still to confirm it.
    pub(crate) fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Until when it is good: what the nodes granted, and never beyond `max_hold`.
    pub(crate) fn valid_until(&self) -> Tick {
        self.hold_end()
            .map_or(self.valid_until, |end| end.min(self.valid_until))
    }

    /// Why it will have ended if nothing more happens.
    pub(crate) fn reason_at_end(&self) -> LossReason {
        if self.hold_end().is_some_and(|end| end <= self.valid_until) {
            LossReason::MaxHold
        } else if self.tried {
            LossReason::NodesLost
        } else {
            LossReason::Expired
        }
    }

    /// What is due now, the last heartbeat having come at `beat_at`.
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

    /// Should it stay unanswered, half of the time that is left belongs to a second try: the node
    /// timeout may be longer than the whole of it.
    pub(crate) fn renewal_sent(&mut self, now: Tick) {
        let end = self.valid_until().minus(self.notice);
        self.again_at = now.plus(end.since(now) / 2);
        self.in_flight += 1;
        self.tried = true;
    }

    /// An extension that was sent at `t1` has now succeeded.
    pub(crate) fn extended(&mut self, t1: Tick, now: Tick, automatic: bool, jitter: Duration) {
        self.valid_until = self.valid_until.max(valid_until(t1, self.ttl));
        self.notice = notice(self.ttl);
        self.is_provisional = false;
        let confirms = std::mem::replace(&mut self.confirms, false);
        self.next_renewal = self.next_renewal.max(renewal_at(t1, self.ttl, jitter));
        (self.tried, self.failed) = (false, false);
        if automatic {
            self.in_flight = self.in_flight.saturating_sub(1);
            // The second of a pair, on its way already when the first was counted, is no other one.
            if t1 >= self.counted_at && !confirms {
                self.counted_at = now;
                self.renewals = self.renewals.saturating_add(1);
            }
        }
    }

    /// A renewal failed: the old validity stands, and it is tried again soon. Whether it is the
    /// first since one succeeded.
    pub(crate) fn renewal_failed(&mut self, now: Tick) -> bool {
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

    /// Whether it is time to warn, once, that this lease has been held for very long.
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

/// When to renew what was asked for at `t1`: a third of the ttl later, less the jitter, in steps of a 600th of the
/// ttl. So the renewals of many leases leave together: one alone costs the CPU time of a lock.
fn renewal_at(t1: Tick, ttl: Duration, jitter: Duration) -> Tick {
    let at = t1.plus(ttl / 3).minus(jitter);
    let step = Tick::default().plus(ttl / 600).nanos().max(1);
    Tick::from_nanos(at.nanos() - at.nanos() % step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    fn good(t0: Tick, ttl: Duration) -> Good {
        Good {
            until: valid_until(t0, ttl),
            notice: notice(ttl),
            is_provisional: false,
            is_partial: false,
        }
    }

    fn hold(renewal: Renewal) -> Upkeep {
        Upkeep::new(TTL, at(0), good(at(0), TTL), renewal, Duration::ZERO)
    }

    // ttl 3 s: drift 32 ms, valid until 2968, notice 150, announced at 2818, renewed at 1000.

    #[test]
    fn renewed_at_a_third_of_the_ttl() {
        let h = hold(Renewal::auto());
        assert_eq!(h.due(at(999), at(0)), Due::Wait(at(1000)));
        assert_eq!(h.due(at(1000), at(0)), Due::Renew);
    }

    /// A step is 5 ms here.
    #[test]
    fn renewals_go_in_steps_and_never_late() {
        let due = |t0: u64, jitter: u64| {
            let jitter = Duration::from_millis(jitter);
            let good = good(at(t0), TTL);
            Upkeep::new(TTL, at(t0), good, Renewal::auto(), jitter).due(at(t0), at(t0))
        };
        for (t0, jitter) in [(0, 0), (4, 0), (4, 4), (54, 50)] {
            assert_eq!(due(t0, jitter), Due::Wait(at(1000)), "{t0}, {jitter}");
        }
        assert_eq!(due(5, 0), Due::Wait(at(1005)));
        let mut h = hold(Renewal::auto());
        h.renewal_sent(at(1000));
        h.extended(at(1003), at(1010), true, Duration::ZERO);
        assert_eq!(h.due(at(1010), at(0)), Due::Wait(at(2000)));
        let tiny = {
            let (ttl, good) = (Duration::ZERO, good(at(7), Duration::ZERO));
            Upkeep::new(ttl, at(7), good, Renewal::auto(), Duration::ZERO)
        };
        assert_eq!(tiny.due(at(7), at(7)), Due::Lose(LossReason::Expired));
    }

    /// Won in line, and some nodes may still have it there: if an operator frees the name they would hand it over again.
    #[test]
    fn what_may_still_stand_in_line_is_extended_soon() {
        let partial = Good {
            is_partial: true,
            ..good(at(0), TTL)
        };
        let once = Renewal {
            max_renewals: Some(1),
            ..Renewal::auto()
        };
        let mut h = Upkeep::new(TTL, at(0), partial, once, Duration::ZERO);
        // A hundredth of 2,968 ms.
        assert_eq!(
            h.due(at(29), at(0)),
            Due::Wait(at(0).plus(Duration::from_micros(29_680)))
        );
        assert_eq!(h.due(at(30), at(0)), Due::Renew);
        h.renewal_sent(at(30));
        h.extended(at(30), at(40), true, Duration::ZERO);
        assert_eq!(h.due(at(1_030), at(0)), Due::Renew, "that was no renewal");
        h.renewal_sent(at(1_030));
        h.extended(at(1_030), at(1_040), true, Duration::ZERO);
        assert!(matches!(h.due(at(2_900), at(0)), Due::Wait(_)));
        let h = Upkeep::new(TTL, at(0), partial, Renewal::off(), Duration::ZERO);
        assert_eq!(h.due(at(30), at(0)), Due::Wait(at(2818)));
    }

    #[test]
    fn without_renewal_it_expires_a_notice_early() {
        let h = hold(Renewal::off());
        assert_eq!(h.due(at(0), at(0)), Due::Wait(at(2818)));
        assert_eq!(h.due(at(2818), at(0)), Due::Lose(LossReason::Expired));
    }

    #[test]
    fn an_extension_counts_from_its_sending() {
        let mut h = hold(Renewal::auto());
        h.renewal_sent(at(1000));
        assert_eq!(
            h.due(at(1500), at(0)),
            Due::Wait(at(1909)),
            "one renewal at a time, until half of what was left is over"
        );
        h.extended(at(1000), at(1010), true, Duration::ZERO);
        assert_eq!(h.valid_until(), at(3968));
        assert_eq!(h.due(at(1500), at(0)), Due::Wait(at(2000)));
    }

    #[test]
    fn a_failed_renewal_changes_nothing_and_is_tried_again() {
        let mut h = hold(Renewal::auto());
        h.renewal_sent(at(1000));
        assert!(h.renewal_failed(at(1500)), "the first");
        assert_eq!(h.valid_until(), at(2968));
        assert_eq!(h.due(at(1500), at(0)), Due::Wait(at(1625)));
        assert_eq!(h.due(at(1625), at(0)), Due::Renew);
        assert_eq!(h.due(at(2818), at(0)), Due::Lose(LossReason::NodesLost));
    }

    #[test]
    fn an_unanswered_renewal_gets_one_more_beside_it() {
        let mut h = hold(Renewal::auto());
        h.renewal_sent(at(1000));
        assert_eq!(h.due(at(1908), at(0)), Due::Wait(at(1909)));
        assert_eq!(h.due(at(1909), at(0)), Due::Renew);
        h.renewal_sent(at(1909));
        assert_eq!(
            h.due(at(2500), at(0)),
            Due::Wait(at(2818)),
            "two, not three"
        );
        h.renewal_failed(at(2500));
        assert_eq!(h.due(at(2500), at(0)), Due::Wait(at(2625)), "one is left");
        assert_eq!(h.due(at(2625), at(0)), Due::Renew);
        h.renewal_sent(at(2625));
        assert_eq!(h.due(at(2700), at(0)), Due::Wait(at(2818)));
        assert_eq!(h.due(at(2818), at(0)), Due::Lose(LossReason::NodesLost));
    }

    // ttl 600 ms: drift 8 ms, valid until 592, notice 30, announced at 562, renewed at 200.
    #[test]
    fn a_short_ttl_has_a_second_try_before_the_node_timeout() {
        let mut h = Upkeep::new(
            Duration::from_millis(600),
            at(0),
            good(at(0), Duration::from_millis(600)),
            Renewal::auto(),
            Duration::ZERO,
        );
        h.renewal_sent(at(200));
        assert_eq!(h.due(at(200), at(0)), Due::Wait(at(381)));
        assert_eq!(h.due(at(381), at(0)), Due::Renew);
        h.renewal_sent(at(381));
        h.extended(at(381), at(390), true, Duration::ZERO);
        assert_eq!(h.valid_until(), at(973));
        assert_eq!(
            h.due(at(400), at(0)),
            Due::Wait(at(581)),
            "the first is still on its way"
        );
        h.renewal_failed(at(700));
        assert_eq!(h.valid_until(), at(973), "and takes nothing back");
        assert_eq!(h.due(at(700), at(0)), Due::Wait(at(725)));
    }

    #[test]
    fn there_is_no_one_more_where_the_node_timeout_leaves_time() {
        let mut h = hold(Renewal::auto());
        h.renewal_sent(at(1000));
        h.renewal_failed(at(1500));
        assert_eq!(
            h.due(at(1500), at(0)),
            Due::Wait(at(1625)),
            "not both at 1625 and 1909"
        );
        h.renewal_sent(at(1625));
        assert_eq!(
            h.due(at(1909), at(0)),
            Due::Wait(Tick::from_nanos(2_221_500_000))
        );
    }

    #[test]
    fn each_of_a_pair_prolongs_and_both_count_as_one() {
        for [first, second] in [[1000, 1909], [1909, 1000]] {
            let mut h = hold(Renewal::auto().max_renewals(2));
            h.renewal_sent(at(1000));
            h.renewal_sent(at(1909));
            h.extended(at(first), at(1950), true, Duration::ZERO);
            assert_eq!(h.valid_until(), at(first + 2968));
            h.extended(at(second), at(1951), true, Duration::ZERO);
            assert_eq!(h.valid_until(), at(1909 + 2968), "never less than it was");
            assert_eq!(h.due(at(1951), at(0)), Due::Wait(at(2905)), "one is left");
            h.renewal_sent(at(2909));
            h.extended(at(2909), at(2920), true, Duration::ZERO);
            assert_eq!(h.due(at(3909), at(0)), Due::Wait(at(5727)), "none is left");
        }
    }

    #[test]
    fn an_extension_by_hand_puts_the_one_more_off() {
        let mut h = hold(Renewal::auto());
        h.renewal_sent(at(1000));
        h.extended(at(1500), at(1510), false, Duration::ZERO);
        assert_eq!(h.due(at(1909), at(0)), Due::Wait(at(2500)));
        h.renewal_failed(at(1600));
        assert_eq!(
            h.due(at(1909), at(0)),
            Due::Wait(at(2500)),
            "nor is it tried again soon"
        );
    }

    #[test]
    fn only_the_first_failure_of_an_outage_is_news() {
        let mut h = hold(Renewal::auto());
        let fails = |at_ms, h: &mut Upkeep| {
            h.renewal_sent(at(at_ms));
            h.renewal_failed(at(at_ms + 1))
        };
        assert!(fails(1000, &mut h) && !fails(1125, &mut h) && !fails(1250, &mut h));
        h.renewal_sent(at(1375));
        h.extended(at(1375), at(1376), true, Duration::ZERO);
        assert!(fails(2375, &mut h));
    }

    #[test]
    fn max_renewals_is_an_end() {
        let mut h = hold(Renewal::auto().max_renewals(1));
        h.renewal_sent(at(1000));
        h.extended(at(1000), at(1010), true, Duration::ZERO);
        assert_eq!(h.due(at(2500), at(0)), Due::Wait(at(3818)));
        assert_eq!(h.due(at(3818), at(0)), Due::Lose(LossReason::Expired));
    }

    #[test]
    fn max_hold_caps_the_validity() {
        let mut h = hold(Renewal::auto().max_hold(Duration::from_millis(3500)));
        h.renewal_sent(at(1000));
        h.extended(at(1000), at(1010), true, Duration::ZERO);
        assert_eq!(h.valid_until(), at(3500));
        assert_eq!(
            h.due(at(2500), at(0)),
            Due::Wait(at(3350)),
            "no renewal beyond it"
        );
        assert_eq!(h.due(at(3350), at(0)), Due::Lose(LossReason::MaxHold));
    }

    #[test]
    fn a_missing_heartbeat_ends_it() {
        let h = hold(Renewal::auto().heartbeat(Duration::from_millis(500)));
        assert_eq!(h.due(at(499), at(0)), Due::Wait(at(500)));
        assert_eq!(h.due(at(500), at(0)), Due::Lose(LossReason::NoHeartbeat));
        assert_eq!(h.due(at(500), at(100)), Due::Wait(at(600)));
    }

    #[test]
    fn sixty_ttl_are_warned_about_once() {
        let mut h = hold(Renewal::auto());
        assert!(!h.warn_once(at(179_999)));
        assert!(h.warn_once(at(180_000)));
        assert!(!h.warn_once(at(180_001)));
        assert!(!hold(Renewal::auto().max_hold(TTL)).warn_once(at(999_999)));
    }
}
