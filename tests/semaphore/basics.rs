//! Semaphores on in-process nodes. All but one test run on tokio's paused clock, so a slow machine makes no wait
//! longer.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use quorate::{Error, Quorum};

#[tokio::test(start_paused = true)]
async fn as_many_hold_as_the_limit_says_each_with_a_slot_of_its_own() {
    let quorum = Quorum::in_memory(3);
    let semaphore = quorum.semaphore("pool", 3);
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(semaphore.acquire().await.unwrap());
    }
    let mut slots: Vec<u32> = leases.iter().filter_map(|lease| lease.slot()).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(semaphore.available().await.unwrap(), 0);
    leases.pop().unwrap().release().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 1);
    assert!(semaphore.try_acquire().await.unwrap().is_some());
    quorum.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_slot_is_woken_by_a_release() {
    let quorum = Quorum::in_memory(3);
    let semaphore = quorum.semaphore("pool", 2);
    let first = semaphore.acquire().await.unwrap();
    let _second = semaphore.acquire().await.unwrap();
    let third = tokio::spawn(semaphore.acquire());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!third.is_finished());
    let slot = first.slot();
    let freed = tokio::time::Instant::now();
    first.release().await.unwrap();
    let third = third.await.unwrap().unwrap();
    assert_eq!(third.slot(), slot);
    // A waiter that is not called asks every 250 ms (S / 4).
    assert!(
        freed.elapsed() < Duration::from_millis(50),
        "{:?}",
        freed.elapsed()
    );
    drop(third);
    quorum.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn another_limit_is_a_conflict_that_names_both() {
    let quorum = Quorum::in_memory(3);
    let _lease = quorum.semaphore("pool", 3).acquire().await.unwrap();
    match quorum.semaphore("pool", 5).try_acquire().await {
        Err(Error::LimitConflict(conflict)) => {
            assert_eq!((conflict.asked, conflict.found), (5, 3));
        }
        other => panic!("{other:?}"),
    }
    // A second attempt is refused too: a refusal does not teach the handle the limit.
    let other = quorum.semaphore("pool", 5);
    for _ in 0..2 {
        let _ = other.available().await;
        let again = other.try_acquire().await;
        assert!(matches!(again, Err(Error::LimitConflict(_))), "{again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_zero_wait_makes_one_attempt() {
    let quorum = Quorum::in_memory(3);
    let semaphore = quorum.semaphore("pool", 1).wait_timeout(Duration::ZERO);
    let lease = semaphore.acquire().await.unwrap();
    let error = semaphore.acquire().await.unwrap_err();
    assert!(matches!(error, Error::Held(_)), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("\"pool\": all 1 slots are taken"),
        "{error}"
    );
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn several_are_taken_together_or_none() {
    let quorum = Quorum::in_memory(3);
    let semaphore = quorum.semaphore("pool", 4);
    let lease = semaphore.acquire_many(3).await.unwrap();
    assert_eq!(lease.slots().len(), 3);
    assert_eq!(lease.tokens().len(), 3);
    assert_eq!(semaphore.available().await.unwrap(), 1);
    let more = semaphore.clone().wait_timeout(Duration::from_millis(200));
    assert!(matches!(more.acquire_many(2).await, Err(Error::Held(_))));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(semaphore.available().await.unwrap(), 1);
    lease.release().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 4);
    assert!(matches!(
        semaphore.acquire_many(5).await,
        Err(Error::Invalid(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_several_permits_fails_when_the_limit_gets_too_small() {
    let quorum = Quorum::builder()
        .nodes((0..3).map(|_| quorate::MemoryNode::new()))
        .max_ttl(Duration::from_secs(1))
        .connect()
        .await
        .unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let semaphore = quorum.semaphore("pool", 4).ttl(Duration::from_millis(500));
    let one = semaphore.acquire().await.unwrap();
    let many = tokio::spawn(semaphore.acquire_many(4));
    tokio::time::sleep(Duration::from_millis(100)).await;
    quorum.semaphore("pool", 4).resize(3).await.unwrap();
    // A waiter asks at least once a second (S). This is twice that time.
    let many = tokio::time::timeout(Duration::from_secs(2), many)
        .await
        .unwrap();
    assert!(matches!(many.unwrap(), Err(Error::Invalid(_))));
    drop(one);
}

#[tokio::test(start_paused = true)]
async fn existing_waiters_and_holders_follow_a_resize() {
    let quorum = Quorum::in_memory(3);
    let semaphore = quorum.semaphore("pool", 1);
    let first = semaphore.acquire().await.unwrap();
    let waits = tokio::spawn(semaphore.acquire());
    tokio::time::sleep(Duration::from_millis(20)).await;
    quorum.semaphore("pool", 1).resize(2).await.unwrap();
    // A waiter asks at least once a second (S). This is twice that time.
    let second = tokio::time::timeout(Duration::from_secs(2), waits)
        .await
        .unwrap();
    let second = second.unwrap().unwrap();
    semaphore.resize(1).await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert!(first.is_valid() && second.is_valid());
    drop((first, second));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let one = semaphore.try_acquire().await.unwrap();
    assert_eq!(one.as_ref().and_then(|lease| lease.slot()), Some(0));
    assert!(semaphore.try_acquire().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_share_three_slots() {
    const TTL: Duration = Duration::from_secs(30);
    let quorum = Quorum::in_memory(3);
    let semaphore = quorum.semaphore("pool", 3).ttl(TTL);
    let held = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (semaphore, held) = (semaphore.clone(), held.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let lease = semaphore.acquire().await.unwrap();
                    let slot = lease.slot().unwrap();
                    {
                        let mut held = held.lock().unwrap();
                        assert!(!held.contains(&slot), "{slot} of {held:?}");
                        held.push(slot);
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    assert!(lease.is_valid());
                    held.lock().unwrap().retain(|other| *other != slot);
                    lease.release().await.unwrap();
                }
            })
        })
        .collect();
    let start = std::time::Instant::now();
    for task in tasks {
        task.await.unwrap();
    }
    let took = start.elapsed();
    // There are 500 holds of a millisecond, and none of them waits for a lease to expire.
    assert!(took < TTL / 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_evicted_slot_goes_to_the_first_waiter_and_its_holder_is_told() {
    let nodes: [quorate::MemoryNode; 3] = Default::default();
    let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    let ttl = Duration::from_secs(3);
    let pool = quorum.semaphore("pool", 2).ttl(ttl);
    let (one, other) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    let next = tokio::spawn(pool.acquire());
    tokio::time::sleep(Duration::from_millis(50)).await;
    let slot = one.slot().unwrap();
    // The limit of the handle does not matter for an eviction.
    let operator = quorum.semaphore("pool", 7);
    assert!(operator.evict(slot).await.unwrap());
    let evicted = tokio::time::Instant::now();
    let next = next.await.unwrap().unwrap();
    assert_eq!(next.slot(), Some(slot));
    assert!(next.token() > one.token());
    assert_eq!(one.lost().await, quorate::LossReason::Evicted);
    // Its holder learns of it at the next renewal, after a third of the ttl.
    assert!(evicted.elapsed() < ttl / 2, "{:?}", evicted.elapsed());
    tokio::time::sleep(ttl).await;
    assert!(other.is_valid() && next.is_valid());

    assert!(!operator.evict(5).await.unwrap(), "nobody has it");
    // One of three nodes may be away, but not two.
    nodes[0].stop();
    assert!(operator.evict(other.slot().unwrap()).await.unwrap());
    nodes[1].stop();
    let error = operator.evict(slot).await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_slot_whose_holder_no_node_names_is_not_evicted_in_silence() {
    let quorum = Quorum::in_memory(3);
    let pool = quorum.semaphore("pool", 101);
    let all = futures::future::try_join_all((0..101).map(|_| pool.acquire())).await;
    let all = all.unwrap();
    let error = pool.evict(100).await.unwrap_err();
    assert!(
        matches!(&error, Error::Invalid(why) if why.contains("first 100 slots")),
        "{error}"
    );
    assert!(all.iter().all(quorate::Lease::is_valid));
}
