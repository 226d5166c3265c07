//! Leases that are held for the life of a program: a holder that hangs, and the end of the program.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use quorate::{Error, Lease, LossReason, Quorum, Renewal};
use tokio::{
    select,
    time::{Instant, sleep, timeout},
};

const TTL: Duration = Duration::from_secs(5);
const BEAT: Duration = Duration::from_secs(4);
const STEP: Duration = Duration::from_millis(500);
/// Rounding, and the first step after the end.
const NEAR: Duration = Duration::from_millis(200);

/// Works in steps, and hangs after `steps` of them.
async fn work(lease: &Lease, steps: u32, show: impl AsyncFn(&Lease)) {
    for _ in 0..steps {
        sleep(STEP).await;
        show(lease).await;
    }
    pending().await
}

/// A leader hangs after six steps. Returns how long after its last step another one leads, if it does within a minute.
async fn taken_over(renewal: Renewal, show: impl AsyncFn(&Lease)) -> Option<Duration> {
    let quorum = Quorum::in_memory(3);
    let leader = quorum.mutex("leader").ttl(TTL).renewal(renewal);
    let lease = leader.lock().await.unwrap();
    let next = tokio::spawn(quorum.mutex("leader").ttl(TTL).lock());
    let hung_at = Instant::now() + STEP * 6;
    let led = async {
        let lost = lease.guard(work(&lease, 6, show)).await;
        // The work was dropped before another one could lead.
        assert!(lost.is_err() && !next.is_finished());
        pending::<()>().await;
    };
    select! {
        _ = timeout(Duration::from_secs(60), led) => None,
        next = async {
            while !next.is_finished() {
                sleep(Duration::from_millis(10)).await;
            }
        } => {
            let () = next;
            Some(Instant::now() - hung_at)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_hangs_is_taken_over_if_its_work_has_to_beat() {
    let beats = async |lease: &Lease| lease.beat();
    let after = taken_over(Renewal::auto().heartbeat(BEAT), beats)
        .await
        .unwrap();
    assert!(
        after > BEAT - NEAR && after < BEAT + TTL + NEAR,
        "{after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_hangs_is_taken_over_if_it_has_to_extend() {
    let extends = async |lease: &Lease| lease.extend().await.unwrap();
    let after = taken_over(Renewal::off(), extends).await.unwrap();
    assert!(after > TTL - NEAR && after < TTL + NEAR * 2, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_hangs_keeps_its_lock_by_default() {
    assert_eq!(
        taken_over(Renewal::auto(), async |_: &Lease| ()).await,
        None
    );
}

/// Where a lease lives on.
#[derive(Clone, Copy, Debug)]
enum Place {
    Struct,
    Task,
    Run,
}

/// Drops the lease that lives there once the quorum closes. Returns when the lease is held.
async fn hold(quorum: &Quorum, name: &str, place: Place) {
    let (mutex, closing) = (quorum.mutex(name), quorum.closing());
    match place {
        Place::Struct => {
            let signer = Arc::new(Mutex::new(Some(mutex.lock().await.unwrap())));
            tokio::spawn(async move {
                closing.await;
                drop(signer.lock().unwrap().take());
                // The struct lives on.
                pending::<()>().await;
            });
        }
        Place::Task => {
            let lease = mutex.lock().await.unwrap();
            tokio::spawn(async move {
                select! {
                    reason = lease.lost() => panic!("{reason}"),
                    () = closing => lease.release().await.unwrap(),
                }
            });
        }
        Place::Run => {
            let (begun, begins) = tokio::sync::oneshot::channel();
            tokio::spawn(mutex.run(async move |_| {
                begun.send(()).unwrap();
                closing.await;
            }));
            begins.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_leases_whose_owners_listen() {
    for place in [Place::Struct, Place::Task, Place::Run] {
        let quorum = Quorum::in_memory(3);
        hold(&quorum, "key", place).await;
        let since = Instant::now();
        assert_eq!(quorum.clone().shutdown().await, [""; 0], "{place:?}");
        assert!(
            since.elapsed() < Duration::from_millis(100),
            "{place:?}: {:?}",
            since.elapsed()
        );
    }
}

/// The work under a lease may go on, so its lock is not released. This is what a lease costs whose owner does not listen.
#[tokio::test(start_paused = true)]
async fn shutdown_leaves_a_lease_that_nobody_drops_to_its_ttl() {
    let quorum = Quorum::in_memory(3);
    let lease = quorum.mutex("key").lock().await.unwrap();
    let since = Instant::now();
    assert_eq!(quorum.shutdown().await, ["key"]);
    assert!(since.elapsed() >= Duration::from_secs(5));
    assert_eq!(lease.lost().await, LossReason::NodesLost);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_when_shutdown_begins_and_not_before() {
    let quorum = Quorum::in_memory(3);
    let other = quorum.clone();
    let mut closing = Box::pin(other.closing());
    assert!(
        timeout(Duration::from_secs(60), &mut closing)
            .await
            .is_err()
    );
    let lease = quorum.mutex("a").lock().await.unwrap();
    let shutdown = tokio::spawn(quorum.shutdown());
    closing.await;
    // It has begun, and it waits for the lease.
    assert!(!shutdown.is_finished() && lease.is_valid());
    assert!(matches!(
        other.mutex("b").try_lock().await,
        Err(Error::Closed)
    ));
    drop(lease);
    assert_eq!(shutdown.await.unwrap(), [""; 0]);
    // For a caller who comes late too.
    other.closing().await;
    // It begins with the call, so it may be polled after what listens to it has ended.
    let quorum = Quorum::in_memory(3);
    let closing = quorum.closing();
    let shutdown = quorum.shutdown();
    closing.await;
    assert_eq!(shutdown.await, [""; 0]);
}

#[test]
fn closing_ends_with_the_runtime_and_with_the_last_handle() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (gone, lives) = (runtime(), runtime());
    let quorum = gone.block_on(async { Quorum::in_memory(3) });
    let closing = quorum.closing();
    drop(gone);
    lives.block_on(closing);
    let quorum = lives.block_on(async { Quorum::in_memory(3) });
    let closing = quorum.closing();
    drop(quorum);
    lives.block_on(closing);
}
