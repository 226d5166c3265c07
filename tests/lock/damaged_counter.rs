//! One node's counter for a name is damaged and far too great. The name can still be used on the other two nodes, and
//! their tokens stay far below that counter.

use std::time::Duration;

use crate::support::{Fleet, Kind};
use quorate::Quorum;

/// Takes six locks one after the other while one node's counter has this value.
async fn locks_beside(damaged: &str) {
    for kind in [Kind::Redis, Kind::Valkey] {
        let fleet = Fleet::start(3, kind);
        let quorum = Quorum::builder()
            .nodes(fleet.urls())
            .connect()
            .await
            .unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let mutex = quorum
            .mutex("a")
            .ttl(Duration::from_secs(5))
            .wait_timeout(Duration::from_secs(3));
        let first = mutex.lock().await.unwrap();
        let mut last = first.token().as_u64();
        first.release().await.unwrap();
        fleet[0].cmd(&["HSET", "quorate:c0", "@mutex:a", damaged]);
        for round in 0..6 {
            let lease = mutex.lock().await.unwrap();
            let token = lease.token().as_u64();
            assert!(token > last, "{round}: {token} after {last}");
            // A few minutes are allowed: max_ttl and a minute, several times.
            assert!(token - last < 300_000_000, "{round}: {token} after {last}");
            last = token;
            lease.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_counter_of_2_to_the_53_does_not_travel() {
    locks_beside("9007199254740992").await;
}

#[tokio::test]
async fn a_counter_that_is_almost_as_great_does_not_travel() {
    locks_beside("9007199254740990").await;
}

#[tokio::test]
async fn a_counter_of_the_next_century_does_not_travel() {
    locks_beside("5000000000000000").await;
}
