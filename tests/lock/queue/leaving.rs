//! A waiter that gives up is gone from every node.

use super::*;

on_both! {
    threads:
        a_wait_ends_on_time_and_leaves_the_queue,
        dropped_waiters_leave_and_the_others_are_served,
        shutdown_ends_every_wait_and_leaves_the_queue;
}

async fn a_wait_ends_on_time_and_leaves_the_queue<E: Exclusive>() {
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let held = E::of(&client, NAME).lock().await.unwrap();
    // They are all registered within this time.
    let wait = ms(3_000);
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let lock = E::of(&client, NAME).wait_timeout(wait).lock();
            tokio::spawn(async move {
                let start = Instant::now();
                (lock.await, start.elapsed())
            })
        })
        .collect();
    registered::<E>(&fleet, waiters.len()).await;
    for waiter in waiters {
        let (answer, took) = timeout(PATIENCE, waiter).await.unwrap().unwrap();
        let error = answer.unwrap_err();
        assert!(matches!(error, Error::Held(_)), "{error}");
        assert!(error.retry_after().is_some(), "{error:?}");
        assert!((wait..wait + MACHINE).contains(&took), "{took:?}");
    }
    registered::<E>(&fleet, 0).await;
    held.release().await.unwrap();
    assert!(E::of(&client, NAME).try_lock().await.unwrap().is_some());
    nothing_is_left(&fleet);
}

/// Every second waiter gives up, the first ones among them. The others are served, and none of them waits for one that
/// is gone.
async fn dropped_waiters_leave_and_the_others_are_served<E: Exclusive>() {
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let held = E::of(&client, NAME).lock().await.unwrap();
    let served = Served::default();
    let (mut waiters, mut dropped) = (Vec::new(), Vec::new());
    for index in 0..20 {
        dropped.push(tokio::spawn(E::of(&client, NAME).lock()));
        registered::<E>(&fleet, 2 * index + 1).await;
        waiters.push(served.wait(index, &E::of(&client, NAME), ms(2)));
        registered::<E>(&fleet, 2 * index + 2).await;
    }
    for waiter in dropped.drain(..10) {
        waiter.abort();
    }
    registered::<E>(&fleet, 30).await;
    held.release().await.unwrap();
    // The others give up while the lock is handed on.
    for waiter in dropped {
        served.reaches(8).await;
        waiter.abort();
    }
    all_end(waiters).await;
    served.in_order::<E>(20);
    nothing_is_left(&fleet);
}

async fn shutdown_ends_every_wait_and_leaves_the_queue<E: Exclusive>() {
    let fleet = Fleet::mixed(3);
    let client = connect(builder(fleet.urls())).await;
    let other = connect(builder(fleet.urls())).await;
    let held = E::of(&other, NAME).lock().await.unwrap();
    let waiters: Vec<_> = (0..20)
        .map(|_| tokio::spawn(E::of(&client, NAME).lock()))
        .collect();
    registered::<E>(&fleet, waiters.len()).await;
    assert_eq!(client.shutdown().await, [""; 0]);
    for server in fleet.iter() {
        assert_eq!(line::<E>(server), [""; 0], "{server}");
    }
    for waiter in waiters {
        let answer = timeout(PATIENCE, waiter).await.unwrap().unwrap();
        assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    }
    held.release().await.unwrap();
    nothing_is_left(&fleet);
}
