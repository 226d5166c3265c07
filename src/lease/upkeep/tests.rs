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

/// A lease that was won in the queue. Some nodes may still have it there, and would hand the lock over again if an
/// operator freed the name.
#[test]
fn a_lease_that_may_still_be_queued_somewhere_is_extended_soon() {
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
fn an_unanswered_renewal_gets_a_second_one_beside_it() {
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
fn no_second_renewal_runs_beside_one_that_fails_in_time() {
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
fn both_renewals_of_a_pair_prolong_and_count_as_one() {
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
fn a_manual_extension_postpones_the_second_renewal() {
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
fn only_the_first_renewal_failure_of_an_outage_is_reported() {
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
fn a_lease_expires_after_max_renewals() {
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
