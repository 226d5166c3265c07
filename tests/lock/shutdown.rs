//! `shutdown` waits for masters that answer, but not for one that died or stands still. Otherwise a rolling deploy
//! during an outage would need the whole timeout for each process.

use std::time::{Duration, Instant};

use crate::support::{Fleet, Kind, Proxy, Server, Stalls};
use quorate::{Builder, Quorum};

/// Far below the timeout of 5 s, and more than a node timeout. A busy machine adds its stalls.
const SOON: Duration = Duration::from_millis(900);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn connect(urls: Vec<String>) -> Quorum {
    let builder = Quorum::builder().fleet("tests").nodes(urls);
    bootstrap(builder).await
}

async fn bootstrap(builder: Builder) -> Quorum {
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
        // A majority and one more stay, so a short stall of one of them costs nothing.
        let fleet = Fleet::start(5, Kind::Redis);
        let quorum = connect(fleet.urls()).await;
        let machine = Stalls::watch();
        let (released, dropped) = (quorum.mutex("released"), quorum.mutex("dropped"));
        let (released, dropped) = (
            released.lock().await.unwrap(),
            dropped.lock().await.unwrap(),
        );
        // Time for the other grants of each lease to arrive.
        tokio::time::sleep(ms(100)).await;
        go_away(&fleet[0]);
        released.release().await.unwrap();
        drop(dropped);
        let since = Instant::now();
        assert_eq!(quorum.shutdown().await, [""; 0]);
        let took = since.elapsed();
        assert!(took < SOON + machine.longest() * 4, "{how}: {took:?}");
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
    // The far node must not be called late, or it would not be waited for. The timeout is below that of the shutdown.
    let builder = Quorum::builder().fleet("tests").nodes(urls);
    let quorum = bootstrap(builder.node_timeout(ms(4_000))).await;
    far.delay(ms(100));
    for _ in 0..5 {
        let lease = quorum.mutex("a").lock().await.unwrap();
        tokio::time::sleep(ms(300)).await;
        lease.release().await.unwrap();
    }
    assert_eq!(quorum.shutdown().await, [""; 0]);
    assert_eq!(fleet.leftover_locks("quorate"), [""; 0]);
}
