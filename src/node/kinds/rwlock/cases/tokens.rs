//! Tokens of writers, epochs of readers, and a server that is full.

use super::*;

pub(super) async fn writers_get_growing_tokens_and_readers_the_newest_one(trial: &mut Trial<'_>) {
    let first = granted(trial, reads(1)).await;
    assert_eq!(first, P, "made, where there is none");
    assert_eq!(granted(trial, read("a", 2, secs(15), P + 9, None)).await, P);
    for owner in [1, 2] {
        say(trial, release(owner)).await;
    }
    let mut last = first;
    for (floor, token) in [(P, P + 1), (P + 7, P + 7), (0, P + 8)] {
        assert_eq!(
            granted(trial, write("a", 3, secs(15), floor, None)).await,
            token
        );
        assert!(token > last);
        say(trial, release(3)).await;
        assert_eq!(granted(trial, reads(1)).await, token);
        say(trial, release(1)).await;
        last = token;
    }
    let low = granted(trial, read("b", 1, secs(15), 0, None)).await;
    assert_eq!(low, 1, "no epoch is 0");
    // A p far ahead is cut.
    let ahead = granted(trial, read("c", 1, secs(15), MAX_TOKEN, None)).await;
    assert!(ahead < trial.wall_us().await + 60_000_000, "{ahead}");
}

pub(super) async fn an_exhausted_counter_gives_no_token(trial: &mut Trial<'_>) {
    let exhausted = Change::RwlockCounter(name("a"), MAX_TOKEN);
    trial.change(exhausted).await;
    assert_eq!(trial.error(writes(1)).await, "EXHAUSTED");
    assert_eq!(granted(trial, reads(1)).await, MAX_TOKEN);
    assert!(inspected(trial).await.writer.is_none());
}

pub(super) async fn rwlock_counters_rotate_too(trial: &mut Trial<'_>) {
    let first = granted(trial, writes(1)).await;
    say(trial, release(1)).await;
    for _ in 0..2 {
        trial.change(Change::Age(DAY * 3)).await;
        granted(trial, write("b", 2, secs(15), P, None)).await;
        say(trial, evict("b")).await;
        if inspected(trial).await.counter == 0 {
            return assert_eq!(granted(trial, read("a", 1, secs(15), 7, None)).await, 7);
        }
        assert_eq!(
            inspected(trial).await.counter,
            first,
            "of the period before"
        );
    }
    panic!("{}: it is never forgotten", trial.name());
}

pub(super) async fn a_full_server_frees_and_prolongs(trial: &mut Trial<'_>) {
    granted(trial, reads(1)).await;
    granted(trial, write("b", 2, secs(15), P, None)).await;
    granted(trial, write("c", 3, secs(15), P, None)).await;
    trial.change(Change::Full(true)).await;
    let room = [
        read("d", 4, secs(15), P, None),
        write("d", 4, secs(15), P, None),
        reads(4),
        repair("d", 4, Side::Reader, secs(15), P),
        repair("d", 4, Side::Writer, secs(15), P),
        write("b", 4, secs(15), P, Some(wait(40))),
    ];
    for command in room {
        assert_eq!(trial.error(command).await, "OOM");
    }
    refused(trial, read("b", 4, secs(15), P, Some(wait(40)))).await;
    for command in [
        extend("a", 1, Side::Reader, secs(16), secs(5)),
        extend("b", 2, Side::Writer, secs(16), secs(5)),
        extend("c", 3, Side::Reader, secs(16), secs(5)),
    ] {
        assert_eq!(say(trial, command).await, Answer::Extended);
    }
    let down = inspect("c");
    let Answer::InspectedRwlock(seen) = say(trial, down).await else {
        panic!("{}", trial.name());
    };
    assert_eq!((seen.writer, seen.reading), (None, 1));
    assert_eq!(say(trial, release(1)).await, Answer::Released(true));
    let evicted = say(trial, evict("b")).await;
    assert!(matches!(evicted, Answer::Evicted { held: true, .. }));
    trial.change(Change::Full(false)).await;
    granted(trial, writes(4)).await;
}
