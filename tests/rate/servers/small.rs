//! Limits of few units, and the answers while no unit is free.

use super::*;

/// Five per second and customer. The limit loses neither the share of a dead master nor a remainder of a division.
#[tokio::test]
async fn a_small_limit_is_whole_while_a_minority_is_down() {
    for (masters, down) in [(3, 1), (5, 2)] {
        // All clients have a fleet name, so no order of the masters is known.
        let (fleet, quorum) = fleet(masters).await;
        let few = |name: &str| quorum.rate_limiter(name, Quota::new(5, Duration::from_secs(10)));
        assert!(few("before").check_n(5).await.unwrap().is_allowed());
        fleet.iter().take(down).for_each(Server::kill9);
        let limiter = few("while");
        for n in 0..5 {
            let decision = limiter.check().await.unwrap();
            assert!(decision.is_allowed(), "{n} of 5: {decision:?}");
            assert_eq!(decision.limit(), 5);
        }
        let decision = limiter.check().await.unwrap();
        assert!(!decision.is_allowed(), "{decision:?}");
        let at_once = few("at once").check_n(5).await.unwrap();
        assert!(at_once.is_allowed(), "{at_once:?}");
        assert!(!few("before").check().await.unwrap().is_allowed());
    }
}

/// Ten in two seconds and customer, with one master of three 60 ms away. None of a thousand requests gets an error, no
/// customer gets more than its limit, and each gets most of it.
#[tokio::test]
async fn a_payout_service_answers_a_thousand_requests() {
    const CUSTOMERS: u64 = 20;
    const REQUESTS: u64 = 50;
    const EACH: u32 = 5;
    let (fleet, near) = fleet(3).await;
    let (_proxies, quorum) = far::at(&fleet, &near, &[1, 1, 60]).await;
    let second = Duration::from_secs(1);
    // The longest grace is 200 ms.
    let limiter = quorum.rate_limiter(NAME, Quota::new(2 * EACH, 2 * second));
    let machine = Stalls::watch();
    let began = Instant::now();
    let customers = (0..CUSTOMERS).map(|customer| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut used = Vec::new();
            for n in 0..REQUESTS {
                let asked = Instant::now();
                let of_one = limiter.keyed(format!("customer {customer}"));
                match of_one.check().await {
                    Ok(decision) if decision.is_allowed() => {
                        used.push(u64::try_from(began.elapsed().as_micros()).unwrap());
                    }
                    // A unit counts for 2,025 ms, a grace of 200 ms and a bucket of 77 ms at most.
                    Ok(decision) => assert!(decision.wait() < second * 12 / 5, "{decision:?}"),
                    Err(error) => panic!("customer {customer}, request {n}: {error}"),
                }
                // Each customer asks more often than the limit allows, for 6 s. The units become free twice, at the
                // latest after 4.6 s, and ten requests use them within 1.2 s.
                let pause = Duration::from_millis(120);
                tokio::time::sleep(pause.saturating_sub(asked.elapsed())).await;
            }
            used
        })
    });
    let customers = customers.collect::<Vec<_>>();
    let mut all = 0;
    for used in futures::future::join_all(customers).await {
        let used = used.unwrap();
        assert!(most(&used, 2 * second) <= 2 * EACH as usize, "{used:?}");
        all += used.len();
    }
    // With more taken off, 0.7 of the rate would pass too.
    let stall = (machine.longest() * 2).min(Duration::from_millis(600));
    let seconds = (began.elapsed() - stall).as_secs_f64();
    let rate = all as f64 / CUSTOMERS as f64 / seconds;
    println!(
        "{all} of 1,000 were allowed in {seconds:.1} s: {rate:.2} a second for each of {CUSTOMERS}"
    );
    // Without the share of one master it would be 0.7 at most.
    assert!(rate > 0.8 * f64::from(EACH), "{rate:.2}");
}

/// Slots beside shares, and slots of two intervals. The units that come first are still good when the last ones come.
#[tokio::test]
async fn two_intervals_at_a_distance_are_served_together() {
    let (fleet, near) = fleet(3).await;
    // The longest grace is 300 ms.
    let all = [(90, 100), (90, 10), (180, 100), (180, 10)].map(async |(round_trip, longer)| {
        let (_proxies, quorum) = far::at(&fleet, &near, &[round_trip; 3]).await;
        let quota = Quota::new(5, Duration::from_secs(3));
        let quota = quota.and(Quota::new(longer, Duration::from_secs(10)));
        let name = format!("{longer} in 10 s, {round_trip} ms away");
        let limiter = quorum.rate_limiter(name, quota);
        for n in 0..5 {
            let decision = limiter.check().await.unwrap();
            assert!(decision.is_allowed(), "{n} of 5: {decision:?}");
        }
        let denied = limiter.check().await.unwrap();
        assert!(!denied.is_allowed(), "{denied:?}");
        limiter.until_n_ready(2).await.unwrap();
        limiter.until_ready().await.unwrap();
    });
    futures::future::join_all(all).await;
}

/// A waiter for many units holds none of them meanwhile, so others get the units that are there.
#[tokio::test]
async fn a_waiter_for_shares_keeps_no_slots() {
    let (fleet, quorum) = fleet(3).await;
    let other = builder(&fleet.urls()).fleet(quorum.fleet());
    let other = other.connect().await.unwrap();
    other.voting(Duration::from_secs(5)).await.unwrap();
    let quota = || Quota::per_second(16).and(Quota::new(20, Duration::from_secs(10)));
    let limiter = quorum.rate_limiter(NAME, quota());
    assert!(limiter.check_n(16).await.unwrap().is_allowed());
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let many = tokio::spawn(limiter.until_n_ready(16));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let other = other.rate_limiter(NAME, quota());
    for n in 0..4 {
        let decision = other.check().await.unwrap();
        assert!(decision.is_allowed(), "{n} of 4: {decision:?}");
    }
    assert!(!many.is_finished());
    many.await.unwrap().unwrap();
}

/// A near master may not give units, and the majority that answers is farther away. The grace follows that majority.
#[tokio::test]
async fn the_grace_follows_the_masters_that_can_give_units() {
    let (fleet, near) = fleet(3).await;
    let (_proxies, quorum) = far::at(&fleet, &near, &[3, 90, 210]).await;
    // The longest grace is 300 ms.
    let limiter = quorum.rate_limiter(NAME, Quota::new(5, Duration::from_secs(3)));
    assert!(limiter.check().await.unwrap().is_allowed());
    fleet[1].kill9();
    fleet[1].start_again();
    let restarted = || {
        let nodes = quorum.nodes();
        matches!(nodes[1].state, quorate::NodeState::Quarantined(_))
    };
    while !restarted() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for n in 0..4 {
        let decision = limiter.check().await.unwrap();
        assert!(decision.is_allowed(), "{n} of 4: {decision:?}");
    }
}

/// One caller waits when the majority vanishes. A later caller is told at once, and the waiter soon.
#[tokio::test]
async fn a_call_in_an_outage_does_not_wait_behind_another() {
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::new(3, Duration::from_secs(10)));
    assert!(limiter.check_n(3).await.unwrap().is_allowed());
    let waiting: Vec<_> = (0..3)
        .map(|_| tokio::spawn(limiter.until_ready()))
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    fleet.iter().take(2).for_each(Server::kill9);
    while quorum.health().voting > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let machine = Stalls::watch();
    let asked = Instant::now();
    let error = limiter.until_ready().await.unwrap_err();
    assert!(matches!(error, quorate::Error::NoQuorum(_)), "{error}");
    // A node timeout of 300 ms. The rest is for a busy machine.
    assert!(
        asked.elapsed() < Duration::from_secs(1) + machine.longest() * 4,
        "{:?}",
        asked.elapsed()
    );
    let open = limiter.clone().on_outage(quorate::Outage::Allow);
    open.until_ready().await.unwrap();
    for one in waiting {
        let error = one.await.unwrap().unwrap_err();
        assert!(matches!(error, quorate::Error::NoQuorum(_)), "{error}");
    }
    // This is far less than the 10 s for which they would wait for units.
    assert!(
        asked.elapsed() < Duration::from_secs(4) + machine.longest() * 4,
        "{:?}",
        asked.elapsed()
    );
}

/// Each customer has a limiter. When their keys have expired, nothing is left on a master.
#[tokio::test]
async fn units_leave_no_counters() {
    let (fleet, quorum) = fleet_of(3, hasty).await;
    let limiter = quorum.rate_limiter(NAME, Quota::per_second(4));
    let limiter = limiter.grace(Duration::from_millis(100));
    let customers = (0..10).map(async |customer| {
        let of_one = limiter.keyed(customer.to_string());
        assert!(of_one.check_n(2).await.unwrap().is_allowed());
        of_one.until_n_ready(3).await.unwrap();
    });
    futures::future::join_all(customers).await;
    let left = |server: &Server| {
        let units = server.keys().into_iter().map(|(key, _)| key);
        let left: Vec<String> = units
            .filter(|key| key.contains("@units") || key.contains("@many"))
            .collect();
        (server.cmd(&["EXISTS", "quorate:c0"]), left)
    };
    let began = Instant::now();
    for server in fleet.iter() {
        loop {
            let (counters, keys) = left(server);
            assert_eq!(counters, redis::Value::Int(0), "{server}");
            if keys.is_empty() {
                break;
            }
            // The keys live for four times 1.1 s. The rest is for a busy machine.
            assert!(began.elapsed() < Duration::from_secs(10), "{keys:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The history for a limit per hour takes longer than the quarantine of locks, and the named wait includes it from the
/// beginning.
#[tokio::test]
async fn the_wait_for_a_history_is_told_during_the_quarantine() {
    let fleet = Fleet::mixed(3);
    let quorum = builder(&fleet.urls()).connect().await.unwrap();
    let quarantined = |nodes: &[quorate::NodeStatus]| {
        let is =
            |node: &quorate::NodeStatus| matches!(node.state, quorate::NodeState::Quarantined(_));
        nodes.iter().all(is)
    };
    while !quarantined(&quorum.nodes()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for limit in [2, 1_000] {
        let limiter = quorum.rate_limiter(NAME, Quota::per_hour(limit));
        let error = limiter.check().await.unwrap_err();
        assert!(matches!(error, quorate::Error::Quarantined(_)), "{error}");
        let left = error.retry_after().unwrap();
        assert!(left > Duration::from_secs(65 * 60), "{limit}: {left:?}");
        let said = error.to_string();
        assert!(
            said.contains("the rate limiter is starting up; try again in 1 h"),
            "{said}"
        );
    }
    let up_to = |quorum: &Quorum| quorum.nodes().iter().map(|node| node.limits_up_to).max();
    assert_eq!(up_to(&quorum), Some(Duration::ZERO));
    quorum.bootstrap_forced().await.unwrap();
    quorum.voting(Duration::from_secs(5)).await.unwrap();
    let up_to = up_to(&quorum).unwrap();
    // The client that forced the bootstrap has witnessed the quarantine of 15 s.
    let seconds = Duration::from_secs(10)..Duration::from_secs(20);
    assert!(seconds.contains(&up_to), "{up_to:?}");
}
