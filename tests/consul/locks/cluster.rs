//! A cluster of three members, whose leader dies. The client asks a follower, just as it usually asks the agent of its
//! own machine.

use super::*;
use crate::support::{Cluster, HANG};
use quorate::Error;

#[tokio::test]
async fn leases_and_waiters_survive_an_election_and_a_lost_leader_is_named() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader();
    let [asked, other] = [1, 2].map(|n| (leader + n) % 3);
    let consul = Consul::builder()
        .url(cluster[asked].url())
        .shutdown_timeout(ms(500))
        .connect()
        .await
        .unwrap();
    let held = consul.mutex("m").lock().await.unwrap();
    let permit = consul.semaphore("s", 1).acquire().await.unwrap();
    let waits = [
        tokio::spawn(consul.mutex("m").lock()),
        tokio::spawn(consul.semaphore("s", 1).acquire()),
    ];
    tokio::time::sleep(ms(300)).await;

    cluster[leader].kill9();
    let killed = Instant::now();
    // This is before the ttl of 10 s is over.
    until("another leader renews it", ms(9_000), async || {
        held.extend().await.is_ok()
    })
    .await;
    println!(
        "renewed {:?} after the death of the leader",
        killed.elapsed()
    );
    assert!(held.is_valid() && permit.is_valid());
    assert!(waits.iter().all(|waits| !waits.is_finished()));
    let mut next = Vec::new();
    for (held, waits) in [held, permit].into_iter().zip(waits) {
        let token = held.token();
        held.release().await.unwrap();
        // Three times the longest rest after a query that failed, 5 s.
        let served = tokio::time::timeout(ms(3 * 5_000), waits).await;
        let served = served.unwrap().unwrap().unwrap();
        assert!(served.token() > token);
        next.push(served);
    }

    cluster[other].kill9();
    until("it is said that nobody leads", HANG, async || {
        let error = consul.mutex("another").lock().await.unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error}");
        println!("{error}");
        error.to_string().contains("No cluster leader")
    })
    .await;
    drop(next);
    consul.shutdown().await;
}
