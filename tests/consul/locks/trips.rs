//! The number of round trips of each operation.

use std::sync::{Arc, Mutex};

use quorate::consul::Consul;

use super::*;
use crate::support::Proxy;

const ONE_WAY: Duration = ms(100);

/// The time of `n` round trips, and three quarters of one for the agent's disk and this machine.
fn at_most(n: u32) -> Duration {
    ONE_WAY * 2 * n + ONE_WAY * 3 / 2
}

/// The quickest of several runs, because this machine is busy.
async fn quickest<F: Future<Output = Duration>>(mut once: impl FnMut() -> F) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        best = best.min(once().await);
    }
    best
}

#[tokio::test]
async fn a_free_lock_takes_two_round_trips_and_a_release_one() {
    let agent = Agent::start();
    let proxy = Proxy::to_consul(&agent);
    let consul = Consul::connect(proxy.url()).await.unwrap();
    // This opens connections and makes a session.
    consul
        .mutex("m")
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    proxy.delay(ONE_WAY);
    let (mutex, pool) = (consul.mutex("m"), consul.semaphore("s", 3));
    let lock = quickest(|| async {
        let asked = Instant::now();
        let lease = mutex.lock().await.unwrap();
        let took = asked.elapsed();
        lease.release().await.unwrap();
        took
    });
    let lock = lock.await;
    let acquire = quickest(|| async {
        let asked = Instant::now();
        let lease = pool.acquire().await.unwrap();
        let took = asked.elapsed();
        lease.release().await.unwrap();
        took
    });
    let acquire = acquire.await;
    let release = quickest(|| async {
        let lease = pool.acquire().await.unwrap();
        let asked = Instant::now();
        lease.release().await.unwrap();
        asked.elapsed()
    });
    let release = release.await;
    println!("lock {lock:?}, acquire {acquire:?}, release {release:?}");
    assert!(lock < at_most(2) && acquire < at_most(2) && release < at_most(1));
    consul.shutdown().await;
}

#[tokio::test]
async fn a_slot_is_handed_over_within_two_round_trips() {
    let agent = Agent::start();
    let proxy = Proxy::to_consul(&agent);
    let far = Consul::connect(proxy.url()).await.unwrap();
    let near = connect(&agent).await;
    proxy.delay(ONE_WAY);
    for is_lock in [true, false] {
        let mut best = Duration::MAX;
        for _ in 0..4 {
            let held = match is_lock {
                true => near.mutex("m").lock().await.unwrap(),
                false => near.semaphore("s", 1).acquire().await.unwrap(),
            };
            let (mutex, pool) = (far.mutex("m"), far.semaphore("s", 1));
            let waits = tokio::spawn(async move {
                match is_lock {
                    true => mutex.lock().await,
                    false => pool.acquire().await,
                }
            });
            tokio::time::sleep(ONE_WAY * 16).await;
            held.release().await.unwrap();
            let freed = Instant::now();
            let lease = waits.await.unwrap().unwrap();
            best = best.min(freed.elapsed());
            lease.release().await.unwrap();
        }
        println!("handed over in {best:?}");
        assert!(best < at_most(2), "{best:?}");
    }
    near.shutdown().await;
    far.shutdown().await;
}

/// Sends a cheap request again and again, and measures each answer. So it measures the cost of a round trip on this
/// machine now.
async fn measure_trips(url: String, trips: Arc<Mutex<Vec<Duration>>>) {
    let consul = Consul::connect(&url).await.unwrap();
    let nobodys = consul.semaphore("nobody's", 1);
    loop {
        let asked = Instant::now();
        nobodys.available().await.unwrap();
        trips.lock().unwrap().push(asked.elapsed());
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// How often a measurement is repeated at most. A busy machine only makes a hand-over slower.
const TRIES: usize = 3;

#[tokio::test]
async fn the_median_hand_over_takes_less_than_three_round_trips() {
    for is_lock in [true, false] {
        let mut seen = Vec::new();
        // Two round trips, and three quarters of one for the agent's disk.
        let is_fast = |(took, trip): &(Duration, Duration)| *took * 4 < *trip * 11;
        while !seen.last().is_some_and(is_fast) {
            assert!(seen.len() < TRIES, "{seen:?}");
            seen.push(hand_overs(is_lock).await);
        }
        println!("handed over in, and a round trip takes: {seen:?}");
    }
}

/// Eight processes wait, and each of them hands the lock to the next. Returns the median of the times from a release to
/// the next grant, and the median of round trips meanwhile.
async fn hand_overs(is_lock: bool) -> (Duration, Duration) {
    let agent = Agent::start();
    let proxy = Proxy::to_consul(&agent);
    let near = connect(&agent).await;
    let held = match is_lock {
        true => near.mutex("m").lock().await.unwrap(),
        false => near.semaphore("s", 1).acquire().await.unwrap(),
    };
    proxy.delay(ONE_WAY);
    // The time of the last release, and the times from a release to the next grant.
    let freed = Arc::new(Mutex::new((Instant::now(), Vec::new())));
    let all = (0..8).map(|_| {
        let (url, freed) = (proxy.url().to_string(), Arc::clone(&freed));
        tokio::spawn(async move {
            let consul = Consul::connect(&url).await.unwrap();
            let lease = match is_lock {
                true => consul.mutex("m").lock().await.unwrap(),
                false => consul.semaphore("s", 1).acquire().await.unwrap(),
            };
            {
                let (at, took) = &mut *freed.lock().unwrap();
                took.push(at.elapsed());
            }
            // The notifications to the other waiters have settled.
            tokio::time::sleep(ONE_WAY * 8).await;
            freed.lock().unwrap().0 = Instant::now();
            lease.release().await.unwrap();
            consul.shutdown().await;
        })
    });
    let all: Vec<_> = all.collect();
    tokio::time::sleep(ONE_WAY * 40).await;
    let trips = Arc::<Mutex<Vec<Duration>>>::default();
    let measures = tokio::spawn(measure_trips(proxy.url().to_string(), Arc::clone(&trips)));
    freed.lock().unwrap().0 = Instant::now();
    held.release().await.unwrap();
    for one in all {
        one.await.unwrap();
    }
    measures.abort();
    near.shutdown().await;
    let took = median(freed.lock().unwrap().1.clone());
    let trip = median(trips.lock().unwrap().clone());
    (took, trip)
}
