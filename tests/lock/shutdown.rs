//! `shutdown` waits for masters that answer, but not for one that died or stands still. Otherwise a rolling deploy
//! during an outage would need the whole timeout for each process.

use std::time::{Duration, Instant};

use crate::support::{Fleet, Kind, Proxy, Server};
use quorate::Quorum;

/// Far below the timeouts of 5 s and 1 s, and more than a node timeout and the delays of a busy machine.
const SOON: Duration = Duration::from_millis(900);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn connect(urls: Vec<String>) -> Quorum {
    let builder = Quorum::builder().fleet("tests").nodes(urls);
    let quorum = builder.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

/// A way in which a master goes away.
type Away = fn(&Server);

#[tokio::test]
async fn a_master_that_went_away_is_not_waited_for() {
    let ways: [(&str, Away); 2] = [("died", Server::kill9), ("stands still", Server::sigstop)];
    for (how, go_away) in ways {
        let fleet = Fleet::start(3, Kind::Redis);
        let quorum = connect(fleet.urls()).await;
        let (released, dropped) = (quorum.mutex("released"), quorum.mutex("dropped"));
        let (released, dropped) = (
            released.lock().await.unwrap(),
            dropped.lock().await.unwrap(),
        );
        // Time for the third grant of each lease to arrive.
        tokio::time::sleep(ms(100)).await;
        go_away(&fleet[0]);
        released.release().await.unwrap();
        drop(dropped);
        let since = Instant::now();
        assert_eq!(quorum.shutdown().await, [""; 0]);
        assert!(since.elapsed() < SOON, "{how}: {:?}", since.elapsed());
        for server in &fleet[1..] {
            let keys = server.keys().into_iter();
            let left: Vec<_> = keys.filter(|(key, _)| key.contains("@mutex:")).collect();
            assert!(left.is_empty(), "{how}: {left:?}");
        }
    }
}

/// This master is a minority too, but it lives: in the end nothing of the lease is left there.
#[tokio::test]
async fn a_master_that_is_far_away_is_told() {
    let fleet = Fleet::start(3, Kind::Redis);
    let far = Proxy::start(&fleet[0]);
    let mut urls = fleet.urls();
    urls[0] = far.url().to_owned();
    let quorum = connect(urls).await;
    far.delay(ms(100));
    for _ in 0..5 {
        let lease = quorum.mutex("a").lock().await.unwrap();
        tokio::time::sleep(ms(300)).await;
        lease.release().await.unwrap();
    }
    assert_eq!(quorum.shutdown().await, [""; 0]);
    assert_eq!(fleet.leftover_locks("quorate"), [""; 0]);
}
