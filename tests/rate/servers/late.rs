//! Answers that come too late: after the node timeout, or later than their units may be used.

use quorate::{Error, Outage};

use super::*;

/// A client that reaches the same masters over a longer way. All of them are met.
async fn far(near: &Quorum, proxies: &[Proxy]) -> Quorum {
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let word = near.fleet().to_owned();
    let far = builder(&urls).fleet(word).connect().await.unwrap();
    while far.health().voting < proxies.len() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    far
}

/// Waits until the limiter has the wanted units. They are given back in the background. Units that are not given back
/// count for a second at least.
async fn has_soon(limiter: &RateLimiter, wanted: u32) {
    let asked = Instant::now();
    loop {
        // Decided before the look, because a look on a slow machine may itself take long.
        let is_late = asked.elapsed() > Duration::from_millis(500);
        let left = limiter.check_n(0).await.unwrap().remaining();
        if left == wanted {
            return;
        }
        assert!(!is_late, "{left} are left");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The caller was told of an outage, so the units of the late answer are given back.
#[tokio::test]
async fn units_that_arrive_after_the_node_timeout_go_back() {
    let (fleet, near) = fleet(3).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let far = far(&near, &proxies).await;
    let quota = Quota::new(30, Duration::from_secs(10));
    let near = near.rate_limiter(NAME, quota.clone());
    proxies.iter().for_each(|proxy| proxy.hold_replies(true));
    let error = far.rate_limiter(NAME, quota).check_n(20).await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    // Two masters gave their units.
    has_soon(&near, 10).await;
    proxies.iter().for_each(Proxy::heal);
    has_soon(&near, 30).await;
}

/// Callers lose patience before the request is sent, while it is under way, and after that.
#[tokio::test]
async fn units_that_no_caller_waits_for_go_back() {
    let (fleet, near) = fleet(3).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let far = far(&near, &proxies).await;
    for proxy in &proxies {
        proxy.delay(Duration::from_millis(20));
    }
    let quota = || Quota::new(30, Duration::from_secs(10));
    let checks = (0..12_u64).map(async |n| {
        let name = format!("api {n}");
        let check = far.rate_limiter(&name, quota()).check_n(20);
        // The first caller does not wait at all, and the last one waits for the answer.
        let patience = match n {
            11 => HANG,
            _ => Duration::from_millis(n * 8),
        };
        let told = tokio::time::timeout(patience, check).await;
        let told = told.is_ok_and(|decision| decision.unwrap().is_allowed());
        // The requested units arrive, and are given back.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let left = 30 - 20 * u32::from(told);
        has_soon(&near.rate_limiter(&name, quota()), left).await;
        told
    });
    let told = futures::future::join_all(checks).await;
    println!("{told:?}");
    assert!(!told[0] && told[11], "{told:?}");
    // An answer takes 40 ms. A caller of the first few is told only if this process stood still meanwhile.
    assert!(told[1..5].iter().any(|told| !told), "{told:?}");
}

/// All round trips are longer than the longest grace. Units that arrive are given back, and the caller is told so. This
/// holds for each choice about an outage.
#[tokio::test]
async fn a_grace_below_the_round_trip_is_named_and_takes_nothing() {
    let (fleet, near) = fleet(3).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let delay = |one_way| proxies.iter().for_each(|proxy| proxy.delay(one_way));
    let one_way = Duration::from_millis(60);
    // The grace for this quota is 100 ms at most.
    let quota = Quota::per_second(30);
    let near_limiter = near.rate_limiter(NAME, quota.clone());
    let mut last = None;
    for outage in [Outage::Error, Outage::Deny, Outage::Allow] {
        // Each client has just connected. It has not measured yet how far away the masters are, so it asks them.
        delay(Duration::ZERO);
        let quorum = far(&near, &proxies).await;
        let far = quorum.rate_limiter(NAME, quota.clone()).on_outage(outage);
        delay(one_way);
        let asked = Instant::now();
        let error = far.check_n(20).await.unwrap_err();
        assert!(matches!(error, Error::TooSlow(_)), "{outage:?}: {error}");
        assert!(asked.elapsed() >= one_way * 2, "{:?}", asked.elapsed());
        let error = far.until_n_ready(20).await.unwrap_err();
        assert!(matches!(error, Error::TooSlow(_)), "{outage:?}: {error}");
        has_soon(&near_limiter, 30).await;
        last = Some((quorum, far));
    }
    let (_quorum, far) = last.unwrap();
    // The masters are nearer now, and the grace follows.
    delay(one_way / 2);
    let allowed = async || far.check_n(20).await.is_ok_and(|said| said.is_allowed());
    let asked = Instant::now();
    while !allowed().await {
        // Every attempt measures the round trips. Ten intervals are far more than it needs.
        assert!(asked.elapsed() < Duration::from_secs(10));
    }
    // A grace that was set does not follow.
    let fixed = far.grace(Duration::from_millis(50)).keyed("unused");
    let error = fixed.check_n(20).await.unwrap_err();
    assert!(matches!(error, Error::TooSlow(_)), "{error}");
}
