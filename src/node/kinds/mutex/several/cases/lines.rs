//! Sets of locks, some of which have a queue.

use tokio::time::sleep;

use super::*;
use crate::node::{
    Says,
    mutex::cases::{NOBODY, P, granted, join, line, millis, next, owners, place, push, stand},
    request::Place,
};

/// Frees the lock without serving its queue.
async fn free_unserved(trial: &mut Trial<'_>, n: &str) {
    one::say(trial, one::evict(n)).await;
}

pub(super) async fn a_set_does_not_overtake_a_queue(trial: &mut Trial<'_>) {
    stand(trial, "b", &[(2, place(3, 50)), (3, place(2, 60))]).await;
    // The lock is held, and its queue is not served.
    let refused = say(trial, acquire(&["a", "b"], 9, secs(10), P)).await;
    assert_eq!(held(refused, secs(15)), ("b".into(), by(1), 1));
    assert_eq!(trial.pushes().await, []);
    free_unserved(trial, "b").await;
    let refused = say(trial, acquire(&["a", "b", "c"], 9, secs(10), P)).await;
    assert_eq!(held(refused, secs(13)), ("b".into(), by(2), P));
    assert_eq!(trial.pushes().await, [granted(2, 3, P), next(3, 10)]);
    are_held(trial, &[("a", None), ("b", Some(13)), ("c", None)]).await;
    assert_eq!(counters(trial, ["a", "b", "c"]).await, [0, P, 0]);
    // Two queues at once, and a lock that is held for longer than both.
    for n in ["d", "e"] {
        stand(trial, n, &[(4, place(1, 50))]).await;
        free_unserved(trial, n).await;
    }
    one::say(trial, one::acquire("f", 6, secs(19), 0)).await;
    let refused = say(trial, acquire(&["a", "d", "e", "f"], 9, secs(10), P + 5)).await;
    assert_eq!(held(refused, secs(19)), ("f".into(), by(6), P + 5));
    let handed = [granted(4, 1, P + 5), granted(4, 1, P + 5)];
    assert_eq!(trial.pushes().await, handed);
}

pub(super) async fn dead_waiters_do_not_block_a_set(trial: &mut Trial<'_>) {
    let dead = (
        2,
        Place {
            life: millis(10),
            ..place(1, 50)
        },
    );
    let deaf = (
        3,
        Place {
            channel: NOBODY.into(),
            ..place(1, 60)
        },
    );
    stand(trial, "b", &[dead, deaf]).await;
    free_unserved(trial, "b").await;
    sleep(millis(20)).await;
    // A token was made for the waiter that does not hear.
    let taken = say(trial, acquire(&["a", "b"], 9, secs(10), P)).await;
    assert_eq!(taken, Answer::Granted(P + 1));
    assert_eq!(trial.pushes().await, []);
    assert_eq!(line(trial, "b").await, owners(&[]));
    assert_eq!(counters(trial, ["a", "b"]).await, [P + 1, P + 1]);
    are_held(trial, &[("a", Some(10)), ("b", Some(10))]).await;
}

pub(super) async fn a_called_head_keeps_its_lock_from_a_set(trial: &mut Trial<'_>) {
    let stale = (
        2,
        Place {
            term: millis(10),
            ..place(1, 50)
        },
    );
    stand(trial, "b", std::slice::from_ref(&stale)).await;
    free_unserved(trial, "b").await;
    sleep(millis(20)).await;
    for pushes in [vec![push(2, Says::Called)], vec![]] {
        let refused = say(trial, acquire(&["a", "b"], 9, secs(10), P)).await;
        assert_eq!(held(refused, secs(7)), ("b".into(), by(2), 1));
        assert_eq!(trial.pushes().await, pushes);
    }
    are_held(trial, &[("a", None), ("b", None)]).await;
    let came = one::say(trial, join("b", &(stale.0, Place { seq: 2, ..stale.1 }))).await;
    let (counter, seq) = (P, 2);
    assert_eq!(came, Answer::Taken { counter, seq });
}

pub(super) async fn a_release_of_a_set_serves_every_queue(trial: &mut Trial<'_>) {
    let all = ["a", "b", "c", "d"];
    say(trial, acquire(&all, 1, secs(15), 5)).await;
    for (n, queued) in [
        ("a", (2, place(1, 50))),
        ("c", (3, place(4, 60))),
        ("c", (4, place(2, 70))),
    ] {
        one::say(trial, join(n, &queued)).await;
    }
    // A queue at a lock that is free, and one at a lock that another entry has.
    stand(trial, "e", &[(5, place(1, 50))]).await;
    stand(trial, "f", &[(6, place(1, 50))]).await;
    free_unserved(trial, "e").await;
    let freed = say(trial, release(&["a", "b", "c", "d", "e", "f"], 1, P)).await;
    assert_eq!(freed, Answer::Released(true));
    let pushes = [
        granted(2, 1, P),
        granted(3, 4, P),
        next(4, 10),
        granted(5, 1, P),
        granted(6, 1, P),
    ];
    assert_eq!(trial.pushes().await, pushes);
    are_held(trial, &[("b", None), ("d", None)]).await;
    for (n, owner) in [("a", 2), ("c", 3), ("e", 5), ("f", 6)] {
        let holder = one::holder(trial, n).await;
        assert_eq!(holder, Some(entry(owner).as_str().to_owned()), "{n}");
    }
    assert_eq!(counters(trial, all).await, [P, 5, P, 5]);
    // Locks of other entries stay.
    let freed = say(trial, release(&all, 1, P)).await;
    assert_eq!(freed, Answer::Released(false));
    assert_eq!(trial.pushes().await, []);
    are_held(trial, &[("a", Some(13)), ("c", Some(13))]).await;
}

pub(super) async fn a_full_server_hands_over_from_a_set(trial: &mut Trial<'_>) {
    say(trial, acquire(&["a", "b"], 1, secs(15), 5)).await;
    one::say(trial, join("b", &(2, place(1, 50)))).await;
    stand(trial, "c", &[(3, place(1, 50))]).await;
    free_unserved(trial, "c").await;
    trial.change(Change::Full(true)).await;
    // No token can be made for the waiter, so nobody gets the lock.
    let refused = say(trial, acquire(&["c", "d"], 9, secs(10), P)).await;
    assert_eq!(held(refused, secs(0)), ("c".into(), None, 1));
    let freed = say(trial, release(&["a", "b"], 1, P)).await;
    assert_eq!(freed, Answer::Released(true));
    assert_eq!(trial.pushes().await, [granted(2, 1, P)]);
}
