//! Masters that are far away. Their units are used within the longest grace. Beyond it the other masters serve alone.

use super::*;

/// Puts the masters at these distances, in ms of a round trip.
pub(super) async fn at(fleet: &Fleet, near: &Quorum, round_trips: &[u64]) -> (Vec<Proxy>, Quorum) {
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    for (proxy, ms) in proxies.iter().zip(round_trips) {
        proxy.delay(Duration::from_micros(ms * 500));
    }
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let word = near.fleet().to_owned();
    let quorum = builder(&urls).fleet(word);
    let quorum = quorum.node_timeout(Duration::from_secs(1));
    let quorum = quorum.connect().await.unwrap();
    while quorum.health().voting < proxies.len() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (proxies, quorum)
}

/// A payout service asks twice as often as the limit allows. Each time it gets a yes or a no, and a no comes with a
/// wait.
#[tokio::test]
async fn one_slow_master_of_three_never_makes_a_check_fail() {
    let (fleet, near) = fleet(3).await;
    for round_trip in [60, 90, 150] {
        let (_proxies, quorum) = at(&fleet, &near, &[1, 1, round_trip]).await;
        for limit in [6, 30] {
            let name = format!("{limit} at {round_trip}");
            let limiter = quorum.rate_limiter(name, Quota::per_second(limit));
            let mut allowed = 0;
            for n in 0..limit * 4 {
                let asked = Instant::now();
                let decision = limiter.check().await.unwrap_or_else(|error| {
                    panic!("{limit} at {round_trip} ms, check {n}: {error}")
                });
                allowed += u32::from(decision.is_allowed());
                if !decision.is_allowed() {
                    // A unit counts for 1,014 ms, a grace of 100 ms and a bucket of 39 ms.
                    assert!(
                        decision.wait() < Duration::from_millis(1_200),
                        "{decision:?}"
                    );
                }
                let pause = Duration::from_secs(1) / (2 * limit);
                tokio::time::sleep(pause.saturating_sub(asked.elapsed())).await;
            }
            // In two seconds, at least twice the shares of the near masters.
            println!(
                "{limit} in 1 s at {round_trip} ms: {allowed} of {} were allowed",
                limit * 4
            );
            assert!(allowed >= limit, "{allowed} of {limit} at {round_trip} ms");
        }
    }
}

/// Clients in three regions use the whole limit, not only the shares that are near.
///
/// The longest grace for 2 s is 200 ms, so an answer that is a moment late is not too old.
#[tokio::test]
async fn a_fleet_over_three_regions_uses_its_whole_limit() {
    const TWO_SECONDS: Duration = Duration::from_secs(2);
    let (fleet, near) = fleet(3).await;
    let (_proxies, quorum) = at(&fleet, &near, &[1, 40, 90]).await;
    let limiter = quorum.rate_limiter(NAME, Quota::new(198, TWO_SECONDS));
    let began = Instant::now();
    let tasks = (0..32).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut used = Vec::new();
            while began.elapsed() < Duration::from_secs(8) {
                limiter.until_ready().await.unwrap();
                used.push(u64::try_from(began.elapsed().as_micros()).unwrap());
            }
            used
        })
    });
    let used = futures::future::join_all(tasks.collect::<Vec<_>>()).await;
    let mut used: Vec<u64> = used.into_iter().flat_map(Result::unwrap).collect();
    used.sort_unstable();
    let late = used.iter().filter(|at| **at > 2_000_000).count();
    println!(
        "{late} units in 6 s, at most {} in 2 s",
        most(&used, TWO_SECONDS)
    );
    assert!(most(&used, TWO_SECONDS) <= 198);
    // All units are used three times in that time. Two shares of three would be 396, and at most
    // one unit more for each task.
    assert!(late > 480, "{late}");
}
