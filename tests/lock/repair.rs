//! Leases that heal: a lease that a master lost is put back there while it is held (protocol §3, client step 9). The
//! tests run on a mutex, and on a semaphore of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::exclusive::Exclusive;
use crate::support::{Fleet, Kind, Server};
use quorate::{Lease, LossReason, Mutex, NodeState, Quorum};
use tokio::time::{sleep, timeout};

const PREFIX: &str = "quorate";
const LOCK: &str = "quorate:@mutex:a";
const EVICTED: &str = "quorate:@mutex-evicted:a";
/// A quarantine of 2.12 s.
const MAX_TTL: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_millis(100);
/// The limit for things that happen soon, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn connect(fleet: &Fleet) -> Quorum {
    let quorum = Quorum::builder()
        .nodes(fleet.urls())
        .max_ttl(MAX_TTL)
        .restart_margin(MARGIN)
        .node_timeout(ms(400))
        .connect()
        .await
        .unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come: {what}");
        sleep(ms(5)).await;
    }
}

fn holder<E: Exclusive>(server: &Server) -> Option<String> {
    E::holder(server, "a")
}

/// Tries to take the lock all the time, until the end. Returns how often it tried.
fn contend<E: Exclusive>(
    quorum: &Quorum,
    is_over: &Arc<AtomicBool>,
) -> tokio::task::JoinHandle<usize> {
    let (mutex, is_over) = (E::of(quorum, "a"), Arc::clone(is_over));
    tokio::spawn(async move {
        let refused = AtomicUsize::new(0);
        while !is_over.load(SeqCst) {
            match mutex.try_lock().await {
                Ok(Some(lease)) => panic!("{lease:?} while another holds it"),
                Ok(None) | Err(_) => refused.fetch_add(1, SeqCst),
            };
            sleep(ms(20)).await;
        }
        refused.into_inner()
    })
}

on_both! {
    threads:
        a_lock_deleted_on_one_master_is_repaired,
        a_lease_outlives_every_redis_that_it_began_with,
        a_lease_outlives_every_valkey_that_it_began_with;
}

/// Every master restarts without its memory, one after the other. Each restarts when the one before votes and has the
/// lease.
async fn outlives_every_restart<E: Exclusive>(kind: Kind) {
    let fleet = Fleet::start(3, kind);
    let (ours, other) = (connect(&fleet).await, connect(&fleet).await);
    let lease: Lease = E::of(&ours, "a").ttl(MAX_TTL).lock().await.unwrap();
    let token = lease.token();
    let entry = holder::<E>(&fleet[0])
        .or_else(|| holder::<E>(&fleet[1]))
        .unwrap();
    // A lease that only two masters have granted does not outlive one of them.
    until("the grant of all", || {
        fleet
            .iter()
            .all(|server| holder::<E>(server).as_ref() == Some(&entry))
    })
    .await;
    let is_over = Arc::default();
    let contender = contend::<E>(&other, &is_over);
    let restarts = async {
        for (n, server) in fleet.iter().enumerate() {
            server.restart_empty();
            until("its quarantine", || {
                matches!(ours.nodes()[n].state, NodeState::Quarantined(_))
            })
            .await;
            until("its vote", || ours.nodes()[n].state == NodeState::Voting).await;
            until("the repair", || {
                holder::<E>(server).as_ref() == Some(&entry)
            })
            .await;
            assert!(E::counter(server, "a").unwrap() >= token.as_u64());
        }
    };
    lease
        .guard(restarts)
        .await
        .expect("it is held all the time");
    is_over.store(true, SeqCst);
    assert!(contender.await.unwrap() > 20, "nobody else gets it");

    assert_eq!(lease.token(), token);
    for server in fleet.iter() {
        assert_eq!(holder::<E>(server).as_ref(), Some(&entry));
    }
    lease.release().await.unwrap();
    assert_eq!(fleet.leftover_locks_after(PATIENCE, PREFIX), [""; 0]);
    let next = E::of(&other, "a").lock().await.unwrap();
    assert!(next.token() > token);
}

async fn a_lease_outlives_every_redis_that_it_began_with<E: Exclusive>() {
    outlives_every_restart::<E>(Kind::Redis).await;
}

async fn a_lease_outlives_every_valkey_that_it_began_with<E: Exclusive>() {
    outlives_every_restart::<E>(Kind::Valkey).await;
}

/// A repaired master is as good as any other: the two that had the lease from the beginning may die.
async fn a_lock_deleted_on_one_master_is_repaired<E: Exclusive>() {
    let fleet = Fleet::start(3, Kind::Redis);
    let ours = connect(&fleet).await;
    let lease = E::of(&ours, "a").ttl(MAX_TTL).lock().await.unwrap();
    // A majority is enough for the lease, so any one grant may come later.
    until("the first grant", || holder::<E>(&fleet[0]).is_some()).await;
    let entry = holder::<E>(&fleet[0]);
    until("the grant of all", || holder::<E>(&fleet[2]) == entry).await;
    E::forget(&fleet[0], "a");
    until("the repair", || holder::<E>(&fleet[0]) == entry).await;
    fleet[1].kill9();
    sleep(MAX_TTL).await;
    assert!(lease.is_valid(), "renewed on the other two");
    lease.extend().await.unwrap();
}

// For the mutex alone: an operator evicts the slots of a semaphore one by one, by their numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_marked_as_evicted_is_not_repaired_until_the_mark_ends() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let ours = connect(&fleet).await;
        let lease = ours.mutex("a").ttl(MAX_TTL).lock().await.unwrap();
        // An EVICT that has reached only this master leaves the same, except for the expiry.
        fleet[0].cmd(&["SET", EVICTED, "", "PX", "6000"]);
        fleet[0].cmd(&["DEL", LOCK]);
        // The lease is renewed meanwhile, and most of the mark's time is left.
        sleep(ms(1000)).await;
        assert_eq!(
            holder::<Mutex>(&fleet[0]),
            None,
            "renewed, and not put back"
        );
        assert!(lease.is_valid());
        until("the repair, once it is over", || {
            holder::<Mutex>(&fleet[0]).is_some()
        })
        .await;
        assert!(ours.evict("a").await.unwrap());
        let told = timeout(PATIENCE, lease.lost()).await.expect("it is lost");
        assert_eq!(told, LossReason::Evicted, "{kind:?}");
        for server in fleet.iter() {
            assert_eq!(holder::<Mutex>(server), None);
        }
        // Others can take the name.
        assert!(ours.mutex("a").try_lock().await.unwrap().is_some());
        drop(lease);
    }
}
