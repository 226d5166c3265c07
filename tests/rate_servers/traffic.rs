//! What the masters are asked.

use redis::FromRedisValue;

use super::*;

/// How many scripts these masters have run.
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

/// One after the other, and many at once.
#[tokio::test]
async fn a_decision_asks_one_master_once() {
    const CHECKS: usize = 1_000;
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::new(9_000, Duration::from_secs(10)));
    // A script that a master does not know is asked for twice.
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
    // A handshake every 5 s is one too.
    let handshakes = 3 * (1 + began.elapsed().as_secs() as usize / 4);
    println!("{asked} scripts for {CHECKS} decisions");
    assert!((CHECKS..=CHECKS + handshakes).contains(&asked), "{asked}");
}

/// Where it is known that there are none, nobody is asked.
#[tokio::test]
async fn a_flood_of_denials_asks_nobody() {
    let (fleet, quorum) = fleet(3).await;
    let limiter = quorum.rate_limiter(NAME, Quota::new(30, Duration::from_secs(10)));
    assert!(limiter.check_n(30).await.unwrap().is_allowed());
    assert!(!limiter.check().await.unwrap().is_allowed());
    let calls = || -> u64 {
        let of = |server: &Server| server.info("total_commands_processed").unwrap();
        fleet
            .iter()
            .map(|server| of(server).parse::<u64>().unwrap())
            .sum()
    };
    let (before, began) = (calls(), Instant::now());
    for _ in 0..10_000 {
        assert!(!limiter.check().await.unwrap().is_allowed());
    }
    let (more, seconds) = (calls() - before, began.elapsed().as_secs() + 1);
    // A LOOK is asked of each once a second; a handshake, and what this test asks, are commands too.
    assert!(more < 60 * seconds, "{more} commands in {seconds} s");
}
