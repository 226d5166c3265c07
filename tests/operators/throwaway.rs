//! Servers that a test, a CI job or `docker compose up` has started: they vote at once, and no other fleet is disturbed.

use std::time::{Duration, Instant};

use crate::support::{Fleet, HANG, Kind};
use quorate::{Builder, Error, Lease, LossReason, NodeState, Quorum, Quota, RateLimiter};
use tokio::time::sleep;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The node timeout of a client that may not fail on a machine that stalls.
const PATIENT: Duration = Duration::from_secs(5);

/// The quarantine is long, so nothing here votes because it is over.
fn builder(fleet: &Fleet) -> Builder {
    Quorum::builder()
        .node_timeout(PATIENT)
        .max_ttl(Duration::from_secs(3_600))
        .nodes(fleet.urls())
}

fn throwaway(fleet: &Fleet) -> Builder {
    builder(fleet).throwaway()
}

/// A client of another fleet, which has these servers and holds a lock.
async fn in_use(fleet: &Fleet) -> (Quorum, Lease) {
    let quorum = builder(fleet).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let lease = quorum.mutex("a").lock().await.unwrap();
    (quorum, lease)
}

fn limits(quorum: &Quorum) -> [RateLimiter; 2] {
    [Quota::per_hour(5), Quota::per_hour(5_000)].map(|quota| quorum.rate_limiter("api", quota))
}

#[tokio::test]
async fn throwaway_servers_grant_locks_and_units_at_once() {
    for kind in [Kind::Redis, Kind::Valkey] {
        for _ in 0..3 {
            let fleet = Fleet::start(3, kind);
            let quorum = throwaway(&fleet).connect().await.unwrap();
            let lease = quorum.mutex("a").try_lock().await.unwrap().unwrap();
            for limit in limits(&quorum) {
                assert!(limit.check().await.unwrap().is_allowed());
            }
            assert_eq!(quorum.fleet(), "throwaway");
            lease.release().await.unwrap();
            quorum.shutdown().await;
        }
    }
}

#[tokio::test]
async fn throwaway_servers_vote_again_after_a_restart() {
    let fleet = Fleet::start(3, Kind::Redis);
    let quorum = throwaway(&fleet).connect().await.unwrap();
    for _ in 0..3 {
        fleet.iter().for_each(|server| server.restart_empty());
        // They are dialled again after pauses.
        let deadline = Instant::now() + HANG;
        let lease = loop {
            match quorum.mutex("a").try_lock().await {
                Ok(lease) => break lease.unwrap(),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            sleep(ms(10)).await;
        };
        while quorum.health().spare == 0 {
            assert!(Instant::now() < deadline, "{:?}", quorum.nodes());
            sleep(ms(10)).await;
        }
        for limit in limits(&quorum) {
            assert!(limit.check().await.unwrap().is_allowed());
        }
        lease.release().await.unwrap();
    }
}

/// Clients reach them by other addresses, as a test on the host and a program in a container do.
#[tokio::test]
async fn throwaway_clients_share_servers_whatever_address_they_use() {
    let fleet = Fleet::start(3, Kind::Redis);
    let quorum = throwaway(&fleet).fleet("payments").connect().await.unwrap();
    let lease = quorum.mutex("a").lock().await.unwrap();
    let urls = fleet.urls().into_iter();
    let urls = urls.map(|url| url.replace("127.0.0.1", "localhost"));
    let other = Quorum::builder()
        .nodes(urls)
        .node_timeout(PATIENT)
        .throwaway();
    let other = other
        .max_ttl(Duration::from_secs(3_600))
        .connect()
        .await
        .unwrap();
    assert!(other.mutex("a").try_lock().await.unwrap().is_none());
    drop(lease);
}

/// The longest ttl is raised while clients with the old one run, and masters restart meanwhile.
#[tokio::test]
async fn throwaway_clients_with_another_max_ttl_go_on() {
    let fleet = Fleet::start(3, Kind::Redis);
    let lock = async |quorum: &Quorum| {
        let deadline = Instant::now() + HANG;
        while let Err(error) = quorum.mutex("a").wait_timeout(HANG).lock().await {
            assert!(Instant::now() < deadline, "{error}: {:?}", quorum.nodes());
            sleep(ms(10)).await;
        }
    };
    let mut all = Vec::new();
    for hours in [1, 2, 3] {
        let greater = throwaway(&fleet).max_ttl(Duration::from_secs(3_600 * hours));
        all.push(greater.connect().await.unwrap());
        let smaller = throwaway(&fleet).max_ttl(Duration::from_secs(30));
        all.push(smaller.connect().await.unwrap());
        for restarted in [0, 1, 2] {
            for quorum in &all {
                lock(quorum).await;
            }
            if restarted > 0 {
                fleet[..restarted]
                    .iter()
                    .for_each(|server| server.restart_empty());
            }
        }
    }
}

#[tokio::test]
async fn a_throwaway_client_refuses_servers_of_another_fleet() {
    let fleet = Fleet::start(3, Kind::Redis);
    let (_quorum, lease) = in_use(&fleet).await;
    let why = throwaway(&fleet).connect().await.unwrap_err();
    let nodes = why.report().unwrap().to_string();
    assert!(
        nodes.contains("this client: 3 masters, fleet id \"throwaway\""),
        "{nodes}"
    );
    assert!(lease.is_valid());
}

/// To a client without the setting the servers are new. So a wrong setting in production binds nobody.
#[tokio::test]
async fn a_client_without_throwaway_takes_the_servers_over() {
    let fleet = Fleet::start(3, Kind::Valkey);
    let wrong = throwaway(&fleet).connect().await.unwrap();
    let lease = wrong.mutex("a").lock().await.unwrap();
    let quorum = builder(&fleet).connect().await.unwrap();
    assert!(matches!(
        quorum.mutex("a").try_lock().await,
        Err(Error::Quarantined(_))
    ));
    let reason = tokio::time::timeout(HANG, lease.lost()).await.unwrap();
    assert_eq!(reason, LossReason::NodesLost);
    quorum.bootstrap_forced().await.unwrap();
    drop(quorum.mutex("b").try_lock().await.unwrap().unwrap());
    assert_eq!(wrong.health().voting, 0, "{:?}", wrong.nodes());
}

/// A developer's program has the setting and knows one, two or all of the servers. They are emptied again and again.
#[tokio::test]
async fn a_throwaway_client_admits_no_server_of_a_fleet_in_use() {
    let fleet = Fleet::start(3, Kind::Redis);
    let (quorum, lease) = in_use(&fleet).await;
    for known in 1..=3 {
        let wrong = Quorum::builder().nodes(&fleet.urls()[..known]).throwaway();
        let wrong = wrong.connect_lazy().unwrap();
        fleet[0].restart_empty();
        let deadline = Instant::now() + HANG;
        while !matches!(quorum.nodes()[0].state, NodeState::Quarantined(_)) {
            assert!(Instant::now() < deadline, "{known}: {:?}", quorum.nodes());
            sleep(ms(10)).await;
        }
        // Time for several handshakes of each client.
        sleep(ms(2_500)).await;
        assert_eq!(quorum.health().voting, 2, "{known}: {:?}", quorum.nodes());
        let is_young = matches!(quorum.nodes()[0].state, NodeState::Quarantined(_));
        assert!(is_young, "{known}: {:?}", quorum.nodes());
        let refused = wrong.mutex("a").try_lock().await;
        assert!(refused.is_err(), "{known}: {refused:?}");
        drop(quorum.mutex("b").try_lock().await.unwrap().unwrap());
    }
    assert!(lease.is_valid());
}

#[tokio::test]
async fn no_other_fleet_is_called_throwaway() {
    let why = Quorum::builder()
        .node("redis://127.0.0.1:1")
        .fleet("throwaway");
    match why.connect_lazy() {
        Err(Error::Invalid(why)) => {
            assert!(why.contains("the fleet name throwaway is taken"), "{why}")
        }
        other => panic!("{other:?}"),
    }
}
