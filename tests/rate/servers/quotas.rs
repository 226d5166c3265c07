//! Different limits for one interval share one count: programs beside each other, and programs whose limit is changed.

use super::*;

/// Takes ten units at a time until they are denied. Returns how many it took.
async fn all_of(limiter: &RateLimiter) -> u32 {
    let mut taken = 0;
    while limiter.check_n(10).await.unwrap().is_allowed() {
        taken += 10;
    }
    taken
}

#[tokio::test]
async fn two_limits_of_an_interval_share_one_count() {
    const LONG: Duration = Duration::from_secs(10);
    let (fleet, quorum) = fleet(3).await;
    let other = builder(&fleet.urls()).connect().await.unwrap();
    other.voting(HANG).await.unwrap();
    // In one process, and in two.
    for (name, beside) in [("one", &quorum), ("two", &other)] {
        let less = quorum.rate_limiter(name, Quota::new(300, LONG));
        let more = beside.rate_limiter(name, Quota::new(600, LONG));
        let (began, slowest) = (Instant::now(), Slowest::of_server(&fleet[0]));
        assert_eq!(all_of(&less).await, 300);
        assert_eq!(more.check_n(0).await.unwrap().remaining(), 300);
        assert_eq!(all_of(&more).await, 300);
        for limit in [150, 300, 600] {
            let limiter = beside.rate_limiter(name, Quota::new(limit, LONG));
            let denied = limiter.check().await.unwrap();
            assert!(!denied.is_allowed(), "{denied:?} of {limit}");
            assert!(denied.wait() > Duration::ZERO, "{denied:?} of {limit}");
        }
        let took = began.elapsed();
        assert!(
            took < LONG,
            "{took:?}; an answer took {:?}",
            slowest.answer()
        );
        // Another interval, and a limit of few units, have counts of their own.
        let faster = quorum.rate_limiter(name, Quota::new(300, LONG / 2));
        let few = quorum.rate_limiter(name, Quota::new(10, LONG));
        for limiter in [faster, few] {
            assert!(limiter.check_n(10).await.unwrap().is_allowed());
        }
        for server in fleet.iter() {
            let keys = server.keys().into_iter().map(|(key, _)| key);
            let key = format!("quorate:@rate:10000:3:{name}");
            let keys: Vec<_> = keys.filter(|it| it.ends_with(name)).collect();
            let of_this = keys.iter().filter(|it| it.contains("@rate:10000:"));
            assert_eq!(of_this.collect::<Vec<_>>(), [&key], "{keys:?}");
        }
    }
}

/// Uses units of the first limit until the change, and then of the second. Returns when each was used.
async fn changes(limiters: [RateLimiter; 2], change: Instant, end: Instant) -> [Vec<u64>; 2] {
    let mut used = [Vec::new(), Vec::new()];
    while Instant::now() < end {
        let which = usize::from(Instant::now() >= change);
        let (now, decision) = stamped(limiters[which].check()).await;
        if decision.unwrap().is_allowed() {
            used[which].push(now);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    used
}

/// Two programs change a limit, one after the other. Returns when units were used by the first limit, and by the
/// second.
async fn changed(quorums: [&Quorum; 2], name: &str, limits: [u32; 2]) -> [Vec<u64>; 2] {
    let began = Instant::now();
    let of = |quorum: &Quorum| limits.map(|l| quorum.rate_limiter(name, Quota::new(l, PERIOD)));
    let [first, second] = quorums.map(of);
    let end = began + 5 * PERIOD;
    let (first, second) = tokio::join!(
        changes(first, began + PERIOD * 3 / 2, end),
        changes(second, began + PERIOD * 2, end)
    );
    let [mut before, mut after] = [0, 1].map(|which| [&first[which][..], &second[which]].concat());
    before.sort_unstable();
    after.sort_unstable();
    [before, after]
}

#[tokio::test]
async fn a_changed_limit_counts_the_units_of_the_one_before() {
    const LESS: u32 = 30;
    const MORE: u32 = 90;
    let (fleet, one) = fleet(3).await;
    let other = builder(&fleet.urls()).connect().await.unwrap();
    other.voting(HANG).await.unwrap();
    let (lowered, raised) = tokio::join!(
        changed([&one, &other], "lowered", [MORE, LESS]),
        changed([&one, &other], "raised", [LESS, MORE])
    );
    for ([before, after], greatest) in [(&lowered, MORE), (&raised, MORE)] {
        let mut all = [&before[..], after].concat();
        all.sort_unstable();
        println!(
            "{} and {} units, at most {} in {PERIOD:?}",
            before.len(),
            after.len(),
            most(&all, PERIOD)
        );
        assert!(most(&all, PERIOD) <= greatest as usize);
    }
    let [before, after] = lowered;
    assert!(most(&before, PERIOD) > LESS as usize, "{}", before.len());
    let last = before.last().unwrap();
    let later: Vec<u64> = after.into_iter().filter(|at| at > last).collect();
    assert!(most(&later, PERIOD) <= LESS as usize);
    // Two intervals and more are left after the change.
    assert!(later.len() >= LESS as usize, "{}", later.len());

    let [before, after] = raised;
    let earlier = before.iter().filter(|at| **at < after[0]);
    let earlier: Vec<u64> = earlier.copied().collect();
    assert!(!earlier.is_empty() && most(&earlier, PERIOD) <= LESS as usize);
    assert!(most(&after, PERIOD) > LESS as usize, "{}", after.len());
}
