//! The waiter that gets a free lock (protocol §5).

use tokio::time::sleep;

use super::*;
use crate::node::Says;

pub(super) async fn a_release_hands_over_to_the_head(trial: &mut Trial<'_>) {
    let (two, three, four) = ((2, place(3, 50)), (3, place(2, 60)), (4, place(2, 70)));
    stand(trial, "a", &[two.clone(), three, four]).await;
    let released = say(trial, free("a", 1)).await;
    assert_eq!(released, Answer::Released(true));
    // p is that of the client that released. The head has the lock for S and the lock-delay. The next waiter is told to
    // ask when S is over.
    assert_eq!(trial.pushes().await, [granted(2, 3, P), next(3, 10)]);
    assert_eq!(counter(trial, "a").await, P);
    assert_eq!(line(trial, "a").await, owners(&[3, 4]));
    let (by, last, left) = refused(trial, "a").await;
    assert_eq!((by, last), (Some(entry(2).text()), 70));
    assert!(about(left, secs(13)), "{left:?}");
    // A heartbeat that crossed the push finds that its waiter has the lock, by the request that registered it.
    let heartbeat = (two.0, Place { seq: 4, ..two.1 });
    assert_eq!(say(trial, join("a", &heartbeat)).await, taken(P, 3));
    // A smaller p still gives a greater token, and a p far ahead is capped.
    say(trial, release_for("a", 2, 5)).await;
    assert_eq!(trial.pushes().await, [granted(3, 2, P + 1), next(4, 10)]);
    let before = trial.wall_us().await;
    say(trial, release_for("a", 3, MAX_TOKEN)).await;
    let token = counter(trial, "a").await;
    let cap = before + MAX_TTL.as_micros() as u64;
    assert!((cap - 2_000_000..cap + 20_000_000).contains(&token));
    assert_eq!(trial.pushes().await, [granted(4, 2, token)]);
    assert_eq!(say(trial, free("a", 4)).await, Answer::Released(true));
    assert_eq!(trial.pushes().await, []);
    assert_eq!(holder(trial, "a").await, None);
}

pub(super) async fn a_head_that_nobody_hears_is_dropped(trial: &mut Trial<'_>) {
    let deaf = (
        2,
        Place {
            channel: NOBODY.into(),
            ..place(1, 50)
        },
    );
    // It is not fresh, so it would be called. Nobody hears that either.
    let stale = (
        3,
        Place {
            term: millis(1),
            ticket: 55,
            ..deaf.1.clone()
        },
    );
    stand(trial, "a", &[deaf.clone(), stale, (4, place(1, 60))]).await;
    sleep(millis(20)).await;
    say(trial, free("a", 1)).await;
    assert_eq!(trial.pushes().await, [granted(4, 1, P)], "one token");
    assert_eq!(line(trial, "a").await, owners(&[]));
    // If it asks again, it has its place as before.
    let again = say(trial, join("a", &deaf)).await;
    assert_eq!(in_line(again).0, 0);
}

pub(super) async fn a_new_waiter_is_not_told_that_it_is_next(trial: &mut Trial<'_>) {
    for (n, head, seq, term, waits, is_told) in [
        // It asks again within 2.5 s.
        ("a", secs(10), 1, secs(10), 0, false),
        ("b", secs(10), 2, secs(10), 0, true),
        // It should have asked after 100 ms.
        ("c", secs(10), 1, millis(400), 150, true),
        // The hand-over ends before it asks again.
        ("d", secs(2), 1, secs(10), 0, true),
    ] {
        let head = (
            2,
            Place {
                term: head,
                ..place(1, 50)
            },
        );
        let next = (
            3,
            Place {
                term,
                ..place(seq, 60)
            },
        );
        stand(trial, n, &[head.clone(), next]).await;
        sleep(millis(waits)).await;
        say(trial, free(n, 1)).await;
        let after = head.1.term;
        let mut wanted = vec![granted(2, 1, P)];
        wanted.extend(is_told.then(|| push(3, Says::Next { after })));
        assert_eq!(trial.pushes().await, wanted, "{n}");
    }
    let deaf = (
        4,
        Place {
            channel: NOBODY.into(),
            ..place(2, 70)
        },
    );
    stand(trial, "e", &[(2, place(1, 50)), (3, place(1, 60)), deaf]).await;
    say(trial, free("e", 1)).await;
    assert_eq!(
        trial.pushes().await,
        [granted(2, 1, P)],
        "nobody hears the last"
    );
}

/// (`tests/lock/queue/dead.rs` shows that a waiter of another process is told rather than one of the head's own: that
/// takes two processes.)
pub(super) async fn the_next_waiter_is_told_if_nobody_hears_the_last_one(trial: &mut Trial<'_>) {
    let (two, three) = ((2, place(1, 50)), (3, place(2, 60)));
    for (n, channel) in [("a", NOBODY), ("b", "")] {
        let last = (
            4,
            Place {
                channel: channel.into(),
                ..place(1, 70)
            },
        );
        stand(trial, n, &[two.clone(), three.clone(), last]).await;
        say(trial, free(n, 1)).await;
        let pushes = trial.pushes().await;
        assert_eq!(pushes, [granted(2, 1, P), next(3, 10)], "{n}");
    }
    // The next waiter is of another process: it is told, and does not hear it.
    let deaf = (
        3,
        Place {
            channel: NOBODY.into(),
            ..three.1
        },
    );
    stand(trial, "c", &[two, deaf, (4, place(1, 70))]).await;
    say(trial, free("c", 1)).await;
    assert_eq!(trial.pushes().await, [granted(2, 1, P)]);
}

pub(super) async fn a_head_that_is_not_fresh_is_called(trial: &mut Trial<'_>) {
    let stale = (
        2,
        Place {
            term: millis(400),
            ..place(1, 50)
        },
    );
    stand(trial, "a", &[stale.clone(), (3, place(2, 60))]).await;
    sleep(millis(300)).await;
    say(trial, free("a", 1)).await;
    assert_eq!(
        trial.pushes().await,
        [push(2, Says::Called), next(3, 7)],
        "it is told after the claim"
    );
    // The lock is free, and kept from all but the waiter that was called.
    assert_eq!(holder(trial, "a").await, None);
    let (by, last, left) = refused(trial, "a").await;
    assert_eq!((by, last), (Some(entry(2).text()), 60));
    assert!(about(left, secs(7)), "{left:?}");
    let (rank, ahead) = in_line(say(trial, join("a", &(3, place(2, 60)))).await);
    assert_eq!((rank, ahead.ticket, ahead.is_reserved), (1, 50, true));
    assert_eq!(ahead.holder, Some(entry(2).text()));
    assert!(about(ahead.remaining.unwrap(), secs(7)));
    assert_eq!(counter(trial, "a").await, 1, "nothing was granted");
    assert_eq!(trial.pushes().await, [], "it is called once");
    let came = say(trial, join("a", &(stale.0, Place { seq: 2, ..stale.1 }))).await;
    assert_eq!(came, taken(P, 2));
    assert_eq!(line(trial, "a").await, owners(&[3]));
}

pub(super) async fn the_reservation_ends_when_the_called_waiter_asks_again(trial: &mut Trial<'_>) {
    let stale = (
        2,
        Place {
            term: millis(10),
            ..place(1, 50)
        },
    );
    stand(trial, "a", std::slice::from_ref(&stale)).await;
    sleep(millis(20)).await;
    say(trial, free("a", 1)).await;
    assert_eq!(trial.pushes().await, [push(2, Says::Called)]);
    // A waiter with a smaller ticket is the head now, and takes the lock. The one that was called asks again, and is
    // fresh.
    assert_eq!(say(trial, join("a", &(3, place(1, 40)))).await, taken(P, 1));
    let again = say(trial, join("a", &(2, place(2, 50)))).await;
    assert_eq!(in_line(again).1.ticket, 40);
    say(trial, free("a", 3)).await;
    assert_eq!(trial.pushes().await, [granted(2, 2, P + 1)]);
}

pub(super) async fn a_called_waiter_that_does_not_come_is_dropped(trial: &mut Trial<'_>) {
    let absent = (
        2,
        Place {
            term: millis(10),
            claim: millis(30),
            ..place(1, 50)
        },
    );
    stand(trial, "a", &[absent, (3, place(1, 60))]).await;
    sleep(millis(20)).await;
    say(trial, free("a", 1)).await;
    let after = millis(30);
    let called = [push(2, Says::Called), push(3, Says::Next { after })];
    assert_eq!(trial.pushes().await, called);
    sleep(millis(60)).await;
    // The next request finds that out. An ACQUIRE does not overtake the queue.
    let (by, last, _) = refused(trial, "a").await;
    assert_eq!((by, last), (Some(entry(3).text()), 60));
    assert_eq!(trial.pushes().await, [granted(3, 1, P)]);
}

pub(super) async fn dead_waiters_do_not_block_the_queue(trial: &mut Trial<'_>) {
    let dead = (
        2,
        Place {
            life: millis(10),
            ..place(1, 50)
        },
    );
    stand(trial, "a", &[dead.clone(), (3, place(1, 60))]).await;
    sleep(millis(20)).await;
    say(trial, free("a", 1)).await;
    assert_eq!(trial.pushes().await, [granted(3, 1, P)]);
    // No living waiter is left: an ACQUIRE is granted.
    let deaf = (
        4,
        Place {
            channel: NOBODY.into(),
            ..place(1, 60)
        },
    );
    stand(trial, "b", &[dead.clone(), deaf.clone()]).await;
    sleep(millis(20)).await;
    say(trial, release_for("b", 99, P)).await;
    say(trial, evict("b")).await;
    let granted = refused_or_granted(trial, "b").await;
    assert!(matches!(granted, Answer::Granted(_)), "{granted:?}");
    assert_eq!(line(trial, "b").await, owners(&[]));
    // A JOIN behind them is granted too.
    stand(trial, "c", &[dead, deaf]).await;
    sleep(millis(20)).await;
    say(trial, evict("c")).await;
    let (joined, c) = (
        say(trial, join("c", &(5, place(1, 70)))).await,
        counter(trial, "c").await,
    );
    assert_eq!(joined, taken(c, 1));
    assert_eq!(c, P, "one token for all of them");
    assert_eq!(trial.pushes().await, []);
}

pub(super) async fn the_lock_is_kept_for_a_head_without_a_channel(trial: &mut Trial<'_>) {
    let polls = (
        2,
        Place {
            channel: "".into(),
            ..place(1, 50)
        },
    );
    stand(trial, "a", &[polls.clone(), (3, place(2, 60))]).await;
    say(trial, free("a", 1)).await;
    assert_eq!(trial.pushes().await, [next(3, 7)]);
    let (by, _, left) = refused(trial, "a").await;
    assert_eq!(by, Some(entry(2).text()));
    assert!(about(left, secs(7)), "{left:?}");
    assert_eq!(say(trial, join("a", &polls)).await, taken(P, 1));
}

pub(super) async fn a_full_server_hands_over(trial: &mut Trial<'_>) {
    stand(trial, "a", &[(2, place(1, 50))]).await;
    trial.change(Change::Full(true)).await;
    let third = (3, place(1, 60));
    assert_eq!(trial.error(join("a", &third)).await, "OOM");
    assert_eq!(trial.error(give_back("a", third, P)).await, "OOM");
    assert_eq!(line(trial, "a").await, owners(&[2]));
    // DEL comes first, so the script may write.
    assert_eq!(say(trial, free("a", 1)).await, Answer::Released(true));
    assert_eq!(trial.pushes().await, [granted(2, 1, P)]);
}

pub(super) async fn a_release_succeeds_although_the_counter_is_exhausted(trial: &mut Trial<'_>) {
    stand(trial, "a", &[(2, place(1, 50))]).await;
    trial.change(Change::Counter(name("a"), MAX_TOKEN)).await;
    assert_eq!(say(trial, free("a", 1)).await, Answer::Released(true));
    assert_eq!(trial.pushes().await, []);
    assert_eq!(holder(trial, "a").await, None, "it is free");
    let refused = trial.error(acquire("a", 9, secs(10), P)).await;
    assert_eq!(refused, "EXHAUSTED");
    assert_eq!(
        trial.error(join("a", &(2, place(2, 50)))).await,
        "EXHAUSTED"
    );
    assert_eq!(line(trial, "a").await, owners(&[2]));
}

pub(super) async fn a_hand_over_finds_the_previous_counters(trial: &mut Trial<'_>) {
    for n in ["a", "b"] {
        say(trial, acquire(n, 1, secs(10), P + 50)).await;
        say(trial, free(n, 1)).await;
    }
    for n in ["a", "b"] {
        stand(trial, n, &[(2, place(1, 50))]).await;
    }
    trial.change(Change::Age(DAY * 3)).await;
    // The first hand-over rotates the counters, and the second finds its own in the previous ones.
    let frees = ["a", "b"].map(|n| free(n, 1).into());
    trial.ask_all(&frees).await;
    let tokens = [granted(2, 1, P + 52), granted(2, 1, P + 52)];
    assert_eq!(trial.pushes().await, tokens);
    for n in ["a", "b"] {
        assert_eq!(counter(trial, n).await, P + 52, "{n}");
    }
}
