//! A limit that was lowered: waiters are quiet until they fit, and then enter (protocol §6).

use std::time::Duration;

use crate::support::{Fleet, Kind, Server};
use quorate::{Builder, Quorum};
use tokio::time::{sleep, timeout};

const WAITERS: usize = 5;

/// The number of scripts that were called, and of messages that scripts sent.
fn calls(server: &Server) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.conn())
        .unwrap();
    let wanted = ["cmdstat_evalsha:", "cmdstat_spublish:"];
    let lines = info
        .lines()
        .filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    let count = |line: &str| {
        let calls = line.split_once("calls=")?.1.split(',').next()?;
        calls.parse::<u64>().ok()
    };
    lines.filter_map(count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_a_shrunk_limit_stay_quiet_and_enter_when_they_fit() {
    let fleet = Fleet::start(3, Kind::Redis);
    let builder = || -> Builder { Quorum::builder().nodes(fleet.urls()) };
    let holder = builder().connect().await.unwrap();
    holder.bootstrap_forced().await.unwrap();
    let pool = holder.semaphore("pool", 20).ttl(Duration::from_secs(10));
    let mut leases = Vec::new();
    for _ in 0..20 {
        leases.push(pool.acquire().await.unwrap());
    }
    pool.resize(8).await.unwrap();
    // Eight slots are free, and twelve above the limit are held, so nobody fits.
    leases.retain(|lease| lease.slot().unwrap() >= 8);
    assert_eq!(leases.len(), 12);
    sleep(Duration::from_millis(300)).await;
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        let quorum = builder().connect().await.unwrap();
        let pool = quorum.semaphore("pool", 8).ttl(Duration::from_secs(10));
        waiters.push(tokio::spawn(async move {
            let lease = pool.acquire().await.unwrap();
            (lease, quorum)
        }));
    }
    sleep(Duration::from_millis(500)).await;
    let all = || fleet.iter().map(calls).sum::<u64>();
    let before = all();
    sleep(Duration::from_secs(3)).await;
    let asked = all() - before;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    // Each waiter looks twice a second, on three nodes.
    assert!(asked < 600, "{asked} calls in 3 s");
    // Seven holders above the limit and one below it are eight.
    leases.truncate(7);
    let first = async {
        while !waiters.iter().any(|waiter| waiter.is_finished()) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    // Six looks of each waiter.
    let in_time = Duration::from_secs(3);
    timeout(in_time, first).await.expect("one fits in");
    leases.clear();
    for waiter in waiters {
        let entered = timeout(in_time, waiter).await.expect("all fit in").unwrap();
        assert!(entered.0.slot().unwrap() < 8);
    }
}
