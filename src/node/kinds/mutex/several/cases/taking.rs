//! Taking all of them.

use super::*;

pub(super) async fn a_set_is_granted_whole_or_not_at_all(trial: &mut Trial<'_>) {
    let taken = say(trial, acquire(&["a", "b"], 1, secs(10), 7)).await;
    assert_eq!(taken, Answer::Granted(7));
    are_held(trial, &[("a", Some(10)), ("b", Some(10))]).await;
    assert_eq!(counters(trial, ["a", "b"]).await, [7, 7]);
    // A set is refused by another set, even by its own, and by a single lock. Nothing is written.
    for owner in [1, 2] {
        let refused = say(trial, acquire(&["b", "c"], owner, secs(10), 20)).await;
        assert_eq!(held(refused, secs(10)), ("b".into(), by(1), 7));
    }
    are_held(trial, &[("c", None)]).await;
    assert_eq!(counters(trial, ["b", "c"]).await, [7, 0]);
    match one::say(trial, one::acquire("b", 3, secs(10), 0)).await {
        Answer::Held {
            holder, counter, ..
        } => assert_eq!((holder, counter), (by(1), 7)),
        other => panic!("{other:?}"),
    }
    // A lock that a single request holds.
    one::say(trial, one::acquire("d", 4, secs(15), 0)).await;
    let refused = say(trial, acquire(&["c", "d", "e"], 2, secs(10), 0)).await;
    assert_eq!(held(refused, secs(15)), ("d".into(), by(4), 1));
    are_held(trial, &[("c", None), ("e", None)]).await;
    // A lock of a set is a lock like any other.
    let extended = one::say(trial, one::extend("a", 1, secs(20))).await;
    assert_eq!(extended, Answer::Extended);
    let freed = one::say(trial, one::release("a", 1)).await;
    assert_eq!(freed, Answer::Released(true));
    let next = say(trial, acquire(&["a", "c"], 2, secs(10), 0)).await;
    assert_eq!(next, Answer::Granted(8));
}

pub(super) async fn a_refusal_names_the_lock_held_for_longest(trial: &mut Trial<'_>) {
    for (n, owner, ttl, floor) in [("b", 2, 10, 50), ("c", 3, 18, 9), ("d", 4, 14, 30)] {
        one::say(trial, one::acquire(n, owner, secs(ttl), floor)).await;
    }
    let refused = say(trial, acquire(&["a", "b", "c", "d"], 1, secs(10), 0)).await;
    assert_eq!(held(refused, secs(18)), ("c".into(), by(3), 50));
    // Two locks that were taken in one step are held for equally long. The first is named.
    say(trial, acquire(&["x", "y"], 5, secs(10), 0)).await;
    let refused = say(trial, acquire(&["w", "x", "y"], 1, secs(10), 0)).await;
    assert_eq!(held(refused, secs(10)), ("x".into(), by(5), 1));
}

pub(super) async fn one_token_is_newer_than_each_names_last(trial: &mut Trial<'_>) {
    for (n, token) in [("a", 5), ("b", 40), ("c", 9)] {
        one::say(trial, one::acquire(n, 1, secs(10), token)).await;
        one::say(trial, one::release(n, 1)).await;
    }
    let granted = say(trial, acquire(&["a", "b", "c", "d"], 2, secs(10), 30)).await;
    assert_eq!(granted, Answer::Granted(41));
    assert_eq!(counters(trial, ["a", "b", "c", "d"]).await, [41; 4]);
    say(trial, release(&["a", "b", "c", "d"], 2, 0)).await;
    let granted = one::say(trial, one::acquire("d", 3, secs(10), 0)).await;
    assert_eq!(granted, Answer::Granted(42));
    one::say(trial, one::release("d", 3)).await;
    let granted = say(trial, acquire(&["a", "d"], 4, secs(10), 100)).await;
    assert_eq!(granted, Answer::Granted(100));
    assert_eq!(counters(trial, ["a", "b", "d"]).await, [100, 41, 100]);
}

pub(super) async fn the_floor_is_capped(trial: &mut Trial<'_>) {
    let from = trial.wall_us().await + 20_000_000;
    let Answer::Granted(token) = say(trial, acquire(&["a", "b"], 1, secs(10), u64::MAX)).await
    else {
        panic!()
    };
    let to = trial.wall_us().await + 20_000_000 + 1000;
    assert!((from..to).contains(&token), "{token} from {from}");
    assert_eq!(counters(trial, ["a", "b"]).await, [token, token]);
}

pub(super) async fn a_set_may_have_one_to_sixty_four_names(trial: &mut Trial<'_>) {
    let taken = say(trial, acquire(&["z"], 1, secs(10), 3)).await;
    assert_eq!(taken, Answer::Granted(3));
    let all: Vec<String> = (10..74).map(|n| format!("n:{n}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let taken = say(trial, acquire(&all, 1, secs(10), 8)).await;
    assert_eq!(taken, Answer::Granted(8));
    assert_eq!(say(trial, raise(&all, 1, 9)).await, Answer::Raised(9));
    assert_eq!(
        say(trial, extend(&all, 1, secs(20))).await,
        Answer::Extended
    );
    let repaired = say(trial, repair(&all, 1, secs(20), 10)).await;
    assert_eq!(repaired, Answer::Repaired(true));
    are_held(trial, &[("n:10", Some(20)), ("n:73", Some(20))]).await;
    assert_eq!(counters(trial, ["n:10", "n:73"]).await, [10, 10]);
    assert_eq!(
        say(trial, release(&all, 1, 0)).await,
        Answer::Released(true)
    );
    are_held(trial, &[("n:10", None), ("n:73", None), ("z", Some(10))]).await;
}

pub(super) async fn one_exhausted_counter_fails_the_whole_set(trial: &mut Trial<'_>) {
    trial
        .change(Change::Counter(name("b"), one::MAX_TOKEN))
        .await;
    let refused = trial.error(acquire(&["a", "b"], 1, secs(10), 0)).await;
    assert_eq!(refused, "EXHAUSTED");
    are_held(trial, &[("a", None), ("b", None)]).await;
    assert_eq!(counters(trial, ["a"]).await, [0]);
    one::say(trial, one::acquire("a", 2, secs(10), 0)).await;
    let refused = say(trial, acquire(&["a", "b"], 1, secs(10), 0)).await;
    assert_eq!(held(refused, secs(10)), ("a".into(), by(2), one::MAX_TOKEN));
}

pub(super) async fn counters_rotate_once(trial: &mut Trial<'_>) {
    for (n, token) in [("a", 5), ("b", 40)] {
        one::say(trial, one::acquire(n, 1, secs(10), token)).await;
        one::say(trial, one::release(n, 1)).await;
    }
    trial.change(Change::Age(one::DAY * 3)).await;
    let granted = say(trial, acquire(&["a", "c"], 2, secs(10), 0)).await;
    assert_eq!(granted, Answer::Granted(6));
    assert_eq!(counters(trial, ["a", "b", "c"]).await, [6, 40, 6]);
    // The counters rotated already, so c0 is young.
    let granted = say(trial, acquire(&["b", "d"], 3, secs(10), 0)).await;
    assert_eq!(granted, Answer::Granted(41));
    assert_eq!(counters(trial, ["a", "b", "c", "d"]).await, [6, 41, 6, 41]);
    // RAISE and REPAIR start from the previous counters.
    trial.change(Change::Age(one::DAY * 3)).await;
    one::say(trial, one::acquire("z", 9, secs(10), 0)).await;
    assert_eq!(
        say(trial, raise(&["b", "d"], 3, 7)).await,
        Answer::Raised(41)
    );
    let repaired = say(trial, repair(&["a", "c"], 2, secs(10), 50)).await;
    assert_eq!(repaired, Answer::Repaired(true));
    assert_eq!(
        counters(trial, ["a", "b", "c", "d"]).await,
        [50, 41, 50, 41]
    );
}

pub(super) async fn a_full_server_takes_nothing(trial: &mut Trial<'_>) {
    say(trial, acquire(&["a", "b"], 1, secs(10), 5)).await;
    trial.change(Change::Full(true)).await;
    assert_eq!(
        trial.error(acquire(&["c", "d"], 2, secs(10), 9)).await,
        "OOM"
    );
    assert_eq!(trial.error(raise(&["a", "b"], 1, 9)).await, "OOM");
    assert_eq!(
        trial.error(repair(&["a", "b"], 1, secs(15), 9)).await,
        "OOM"
    );
    assert_eq!(
        trial.error(repair(&["a", "c"], 1, secs(15), 0)).await,
        "OOM"
    );
    are_held(trial, &[("a", Some(10)), ("b", Some(10)), ("c", None)]).await;
    assert_eq!(counters(trial, ["a", "b", "c"]).await, [5, 5, 0]);
    let extended = say(trial, extend(&["a", "b"], 1, secs(15))).await;
    assert_eq!(extended, Answer::Extended);
    let repaired = say(trial, repair(&["a", "b"], 1, secs(20), 5)).await;
    assert_eq!(repaired, Answer::Repaired(true));
    are_held(trial, &[("a", Some(20)), ("b", Some(20))]).await;
    let freed = say(trial, release(&["a", "b"], 1, 0)).await;
    assert_eq!(freed, Answer::Released(true));
    are_held(trial, &[("a", None), ("b", None)]).await;
}
