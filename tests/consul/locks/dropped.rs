//! Futures that are dropped at any moment, and runtimes that end.

use std::{
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use futures::TryFutureExt as _;
use quorate::{Error, Lease, consul::Consul};

use super::*;

/// The call is dropped at moments from 0 to 32 ms, and at later ones where the machine is too busy to grant anything in
/// that time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_at_any_moment_leaves_nothing() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let (mutex, pool) = (consul.mutex("m"), consul.semaphore("s", 1));
    let taken = AtomicU64::new(0);
    for n in 0..1_000_u32 {
        if n >= 80 && taken.load(SeqCst) >= 5 {
            break;
        }
        // The name is free, or another client holds it and releases it in the middle.
        let held = match n % 2 {
            0 => None,
            _ => Some((
                mutex.try_lock().await.unwrap(),
                pool.try_acquire().await.unwrap(),
            )),
        };
        let after = Duration::from_micros(400) * n;
        let call = async |call: Call| {
            if let Ok(Ok(Some(lease))) = tokio::time::timeout(after, call).await {
                taken.fetch_add(1, SeqCst);
                drop(lease);
            }
        };
        let releases = async {
            tokio::time::sleep(after / 2).await;
            drop(held);
        };
        futures::join!(
            call(Box::pin(mutex.lock().map_ok(Some))),
            call(Box::pin(pool.acquire().map_ok(Some))),
            call(Box::pin(mutex.try_lock())),
            releases
        );
    }
    // Both can be taken at once.
    for lease in [
        mutex.wait_timeout(ms(2_000)).lock().await,
        pool.wait_timeout(ms(2_000)).acquire().await,
    ] {
        lease.unwrap().release().await.unwrap();
    }
    let taken = taken.into_inner();
    assert!(
        (5..200).contains(&taken),
        "some were dropped before they had it, and some took it: {taken}"
    );
    nothing_is_left(&agent).await;
    consul.shutdown().await;
}

type Call = Pin<Box<dyn Future<Output = Result<Option<Lease>, Error>> + Send>>;

#[test]
fn a_runtime_that_is_gone_says_so_and_leaves_it_to_the_ttl() {
    let agent = Agent::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (consul, lease) = runtime.block_on(async {
        let consul = connect(&agent).await;
        let lease = consul.mutex("m").lock().await.unwrap();
        (consul, lease)
    });
    drop(runtime);
    let other = tokio::runtime::Runtime::new().unwrap();
    other.block_on(async {
        assert!(matches!(
            consul.mutex("m").lock().await,
            Err(Error::RuntimeGone)
        ));
        assert!(matches!(lease.extend().await, Err(Error::RuntimeGone)));
        assert!(matches!(lease.release().await, Err(Error::RuntimeGone)));
    });
    // This runs without a runtime.
    let nowhere = Consul::builder().url(agent.url()).connect_lazy();
    assert!(matches!(nowhere, Err(Error::Invalid(_))), "{nowhere:?}");
    assert_eq!(agent.keys("m/"), ["m/.lock"]);
}

#[tokio::test]
async fn a_lease_that_is_dropped_on_another_thread_is_released() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let lease = consul.mutex("m").lock().await.unwrap();
    std::thread::spawn(move || drop(lease)).join().unwrap();
    let next = consul
        .mutex("m")
        .wait_timeout(ms(2_000))
        .lock()
        .await
        .unwrap();
    next.release().await.unwrap();
    let release = consul.mutex("m").lock().await.unwrap().release();
    // The future was never polled.
    drop(release);
    let next = consul
        .mutex("m")
        .wait_timeout(ms(2_000))
        .lock()
        .await
        .unwrap();
    drop(next);
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}
