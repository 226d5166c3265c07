//! The counter of a lock, where its tokens come from.

use super::*;

pub(super) async fn a_floor_far_ahead_is_capped(trial: &mut Trial<'_>) {
    // This grant makes the counters begin.
    say(trial, acquire("z", 9, secs(10), 0)).await;
    for floor in [trial.wall_us().await + 1_000_000_000, u64::MAX] {
        let n = floor.to_string();
        let from = trial.wall_us().await + 20_000_000;
        let Answer::Granted(token) = say(trial, acquire(&n, 1, secs(10), floor)).await else {
            panic!()
        };
        assert!(
            (from..trial.wall_us().await + 20_000_000 + 1000).contains(&token),
            "{token} from {from}"
        );
        say(trial, release(&n, 1)).await;
        let next = say(trial, acquire(&n, 2, secs(10), 0)).await;
        assert_eq!(next, Answer::Granted(token + 1), "{}", trial.name());
    }
    let below = trial.wall_us().await + 19_000_000;
    assert_eq!(
        say(trial, acquire("below", 1, secs(10), below)).await,
        Answer::Granted(below)
    );
}

pub(super) async fn counters_are_numbers(trial: &mut Trial<'_>) {
    assert_eq!(
        say(trial, acquire("a", 1, secs(10), 9)).await,
        Answer::Granted(9)
    );
    assert_eq!(say(trial, raise("a", 1, 10)).await, Answer::Raised(10));
    assert_eq!(say(trial, raise("a", 1, 9)).await, Answer::Raised(10));
    say(trial, release("a", 1)).await;
    assert_eq!(
        say(trial, acquire("a", 2, secs(10), 9)).await,
        Answer::Granted(11)
    );
}

pub(super) async fn counters_keep_all_digits(trial: &mut Trial<'_>) {
    for (i, c) in [
        1_760_000_000_123_457,
        99_999_999_999_999_999 >> 4,
        MAX_TOKEN - 2,
    ]
    .into_iter()
    .enumerate()
    {
        let n = i.to_string();
        trial.change(Change::Counter(name(&n), c)).await;
        assert_eq!(counter(trial, &n).await, c);
        assert_eq!(
            say(trial, acquire(&n, 2, secs(10), 0)).await,
            Answer::Granted(c + 1)
        );
        assert_eq!(counter(trial, &n).await, c + 1);
    }
}

pub(super) async fn an_exhausted_counter_grants_nothing(trial: &mut Trial<'_>) {
    trial
        .change(Change::Counter(name("a"), MAX_TOKEN - 1))
        .await;
    assert_eq!(
        say(trial, acquire("a", 2, secs(10), 0)).await,
        Answer::Granted(MAX_TOKEN)
    );
    let (_, c, who) = held(say(trial, acquire("a", 3, secs(10), 0)).await);
    assert_eq!((c, who), (MAX_TOKEN, Some(entry(2).text())));
    say(trial, release("a", 2)).await;
    assert_eq!(trial.error(acquire("a", 3, secs(10), 0)).await, "EXHAUSTED");
    assert_eq!(
        remaining(trial, "a").await,
        None,
        "written before it was refused"
    );
    assert_eq!(counter(trial, "a").await, MAX_TOKEN);
}

pub(super) async fn counters_rotate_by_age(trial: &mut Trial<'_>) {
    for n in ["a", "b", "c", "d"] {
        assert_eq!(take(trial, n).await, 1);
    }
    trial.change(Change::Age(2 * DAY - secs(60))).await;
    assert_eq!(take(trial, "a").await, 2, "too young to rotate");
    trial.change(Change::Age(2 * DAY + secs(1))).await;
    assert_eq!(take(trial, "a").await, 3);
    assert_eq!(counter(trial, "b").await, 1, "previous counters count");
    assert_eq!(take(trial, "b").await, 2);
    say(trial, acquire("c", 9, secs(10), 0)).await;
    assert_eq!(say(trial, raise("c", 9, 30)).await, Answer::Raised(30));
    say(trial, release("c", 9)).await;
    trial.change(Change::Age(3 * DAY)).await;
    assert_eq!(take(trial, "z").await, 1);
    assert_eq!(counter(trial, "d").await, 0, "it rotated at 2 days and 1 s");
    assert_eq!(
        (
            take(trial, "a").await,
            take(trial, "b").await,
            take(trial, "c").await
        ),
        (4, 3, 31)
    );
    trial.change(Change::Age(3 * DAY)).await;
    take(trial, "a").await;
    trial.change(Change::Age(3 * DAY)).await;
    take(trial, "a").await;
    assert_eq!(counter(trial, "b").await, 0, "forgotten");
    assert_eq!(counter(trial, "a").await, 6);
    // The same happens if p can be the token.
    for (n, kept) in [("p", 6), ("q", 6), ("r", 0)] {
        let granted = say(trial, acquire(n, 9, secs(10), 100)).await;
        assert_eq!(granted, Answer::Granted(100), "{n}");
        assert_eq!(counter(trial, "a").await, kept, "{n}");
        trial.change(Change::Age(3 * DAY)).await;
    }
}

/// Takes the lock and frees it again. Returns its token.
async fn take(trial: &mut Trial<'_>, n: &str) -> u64 {
    let token = say(trial, acquire(n, 1, secs(10), 0)).await;
    say(trial, release(n, 1)).await;
    match token {
        Answer::Granted(token) => token,
        other => panic!("{other:?}"),
    }
}
