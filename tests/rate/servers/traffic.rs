//! The number of requests to the masters.

use redis::FromRedisValue;

use super::*;

/// The number of scripts that these masters have run.
fn scripts(fleet: &Fleet) -> usize {
    let of = |server: &Server| -> usize {
        let stats = String::from_redis_value(server.cmd(&["INFO", "commandstats"])).unwrap();
        let line = stats
            .lines()
            .find_map(|l| l.strip_prefix("cmdstat_evalsha:calls="));
        let calls = line.and_then(|line| line.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    };
    fleet.iter().map(of).sum()
}

/// Checks one after the other, and many at once.
#[tokio::test]
async fn a_decision_asks_one_master_once() {
    const CHECKS: usize = 1_000;
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::new(9_000, Duration::from_secs(10)));
    // The longest grace. An answer that comes later makes the limiter ask again.
    let limiter = limiter.grace(Duration::from_secs(1));
    // A script that a master does not know is sent twice, so this loads it.
    assert!(limiter.check_n(9).await.unwrap().is_allowed());
    let (before, began) = (scripts(&fleet), Instant::now());
    for _ in 0..CHECKS / 2 {
        assert!(limiter.check().await.unwrap().is_allowed());
    }
    let many = (0..CHECKS / 2).map(|_| limiter.check());
    for decision in futures::future::join_all(many).await {
        assert!(decision.unwrap().is_allowed());
    }
    let asked = scripts(&fleet) - before;
    // A handshake, which comes every 5 s, is a script too.
    let handshakes = 3 * (1 + began.elapsed().as_secs() as usize / 4);
    println!("{asked} scripts for {CHECKS} decisions");
    assert!((CHECKS..=CHECKS + handshakes).contains(&asked), "{asked}");
}

/// While the client knows that there are no units, it hardly asks the masters. This holds for shares, for slots, and
/// for one of them while the other is used up.
#[tokio::test]
async fn a_flood_of_denials_asks_seldom() {
    let ten = Duration::from_secs(10);
    let both = Quota::new(20, ten).and(Quota::per_second(16));
    let slots_first = Quota::new(16, ten).and(Quota::new(100, ten / 2));
    // The bound: a LOOK to each master once a second, or four looks at all slots. Handshakes and the requests of this
    // test are commands too.
    for (quota, units, most) in [
        (Quota::new(30, ten), &[30][..], 60),
        (Quota::new(2, ten), &[2], 100),
        (both, &[16, 4], 100),
        (slots_first, &[16], 100),
    ] {
        let (fleet, quorum) = fleet(3).await;
        let limiter = quorum.rate_limiter(NAME, quota);
        for (n, units) in units.iter().enumerate() {
            if n > 0 {
                // The slots of one second are free again.
                tokio::time::sleep(Duration::from_millis(1_500)).await;
            }
            assert!(limiter.check_n(*units).await.unwrap().is_allowed());
        }
        let denied = limiter.check().await.unwrap();
        assert!(!denied.is_allowed());
        assert!(denied.wait() > ten * 8 / 10, "{denied:?}");
        let calls = || -> u64 {
            let of = |server: &Server| server.info("total_commands_processed").unwrap();
            let all = fleet
                .iter()
                .map(|server| of(server).parse::<u64>().unwrap());
            all.sum()
        };
        let (before, began) = (calls(), Instant::now());
        for _ in 0..10_000 {
            assert!(!limiter.check().await.unwrap().is_allowed());
        }
        let (more, seconds) = (calls() - before, began.elapsed().as_secs() + 1);
        assert!(more < most * seconds, "{more} commands in {seconds} s");
    }
}
