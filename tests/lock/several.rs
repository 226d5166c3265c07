//! Several names at once, on in-process nodes.

use std::{future::Future, time::Duration};

use crate::support::HANG;
use quorate::{Error, Quorum};
use tokio::time::{sleep, timeout};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs a future that must end within half of the default ttl, so nothing here waits for a lease to expire.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(ms(5_000), future).await.expect("in time")
}

#[tokio::test]
async fn all_are_locked_or_none() {
    let quorum = Quorum::in_memory(3);
    let lease = quorum.mutex_all(["b", "a", "b"]).lock().await.unwrap();
    assert_eq!(lease.name(), "a, b");
    for name in ["a", "b"] {
        assert!(quorum.mutex(name).try_lock().await.unwrap().is_none());
    }
    let other = quorum.mutex_all(["b", "c"]);
    assert!(other.try_lock().await.unwrap().is_none());
    let c = quorum.mutex("c").try_lock().await.unwrap();
    assert!(c.is_some(), "what was not won is not held");
    lease.release().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_none(), "c is held");
    drop(c);
    soon(other.lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn one_token_that_is_newer_than_the_last_of_each_name() {
    let quorum = Quorum::in_memory(5);
    let mut last = None;
    for names in [
        vec!["a"],
        vec!["b"],
        vec!["a", "b"],
        vec!["b", "c"],
        vec!["a", "c"],
        vec!["c"],
    ] {
        let lease = soon(quorum.mutex_all(names).lock()).await.unwrap();
        assert!(Some(lease.token()) > last);
        last = Some(lease.token());
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_single_name_is_a_mutex_and_queues() {
    let quorum = Quorum::in_memory(3);
    let lease = quorum.mutex_all(["a"]).lock().await.unwrap();
    assert_eq!(lease.name(), "a");
    let waits = tokio::spawn(quorum.mutex_all(["a"]).lock());
    while quorum.inspect("a").await.unwrap().line().is_empty() {}
    lease.release().await.unwrap();
    drop(soon(waits).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_queued_waiter_for_one_of_the_names_comes_first() {
    let quorum = Quorum::in_memory(3);
    let both = quorum.mutex_all(["a", "b"]);
    let lease = both.lock().await.unwrap();
    let lines: Vec<_> = ["a", "b"]
        .map(|name| tokio::spawn(quorum.mutex(name).lock()))
        .into();
    for name in ["a", "b"] {
        while quorum.inspect(name).await.unwrap().line().is_empty() {}
    }
    let again = tokio::spawn(both.lock());
    sleep(ms(30)).await;
    lease.release().await.unwrap();
    let mut held = Vec::new();
    for line in lines {
        held.push(soon(line).await.unwrap().unwrap());
    }
    assert!(!again.is_finished());
    drop(held);
    drop(soon(again).await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_set_is_renewed_extended_lost_and_evicted_as_a_whole() {
    let quorum = Quorum::in_memory(3);
    let both = quorum.mutex_all(["a", "b"]).ttl(ms(300));
    let lease = both.lock().await.unwrap();
    sleep(ms(600)).await;
    assert!(lease.is_valid());
    lease.extend().await.unwrap();
    assert!(quorum.evict("b").await.unwrap());
    soon(lease.lost()).await;
    drop(lease);
    drop(soon(quorum.mutex("a").lock()).await.unwrap());
}

#[tokio::test]
async fn empty_oversized_and_badly_named_sets_are_invalid() {
    let quorum = Quorum::in_memory(3);
    let none: [&str; 0] = [];
    let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
    for mutex in [
        quorum.mutex_all(none),
        quorum.mutex_all(many),
        quorum.mutex_all(["a", ""]),
    ] {
        assert!(matches!(mutex.validate(), Err(Error::Invalid(_))));
        assert!(matches!(mutex.lock().await, Err(Error::Invalid(_))));
    }
    let most: Vec<String> = (0..64).map(|n| n.to_string()).collect();
    drop(soon(quorum.mutex_all(most).lock()).await.unwrap());
}

/// This holds for every client and every order of the names.
#[tokio::test]
async fn sets_that_overlap_do_not_wait_for_each_other_for_ever() {
    let quorum = Quorum::in_memory(3);
    let names = ["a", "b", "c", "d"];
    let tasks: Vec<_> = (0..12usize)
        .map(|task| {
            let quorum = quorum.clone();
            tokio::spawn(async move {
                for turn in 0..10usize {
                    let at = |n: usize| names[(task * 7 + turn * 3 + n) % 4];
                    let lease = quorum.mutex_all([at(1), at(0)]).lock().await.unwrap();
                    lease.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(HANG, task).await.expect("no deadlock").unwrap();
    }
}
