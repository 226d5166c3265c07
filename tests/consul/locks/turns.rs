//! Waiters of one process that want different numbers of permits.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use super::*;
use crate::support::{Slowest, Stalls};

/// More waiters for three permits than one process registers with Consul at a time.
const LARGE: usize = 6;

#[tokio::test]
async fn waiters_for_many_permits_do_not_block_callers_that_want_fewer() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let pool = consul.semaphore("pool", 5);
    let held = pool.acquire_many(3).await.unwrap();
    let mut large = Vec::new();
    for _ in 0..LARGE {
        let taking = pool.acquire_many(3);
        large.push(tokio::spawn(async move {
            // Any of them may be served first.
            taking.await.unwrap().release().await.unwrap();
        }));
        tokio::time::sleep(ms(50)).await;
    }
    tokio::time::sleep(ms(500)).await;
    // Two permits are free. In another process a waiter would also get them after a second.
    let (machine, answers) = (Stalls::watch(), Slowest::of_agent(&agent));
    for count in [1, 2] {
        let asked = Instant::now();
        let few = pool.clone().wait_timeout(ms(8_000)).acquire_many(count);
        let few = few.await.unwrap();
        let took = asked.elapsed();
        // The first waiter in the queue has a second for its turn. The rest is for a busy machine.
        let at_most = ms(2_500) + answers.answer() + machine.longest() * 2;
        assert!(
            (ms(900)..at_most).contains(&took),
            "{count}: {took:?} of {at_most:?}"
        );
        few.release().await.unwrap();
    }
    assert!(large.iter().all(|one| !one.is_finished()));
    held.release().await.unwrap();
    for one in large {
        one.await.unwrap();
    }
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

/// Others ask for one permit again and again until it is served.
#[tokio::test]
async fn a_waiter_for_many_permits_is_served_among_those_that_want_one() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let pool = consul.semaphore("pool", 3);
    let held = pool.acquire_many(3).await.unwrap();
    let many = tokio::spawn(pool.acquire_many(3));
    tokio::time::sleep(ms(300)).await;
    let is_served = Arc::new(AtomicBool::new(false));
    let few: Vec<_> = (0..12)
        .map(|_| {
            let (pool, is_served) = (pool.clone(), Arc::clone(&is_served));
            tokio::spawn(async move {
                while !is_served.load(SeqCst) {
                    let lease = pool.acquire().await.unwrap();
                    tokio::time::sleep(ms(20)).await;
                    lease.release().await.unwrap();
                }
            })
        })
        .collect();
    tokio::time::sleep(ms(300)).await;
    held.release().await.unwrap();
    // The others take their permits for 20 ms at a time, so only a waiter that starves waits this long.
    let many = tokio::time::timeout(ms(15_000), many).await;
    is_served.store(true, SeqCst);
    many.unwrap().unwrap().unwrap().release().await.unwrap();
    for one in few {
        one.await.unwrap();
    }
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}
