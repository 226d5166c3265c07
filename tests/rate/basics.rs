//! Rate limits on masters in this process, as callers see them.

use std::time::Duration;

use quorate::{Error, MemoryNode, Outage, Quorum, Quota};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_limit_of_ten_a_minute_allows_ten_units() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("supplier", Quota::per_minute(10));
    for left in (0..10).rev() {
        let decision = limiter.check().await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!((decision.remaining(), decision.limit()), (left, 10));
    }
    let denied = limiter.check().await.unwrap();
    assert!(!denied.is_allowed());
    // For a minute, A is 60.669 s, a bucket is 2.299 s, and the grace is 500 ms.
    assert!(
        denied.wait() > 60 * SECOND && denied.wait() < 64 * SECOND,
        "{:?}",
        denied.wait()
    );
    sleep(denied.wait()).await;
    assert!(limiter.check().await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn another_limit_of_the_same_interval_counts_the_same_units() {
    let quorum = Quorum::in_memory(3);
    let of = |limit| quorum.rate_limiter("supplier", Quota::per_minute(limit));
    assert!(of(30).check_n(30).await.unwrap().is_allowed());
    for (limit, left) in [(30, 0), (45, 15), (60, 30)] {
        let left_of_it = of(limit).check_n(0).await.unwrap().remaining();
        assert_eq!(left_of_it, left, "{limit}");
    }
    assert!(of(60).check_n(30).await.unwrap().is_allowed());
    for limit in [30, 45, 60] {
        let denied = of(limit).check().await.unwrap();
        assert!(
            !denied.is_allowed() && denied.wait() > 60 * SECOND,
            "{limit}: {denied:?}"
        );
    }
    // Another interval has a count of its own, beside others too.
    let fast = quorum.rate_limiter("supplier", Quota::per_second(30));
    assert!(fast.check_n(30).await.unwrap().is_allowed());
    let both = |limit| Quota::per_minute(limit).and(Quota::new(30, 2 * SECOND));
    let full = quorum.rate_limiter("supplier", both(60));
    assert!(!full.check().await.unwrap().is_allowed());
    let more = quorum.rate_limiter("supplier", both(90));
    assert!(more.check_n(30).await.unwrap().is_allowed());
    let denied = of(90).check().await.unwrap();
    assert!(!denied.is_allowed(), "{denied:?}");
}

/// The units of a limit of few units are slots. They are not counted together with shares, nor with the slots of another
/// limit.
#[tokio::test(start_paused = true)]
async fn a_limit_of_few_units_counts_apart_from_all_others() {
    let quorum = Quorum::in_memory(3);
    let of = |limit| quorum.rate_limiter("supplier", Quota::per_minute(limit));
    for limit in [12, 16, 17] {
        assert!(of(limit).check_n(limit).await.unwrap().is_allowed());
    }
    assert_eq!(of(34).check_n(0).await.unwrap().remaining(), 17);
}

#[tokio::test(start_paused = true)]
async fn units_are_gathered_from_several_nodes_all_or_none() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("supplier", Quota::per_minute(30));
    assert!(limiter.check_n(25).await.unwrap().is_allowed());
    let denied = limiter.check_n(6).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.remaining()), (false, 5));
    assert!(limiter.check_n(5).await.unwrap().is_allowed());
    assert!(!limiter.check().await.unwrap().is_allowed());
    let error = limiter.check_n(31).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_check_of_zero_units_takes_nothing() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("supplier", Quota::per_minute(30));
    let other = Quorum::clone(&quorum).rate_limiter("supplier", Quota::per_minute(30));
    assert_eq!(limiter.check_n(0).await.unwrap().remaining(), 30);
    let _ = other.check_n(12).await.unwrap();
    let seen = limiter.check_n(0).await.unwrap();
    assert_eq!((seen.is_allowed(), seen.remaining()), (true, 18));
}

#[tokio::test(start_paused = true)]
async fn several_intervals_hold_together() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("api", Quota::per_minute(12).and(Quota::per_second(6)));
    for _ in 0..6 {
        assert!(limiter.check().await.unwrap().is_allowed());
    }
    let denied = limiter.check().await.unwrap();
    assert!(
        !denied.is_allowed() && denied.wait() < 2 * SECOND,
        "{denied:?}"
    );
    sleep(2 * SECOND).await;
    assert!(limiter.check_n(6).await.unwrap().is_allowed());
    sleep(2 * SECOND).await;
    let denied = limiter.check().await.unwrap();
    assert!(denied.wait() > 50 * SECOND, "{denied:?}");
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order_and_not_overtaken() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("api", Quota::per_second(3));
    assert!(limiter.check_n(3).await.unwrap().is_allowed());
    let (done, mut served) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..9 {
        let (waits, done) = (limiter.until_ready(), done.clone());
        tokio::spawn(async move {
            waits.await.unwrap();
            done.send((number, Instant::now())).unwrap();
        });
        tokio::task::yield_now().await;
    }
    sleep(Duration::from_millis(5)).await;
    assert!(!limiter.check().await.unwrap().is_allowed(), "it overtook");
    let mut times = Vec::new();
    for number in 0..9 {
        let (who, at) = served.recv().await.unwrap();
        assert_eq!(who, number);
        times.push(at);
    }
    for three in times.windows(4) {
        assert!(three[3] - three[0] >= SECOND, "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_lets_the_next_one_go() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("api", Quota::per_minute(30));
    assert!(limiter.check_n(25).await.unwrap().is_allowed());
    let many = tokio::spawn(limiter.until_n_ready(20));
    sleep(Duration::from_millis(10)).await;
    let few = tokio::spawn(limiter.until_n_ready(2));
    sleep(Duration::from_millis(10)).await;
    assert!(!few.is_finished());
    many.abort();
    // Five units are free. The next one is free after a minute.
    timeout(Duration::from_millis(50), few)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_on_three_masters_allows_one_unit() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("report", Quota::per_minute(1));
    let allowed = limiter.check().await.unwrap();
    assert_eq!((allowed.is_allowed(), allowed.remaining()), (true, 0));
    let denied = limiter.check().await.unwrap();
    assert!(!denied.is_allowed());
    // A unit of a minute counts for 60.7 s and its grace of up to 0.5 s (protocol §7). A wait may notice it a few
    // seconds later.
    assert!(
        denied.wait() > 59 * SECOND && denied.wait() < 64 * SECOND,
        "{denied:?}"
    );
    sleep(denied.wait() + Duration::from_millis(1)).await;
    assert!(limiter.check().await.unwrap().is_allowed());
    let began = Instant::now();
    limiter.until_ready().await.unwrap();
    // The same bound as above.
    assert!(
        began.elapsed() > 60 * SECOND && began.elapsed() < 65 * SECOND,
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_two_on_three_masters_allows_two_units() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("report", Quota::per_minute(2).and(Quota::per_hour(9)));
    let first = limiter.check().await.unwrap();
    assert_eq!((first.is_allowed(), first.remaining()), (true, 1));
    assert!(limiter.check().await.unwrap().is_allowed());
    assert!(!limiter.check().await.unwrap().is_allowed());
    assert!(!limiter.check_n(2).await.unwrap().is_allowed());
    let began = Instant::now();
    limiter.until_n_ready(2).await.unwrap();
    // A unit of a minute counts for 60.7 s and its grace, and two units must be free.
    assert!(
        began.elapsed() > 60 * SECOND && began.elapsed() < 66 * SECOND,
        "{:?}",
        began.elapsed()
    );
    assert_eq!(limiter.check_n(0).await.unwrap().remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn checks_within_a_block_are_decided_locally() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum
        .rate_limiter("api", Quota::per_minute(3000))
        .block(100);
    assert_eq!(limiter.check().await.unwrap().remaining(), 99);
    for left in (0..99).rev() {
        assert_eq!(limiter.check().await.unwrap().remaining(), left);
    }
    let _ = limiter.check().await.unwrap();
    let other = quorum.rate_limiter("api", Quota::per_minute(3000));
    assert_eq!(other.check_n(0).await.unwrap().remaining(), 2800);
    // The rest of a block that is too old is given back.
    sleep(7 * SECOND).await;
    assert_eq!(limiter.check().await.unwrap().remaining(), 99);
    sleep(Duration::from_millis(5)).await;
    assert_eq!(other.check_n(0).await.unwrap().remaining(), 2800 + 99 - 100);
    drop(limiter);
    sleep(Duration::from_millis(5)).await;
    assert_eq!(other.check_n(0).await.unwrap().remaining(), 2898);
}

/// The call is dropped before it asks, while it asks, and when the answer is there but was not polled. (A drop while
/// the request is under way: `servers/late`.) A caller that was told has used the units, and in all other cases nobody
/// has.
#[tokio::test(start_paused = true)]
async fn units_of_a_dropped_check_go_back() {
    let quorum = Quorum::in_memory(3);
    quorum.voting(SECOND).await.unwrap();
    let mut told_after = Vec::new();
    for turns in 0..=10 {
        // A fresh name for each case, so that no other case gives back what this one leaks.
        let limiter = quorum.rate_limiter(format!("api {turns}"), Quota::per_minute(30));
        let mut check = Box::pin(limiter.check_n(20));
        let mut told = false;
        for turn in 0..turns {
            match turn % 2 {
                0 => told |= futures::poll!(&mut check).is_ready(),
                // The engine gets one turn.
                _ => tokio::task::yield_now().await,
            }
            if told {
                break;
            }
        }
        drop(check);
        sleep(Duration::from_millis(50)).await;
        let left = limiter.check_n(0).await.unwrap().remaining();
        assert_eq!(left, 30 - 20 * u32::from(told), "{turns} turns");
        told_after.push(told);
    }
    println!("{told_after:?}");
    // The answer does not come before these turns, but it comes after them.
    assert!(!told_after[2] && told_after[10]);
}

#[tokio::test(start_paused = true)]
async fn work_uses_one_unit_and_none_if_dropped_before_its_turn() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("api", Quota::per_minute(3));
    let left = async || limiter.check_n(0).await.unwrap().remaining();
    assert_eq!(limiter.run(async { 7 }).await.unwrap(), 7);
    assert_eq!(left().await, 2);
    assert!(limiter.check_n(2).await.unwrap().is_allowed());
    let began = Instant::now();
    let early = async || panic!("it was not its turn");
    assert!(
        timeout(SECOND, limiter.run::<_, ()>(early()))
            .await
            .is_err()
    );
    let next = limiter.run(async move { began.elapsed() });
    let waited = next.await.unwrap();
    // A unit of a minute counts for 60.7 s and its grace.
    assert!(waited > 60 * SECOND && waited < 64 * SECOND, "{waited:?}");
    sleep(4 * SECOND).await;
    assert_eq!(left().await, 2, "those of the first minute, but for one");
}

#[tokio::test(start_paused = true)]
async fn each_key_is_counted_separately() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("api", Quota::per_minute(3));
    for key in ["a", "b"] {
        for _ in 0..3 {
            assert!(limiter.keyed(key).check().await.unwrap().is_allowed());
        }
        assert!(!limiter.keyed(key).check().await.unwrap().is_allowed());
    }
    assert!(limiter.check().await.unwrap().is_allowed());
}

#[tokio::test]
async fn without_masters_the_outage_setting_decides() {
    let quorum = quorate::Quorum::builder()
        .nodes([
            "redis://127.0.0.1:1",
            "redis://127.0.0.1:2",
            "redis://127.0.0.1:3",
        ])
        .connect_lazy()
        .unwrap();
    for (limit, name) in [(30, "many"), (2, "few")] {
        let limiter = quorum.rate_limiter(name, Quota::per_minute(limit));
        let error = limiter.check().await.unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error}");
        println!("{error}");
        assert!(
            error.to_string().contains(name) && !error.to_string().contains(":60000:"),
            "{error}"
        );
        assert!(limiter.until_ready().await.is_err());
        let denied = limiter
            .clone()
            .on_outage(Outage::Deny)
            .check()
            .await
            .unwrap();
        // The shortest pause that an error names.
        assert!(!denied.is_allowed() && denied.wait() >= Duration::from_millis(50));
        let waits = limiter.clone().on_outage(Outage::Deny).until_ready();
        assert!(timeout(SECOND, waits).await.is_err());
        let allowed = limiter.clone().on_outage(Outage::Allow);
        assert!(allowed.check().await.unwrap().is_allowed());
        allowed.until_ready().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn bad_settings_are_named() {
    let quorum = Quorum::in_memory(3);
    let minute = || Quota::per_minute(30);
    for limiter in [
        quorum.rate_limiter("", minute()),
        quorum.rate_limiter("a", Quota::per_minute(0)),
        quorum.rate_limiter("a", minute()).grace(Duration::ZERO),
        quorum.rate_limiter("a", minute()).grace(7 * SECOND),
        quorum.rate_limiter("a", minute()).block(0),
        quorum.rate_limiter("a", minute()).block(31),
        quorum.rate_limiter("a", Quota::per_minute(2)).block(1),
    ] {
        let error = limiter.validate().unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        assert!(limiter.check().await.is_err());
        assert!(limiter.until_ready().await.is_err());
        assert!(limiter.run(async {}).await.is_err());
    }
}

/// The demand is queued when the masters are met. By then its caller is gone.
#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_before_the_masters_are_met_blocks_no_other() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("api", Quota::per_minute(30));
    for _ in 0..3 {
        let mut waits = Box::pin(limiter.until_n_ready(30));
        assert!(futures::poll!(&mut waits).is_pending());
    }
    let first = limiter.check_n(30).await.unwrap();
    assert!(first.is_allowed(), "{first:?}");
}

/// Thousands of callers lose patience at once, behind one that goes on waiting.
#[tokio::test(start_paused = true)]
async fn thousands_of_waiters_that_give_up_leave_nothing_behind() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("api", Quota::per_minute(30));
    assert!(limiter.check_n(30).await.unwrap().is_allowed());
    let first = tokio::spawn(limiter.until_ready());
    sleep(Duration::from_millis(5)).await;
    let many = (0..10_000).map(|_| timeout(SECOND, limiter.until_ready()));
    let ended = futures::future::join_all(many).await;
    assert!(ended.iter().all(Result::is_err));
    first.await.unwrap().unwrap();
    assert!(limiter.check_n(29).await.unwrap().is_allowed());
}

/// A restarted master gives units again when it has been watched for long enough. No other event happens at that time.
#[tokio::test(start_paused = true)]
async fn a_waiter_gets_units_of_a_master_once_its_history_is_whole() {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let builder = Quorum::builder().nodes(&nodes);
    let builder = builder.max_ttl(SECOND).restart_margin(SECOND / 5);
    let quorum = builder.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    // Its history is 4.444 s, and a unit counts for 4.047 s.
    let limiter = quorum.rate_limiter("supplier", Quota::new(30, 4 * SECOND));
    sleep(5 * SECOND).await;
    nodes[0].restart_empty();
    let restarted = Instant::now();
    sleep(3 * SECOND).await;
    let mut given = 0;
    while limiter.check().await.unwrap().is_allowed() {
        given += 1;
    }
    assert_eq!(given, 20);
    limiter.until_ready().await.unwrap();
    let after = restarted.elapsed();
    assert!(after > SECOND * 44 / 10 && after < 5 * SECOND, "{after:?}");
}

/// The rest of a block is not given to callers after the end.
#[tokio::test(start_paused = true)]
async fn a_block_ends_with_its_quorum() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum
        .rate_limiter("block", Quota::per_minute(600))
        .block(50);
    assert!(limiter.check().await.unwrap().is_allowed());
    quorum.shutdown().await;
    let closed = limiter.check().await;
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    let closed = limiter.until_ready().await;
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
}

/// All answers are late once, as if this process had stood still. No caller is told that the masters are too slow.
#[tokio::test(start_paused = true)]
async fn one_late_round_is_asked_again() {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    quorum.voting(60 * SECOND).await.unwrap();
    let limiter = quorum.rate_limiter("api", Quota::per_second(30));
    assert!(limiter.check_n(3).await.unwrap().is_allowed());
    sleep(2 * SECOND).await;
    // The grace is 50 ms.
    nodes
        .iter()
        .for_each(|node| node.delay(Duration::from_millis(70)));
    let soon = async {
        sleep(Duration::from_millis(20)).await;
        nodes.iter().for_each(|node| node.delay(Duration::ZERO));
    };
    let waiters = (0..3).map(|_| limiter.until_n_ready(5));
    let (check, waiters, ()) = tokio::join!(
        limiter.check_n(15),
        futures::future::join_all(waiters),
        soon
    );
    assert!(check.unwrap().is_allowed());
    for ready in waiters {
        ready.unwrap();
    }
}

// ---- headers ---------------------------------------------------------------------------------

/// The headers for a client: limit, units that are left, and seconds until they are all there.
fn told(decision: &quorate::Decision) -> (u32, u32, u64) {
    let headers = decision.headers();
    (headers.limit, headers.remaining, headers.reset)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_the_reset_of_an_allowed_request_is_allowed() {
    let ms = Duration::from_millis;
    for (limit, interval, least, most) in [
        (5, 2 * SECOND, 3, 3),
        (60, 5 * SECOND, 6, 6),
        (60, 60 * SECOND, 62, 66),
        (100, 3_600 * SECOND, 3_670, 3_920),
        (5, ms(100), 1, 1),
        (40, ms(100), 1, 1),
    ] {
        let quorum = Quorum::in_memory(3);
        let limiter = quorum.rate_limiter("api", Quota::new(limit, interval));
        let last = limiter.check_n(limit).await.unwrap();
        let (told_limit, left, reset) = told(&last);
        assert_eq!((told_limit, left), (limit, 0));
        assert!(
            (least..=most).contains(&reset),
            "{limit} {interval:?}: {reset}"
        );
        let denied = limiter.check().await.unwrap();
        assert!(!denied.is_allowed());
        // At most two buckets longer than the wait, and up to a second more because of rounding.
        let wait = denied.wait();
        let longest = wait + interval / 15 + SECOND;
        assert!(wait <= SECOND * reset as u32, "{wait:?} {reset}");
        assert!(SECOND * reset as u32 <= longest, "{wait:?} {reset}");
        sleep(SECOND * reset as u32).await;
        let again = limiter.check().await.unwrap();
        assert!(again.is_allowed(), "{limit} {interval:?}: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_headers_are_of_the_interval_that_binds() {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let quota = Quota::per_minute(60).and(Quota::per_second(50));
    let connect = || Quorum::builder().nodes(&nodes).connect();
    let (quorum, other) = (connect().await.unwrap(), connect().await.unwrap());
    other.voting(60 * SECOND).await.unwrap();
    let limiter = quorum.rate_limiter("api", quota.clone());
    let of_the_second = limiter.check_n(48).await.unwrap();
    assert_eq!(told(&of_the_second), (50, 2, 2));
    let denied = limiter.check_n(3).await.unwrap();
    assert_eq!((told(&denied).0, told(&denied).2), (50, 2));
    sleep(2 * SECOND).await;
    let (limit, left, reset) = told(&limiter.check().await.unwrap());
    assert_eq!((limit, left), (60, 11));
    assert!((62..=66).contains(&reset), "{reset}");
    // Another process learns it with its first unit.
    let other = other.rate_limiter("api", quota);
    assert_eq!(told(&other.check().await.unwrap()).0, 60);
    assert!(limiter.check_n(10).await.unwrap().is_allowed());
    let denied = limiter.check().await.unwrap();
    assert_eq!((told(&denied).0, told(&denied).1), (60, 0));
    sleep(SECOND * reset as u32).await;
    assert!(limiter.check().await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn the_headers_of_slots_and_shares_are_of_one_interval() {
    let quorum = Quorum::in_memory(3);
    let quota = Quota::per_minute(30).and(Quota::per_second(5));
    let limiter = quorum.rate_limiter("api", quota);
    for _ in 0..5 {
        assert_eq!(told(&limiter.check_n(4).await.unwrap()), (5, 1, 2));
        sleep(2 * SECOND).await;
    }
    let (limit, left, reset) = told(&limiter.check_n(5).await.unwrap());
    assert_eq!((limit, left, reset), (5, 0, 2), "the next second is nearer");
    sleep(2 * SECOND).await;
    let (limit, left, reset) = told(&limiter.check_n(3).await.unwrap());
    assert_eq!((limit, left), (30, 2));
    assert!(reset >= 62, "{reset}");
}

#[tokio::test(start_paused = true)]
async fn the_headers_of_a_block_are_of_the_interval_that_bound_when_it_came() {
    let quorum = Quorum::in_memory(3);
    let quota = Quota::per_minute(60).and(Quota::per_second(50));
    let limiter = quorum.rate_limiter("api", quota).block(10);
    for left in (0..10).rev() {
        assert_eq!(told(&limiter.check().await.unwrap()), (50, left, 2));
    }
    assert!(limiter.check_n(38).await.unwrap().is_allowed());
    sleep(2 * SECOND).await;
    let (limit, left, reset) = told(&limiter.check().await.unwrap());
    assert_eq!((limit, left), (60, 9));
    assert!((62..=66 + 6).contains(&reset), "{reset}");
}

#[tokio::test(start_paused = true)]
async fn a_look_at_an_unused_limit_has_nothing_to_reset() {
    let quorum = Quorum::in_memory(3);
    for limit in [5, 60] {
        let limiter = quorum.rate_limiter("api", Quota::per_minute(limit));
        assert_eq!(told(&limiter.check_n(0).await.unwrap()), (limit, limit, 0));
    }
}

/// Clients of a fleet with a name may know the masters by other addresses, so no order of them says which master has
/// the units that are left over.
#[tokio::test(start_paused = true)]
async fn a_fleet_with_a_name_says_why_a_limit_is_not_whole() {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let quorum = Quorum::builder().nodes(&nodes).fleet("shop");
    let quorum = quorum.connect().await.unwrap();
    let limiter = quorum.rate_limiter("api", Quota::per_minute(100));
    let error = limiter.check_n(100).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("(99 of 100 in 60 s on 3 masters)"), "{text}");
    assert!(text.contains("choose a multiple of 3"), "{text}");
    let all = limiter.check_n(99).await.unwrap();
    assert!(all.is_allowed());
    assert_eq!((all.limit(), told(&all).0), (99, 99));
    // A demand that no fleet could grant has no such advice.
    let whole = quorum.rate_limiter("api", Quota::per_minute(99));
    let text = whole.check_n(100).await.unwrap_err().to_string();
    assert!(!text.contains("multiple"), "{text}");
}
