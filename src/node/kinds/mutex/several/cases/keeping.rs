//! Keeping all of them, and releasing them.

use tokio::time::sleep;

use super::*;

pub(super) async fn a_raise_needs_all_of_them(trial: &mut Trial<'_>) {
    say(trial, acquire(&["a", "b"], 1, secs(10), 5)).await;
    one::say(trial, one::raise("b", 1, 20)).await;
    for (of, owner) in [(["a", "b"], 2), (["a", "c"], 1), (["c", "d"], 1)] {
        assert_eq!(say(trial, raise(&of, owner, 50)).await, Answer::Lost);
    }
    assert_eq!(counters(trial, ["a", "b", "c"]).await, [5, 20, 0]);
    let both = ["a", "b"];
    assert_eq!(say(trial, raise(&both, 1, 9)).await, Answer::Raised(9));
    assert_eq!(counters(trial, both).await, [9, 20]);
    assert_eq!(say(trial, raise(&both, 1, 30)).await, Answer::Raised(30));
    assert_eq!(counters(trial, both).await, [30, 30]);
    assert_eq!(say(trial, raise(&both, 1, 10)).await, Answer::Raised(30));
    let ahead = 60_000_000 + 20_000_000;
    let from = trial.wall_us().await + ahead;
    let Answer::Raised(raised) = say(trial, raise(&both, 1, one::MAX_TOKEN)).await else {
        panic!()
    };
    let to = trial.wall_us().await + ahead;
    assert!((from..=to).contains(&raised), "{raised}");
    assert_eq!(counters(trial, both).await, [raised, raised]);
}

pub(super) async fn an_extension_needs_all_of_them(trial: &mut Trial<'_>) {
    let both = ["a", "b"];
    say(trial, acquire(&both, 1, secs(10), 5)).await;
    for (of, owner) in [(["a", "b"], 2), (["a", "c"], 1)] {
        assert_eq!(say(trial, extend(&of, owner, secs(20))).await, Answer::Lost);
    }
    are_held(trial, &[("a", Some(10)), ("b", Some(10)), ("c", None)]).await;
    for (ttl, left) in [(15, 15), (5, 15), (20, 20)] {
        let extended = say(trial, extend(&both, 1, secs(ttl))).await;
        assert_eq!(extended, Answer::Extended);
        are_held(trial, &[("a", Some(left)), ("b", Some(left))]).await;
    }
    let short = Duration::from_millis(600);
    say(trial, acquire(&["c", "d"], 1, short, 5)).await;
    one::say(trial, one::extend("c", 1, secs(20))).await;
    sleep(short + Duration::from_millis(50)).await;
    let extended = say(trial, extend(&["c", "d"], 1, secs(20))).await;
    assert_eq!(extended, Answer::Lost);
    are_held(trial, &[("c", Some(20)), ("d", None)]).await;
    let next = say(trial, acquire(&["d", "e"], 2, secs(10), 0)).await;
    assert_eq!(next, Answer::Granted(6), "what has expired is free");
}

pub(super) async fn a_repair_restores_the_missing_names(trial: &mut Trial<'_>) {
    // It needs all its digits, and no smaller token would do.
    const TOKEN: u64 = 1_760_000_000_123_457;
    let (all, repaired) = (["a", "b", "c"], Answer::Repaired(true));
    say(trial, acquire(&["a", "b"], 1, secs(18), 5)).await;
    one::say(trial, one::release("b", 1)).await;
    let put = say(trial, repair(&all, 1, secs(10), TOKEN)).await;
    assert_eq!(put, repaired);
    are_held(trial, &[("a", Some(18)), ("b", Some(10)), ("c", Some(10))]).await;
    assert_eq!(counters(trial, all).await, [TOKEN; 3]);
    // Counters are never lowered.
    assert_eq!(say(trial, repair(&all, 1, secs(20), 9)).await, repaired);
    are_held(trial, &[("a", Some(20)), ("b", Some(20)), ("c", Some(20))]).await;
    assert_eq!(counters(trial, all).await, [TOKEN; 3]);
    // Another entry has one: nothing is written, and this one takes no place in a queue.
    let put = say(trial, repair(&["c", "d"], 2, secs(20), TOKEN + 9)).await;
    assert_eq!(put, Answer::Repaired(false));
    are_held(trial, &[("d", None)]).await;
    assert_eq!(counters(trial, ["c", "d"]).await, [TOKEN, 0]);
    assert_eq!(one::line(trial, "c").await, one::owners(&[]));
    let freed = say(trial, release(&all, 1, 0)).await;
    assert_eq!(freed, Answer::Released(true));
    let next = say(trial, acquire(&["c", "d"], 3, secs(10), 0)).await;
    assert_eq!(next, Answer::Granted(TOKEN + 1));
}

pub(super) async fn a_repair_that_is_refused_writes_nothing(trial: &mut Trial<'_>) {
    say(trial, acquire(&["a", "b"], 1, secs(10), 5)).await;
    let far = trial.wall_us().await + 60_000_000 + 20_000_000 + 1_000_000;
    for of in [["a", "b"], ["a", "c"]] {
        let command = repair(&of, 1, secs(20), far);
        assert_eq!(trial.error(command).await, "AHEAD");
    }
    one::say(trial, one::evict("b")).await;
    let put = say(trial, repair(&["a", "b"], 1, secs(20), 9)).await;
    assert_eq!(put, Answer::Repaired(false));
    are_held(trial, &[("a", Some(10)), ("b", None), ("c", None)]).await;
    assert_eq!(counters(trial, ["a", "b", "c"]).await, [5, 5, 0]);
    let next = say(trial, acquire(&["b", "c"], 2, secs(10), 0)).await;
    assert_eq!(
        next,
        Answer::Granted(6),
        "an eviction is against repairs alone"
    );
}

pub(super) async fn a_release_frees_only_what_its_owner_holds(trial: &mut Trial<'_>) {
    say(trial, acquire(&["a", "b"], 1, secs(10), 5)).await;
    one::say(trial, one::acquire("c", 2, secs(10), 5)).await;
    let freed = say(trial, release(&["a", "b", "c"], 3, 0)).await;
    assert_eq!(freed, Answer::Released(false));
    let freed = say(trial, release(&["a", "c", "d"], 1, 0)).await;
    assert_eq!(freed, Answer::Released(true));
    are_held(trial, &[("a", None), ("b", Some(10)), ("c", Some(10))]).await;
    for ours in [true, false] {
        let freed = say(trial, release(&["a", "b", "c"], 1, 0)).await;
        assert_eq!(freed, Answer::Released(ours));
    }
    are_held(trial, &[("b", None), ("c", Some(10))]).await;
}

pub(super) async fn a_memory_that_may_not_vote_frees(trial: &mut Trial<'_>) {
    let other = "20000 3 9 word 5000 nonce";
    one::stand(trial, "a", &[(2, one::place(1, 50))]).await;
    one::say(trial, one::acquire("b", 1, secs(10), 5)).await;
    for command in [
        acquire(&["c", "d"], 3, secs(10), 0),
        raise(&["a", "b"], 1, 50),
        extend(&["a", "b"], 1, secs(20)),
        repair(&["a", "b"], 1, secs(20), 50),
    ] {
        let answer = trial.ask_with(&command.into(), other).await;
        assert_eq!(answer, Err(crate::node::Fault::NotAdmitted));
    }
    assert_eq!(counters(trial, ["a", "b", "c"]).await, [1, 5, 0]);
    for _ in 0..2 {
        let command = release(&["a", "b"], 1, one::P).into();
        let answer = trial.ask_with(&command, other).await;
        let freed = Answer::ReleasedUnadmitted;
        assert!(freed.is_unadmitted());
        assert_eq!(answer, Ok(freed));
    }
    assert_eq!(trial.pushes().await, [], "nobody is served");
    are_held(trial, &[("a", None), ("b", None), ("c", None)]).await;
    assert_eq!(one::line(trial, "a").await, one::owners(&[2]));
}
