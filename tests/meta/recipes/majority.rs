//! The recipe of `clocks` on several masters. Each master counts its holders, and a client that a majority counts is a
//! holder.
//!
//! `RedlockSemaphore` of the npm package redis-semaphore does this (<https://github.com/swarthy/redis-semaphore>). The
//! documentation of the .NET package DistributedLock says why that package offers nothing like it:
//! <https://github.com/madelson/DistributedLock/blob/master/docs/DistributedLock.Redis.md>

use super::*;

/// Returns true if this master counts `id` among its holders now.
fn vote(conn: &mut Connection, id: usize, limit: usize) -> bool {
    let holders: usize = ask(conn, &["ZCARD", "holders"]);
    if holders < limit {
        let _: () = ask(conn, &["ZADD", "holders", "0", &id.to_string()]);
    }
    holders < limit
}

/// All clients ask all masters, and their requests arrive in an order that real requests could have. Returns the number
/// of holders.
fn holders(n: usize, limit: usize, clients: usize) -> usize {
    let fleet = Fleet::start(n, Kind::Redis);
    let mut votes = vec![0; clients];
    for (node, server) in fleet.iter().enumerate() {
        let mut conn = server.conn();
        for turn in 0..clients {
            let id = (turn + node * limit) % clients;
            votes[id] += usize::from(vote(&mut conn, id, limit));
        }
        assert_eq!(ask::<usize>(&mut conn, &["ZCARD", "holders"]), limit);
    }
    votes.iter().filter(|votes| **votes > n / 2).count()
}

#[test]
fn masters_that_each_count_holders_admit_too_many() {
    for (n, limit, admitted) in [(3, 2, 3), (3, 10, 15), (5, 10, 16), (7, 10, 17)] {
        let quorum = n / 2 + 1;
        assert_eq!(admitted, n * limit / quorum);
        assert_eq!(
            holders(n, limit, admitted),
            admitted,
            "{limit} on {n} masters"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorate_admits_exactly_the_limit() {
    const CLIENTS: usize = 15;
    let fleet = Fleet::start(3, Kind::Redis);
    let mut asks = Vec::new();
    for _ in 0..CLIENTS {
        let quorum = Quorum::builder()
            .nodes(fleet.urls())
            .connect()
            .await
            .unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let semaphore = quorum.semaphore("a", 10);
        asks.push(semaphore.wait_timeout(Duration::from_secs(1)));
    }
    let asks = asks.iter().map(Semaphore::acquire).map(tokio::spawn);
    let mut held = Vec::new();
    for ask in asks.collect::<Vec<_>>() {
        held.extend(ask.await.unwrap().ok());
    }
    let mut slots: Vec<u32> = held.iter().filter_map(Lease::slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..10).collect::<Vec<_>>());
}
