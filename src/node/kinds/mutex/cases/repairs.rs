//! Leases that are put back.

use std::time::Duration;

use tokio::time::sleep;

use super::*;

pub(super) async fn a_repair_restores_a_mutex_that_no_other_owner_holds(trial: &mut Trial<'_>) {
    // It needs all its digits, and no smaller token would do.
    const TOKEN: u64 = 1_760_000_000_123_457;
    let repaired = Answer::Repaired(true);
    assert_eq!(say(trial, repair("a", 1, secs(10), TOKEN)).await, repaired);
    assert!(about(remaining(trial, "a").await.unwrap(), secs(10)));
    assert_eq!(counter(trial, "a").await, TOKEN);

    let anothers = say(trial, repair("a", 2, secs(20), TOKEN + 9)).await;
    assert_eq!(anothers, Answer::Repaired(false));
    // Otherwise the free lock would be kept for the other entry.
    assert_eq!(say(trial, release("a", 2)).await, Answer::Released(false));
    let (left, c, who) = held(say(trial, acquire("a", 2, secs(10), 0)).await);
    assert_eq!((c, who), (TOKEN, Some(entry(1).text())));
    assert!(about(left, secs(10)), "{left:?}");

    assert_eq!(say(trial, repair("a", 1, secs(5), TOKEN)).await, repaired);
    assert!(
        about(remaining(trial, "a").await.unwrap(), secs(10)),
        "shortened"
    );
    assert_eq!(say(trial, repair("a", 1, secs(20), 9)).await, repaired);
    assert!(about(remaining(trial, "a").await.unwrap(), secs(20)));
    assert_eq!(counter(trial, "a").await, TOKEN, "never lowered");
    assert_eq!(
        say(trial, repair("a", 1, secs(20), TOKEN + 1)).await,
        repaired
    );
    assert_eq!(counter(trial, "a").await, TOKEN + 1);

    // It is a lock like any other.
    assert_eq!(say(trial, extend("a", 1, secs(20))).await, Answer::Extended);
    assert_eq!(say(trial, release("a", 1)).await, Answer::Released(true));
    let next = say(trial, acquire("a", 3, secs(10), 0)).await;
    assert_eq!(next, Answer::Granted(TOKEN + 2));

    say(trial, acquire("b", 1, Duration::from_millis(20), 9)).await;
    sleep(Duration::from_millis(40)).await;
    let expired = say(trial, repair("b", 1, secs(10), 10)).await;
    assert_eq!(expired, repaired);
    assert_eq!(counter(trial, "b").await, 10, "9 is less than 10");
}

pub(super) async fn a_lock_is_kept_for_the_owner_whose_repair_was_refused(trial: &mut Trial<'_>) {
    say(trial, acquire("a", 1, secs(10), 5)).await;
    let repaired = say(trial, repair("a", 2, secs(10), 9)).await;
    assert_eq!(repaired, Answer::Repaired(false));
    assert_eq!(say(trial, release("a", 1)).await, Answer::Released(true));
    let (left, _, who) = held(say(trial, acquire("a", 3, secs(10), 0)).await);
    assert_eq!(who, Some(entry(2).text()));
    assert!(about(left, secs(10)), "{left:?}");
    let repaired = say(trial, repair("a", 2, secs(10), 9)).await;
    assert_eq!(repaired, Answer::Repaired(true));
    assert_eq!(say(trial, release("a", 2)).await, Answer::Released(true));
    let next = say(trial, acquire("a", 3, secs(10), 0)).await;
    assert_eq!(next, Answer::Granted(10), "nobody stands in line any more");

    // The lock is not kept for ever.
    say(trial, acquire("b", 1, secs(10), 5)).await;
    say(trial, repair("b", 2, Duration::from_millis(50), 9)).await;
    say(trial, release("b", 1)).await;
    sleep(Duration::from_millis(120)).await;
    let next = say(trial, acquire("b", 3, secs(10), 0)).await;
    assert_eq!(next, Answer::Granted(6));
}

pub(super) async fn a_repair_finds_the_previous_counters(trial: &mut Trial<'_>) {
    for n in ["a", "b"] {
        say(trial, acquire(n, 1, secs(10), 50)).await;
        say(trial, release(n, 1)).await;
    }
    trial.change(Change::Age(DAY * 3)).await;
    say(trial, acquire("z", 1, secs(10), 0)).await;
    for (n, token, stands) in [("a", 40, 50), ("b", 60, 60), ("c", 70, 70)] {
        let repaired = say(trial, repair(n, 2, secs(10), token)).await;
        assert_eq!(repaired, Answer::Repaired(true));
        assert_eq!(counter(trial, n).await, stands, "{n}");
        say(trial, release(n, 2)).await;
        let next = say(trial, acquire(n, 3, secs(10), 0)).await;
        assert_eq!(next, Answer::Granted(stands + 1), "{n}");
    }
}

pub(super) async fn an_evicted_lock_is_not_repaired(trial: &mut Trial<'_>) {
    say(trial, acquire("a", 1, secs(10), 5)).await;
    // An eviction also counts on a node that did not have the lock.
    for (n, holder) in [("a", Some(1)), ("b", None)] {
        assert_eq!(say(trial, evict(n)).await, evicted(holder));
        let repaired = say(trial, repair(n, 1, secs(10), 9)).await;
        assert_eq!(repaired, Answer::Repaired(false), "{n}");
        assert_eq!(remaining(trial, n).await, None, "{n}");
    }
    assert_eq!(counter(trial, "a").await, 5);
    let next = say(trial, acquire("a", 2, secs(10), 0)).await;
    assert_eq!(next, Answer::Granted(6), "free for others at once");
    let other = say(trial, repair("c", 1, secs(10), 9)).await;
    assert_eq!(other, Answer::Repaired(true), "another name");

    trial.restart_with(Duration::from_millis(20)).await;
    say(trial, evict("d")).await;
    sleep(Duration::from_millis(60)).await;
    let later = say(trial, repair("d", 1, secs(10), 9)).await;
    assert_eq!(later, Answer::Repaired(true));
}
