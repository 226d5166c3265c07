//! Which entries may come in, and for how long.

use super::*;

pub(super) async fn readers_beside_each_other_or_one_writer(trial: &mut Trial<'_>) {
    granted(trial, reads(1)).await;
    granted(trial, reads(2)).await;
    granted(trial, reads(2)).await; // asked twice
    refused(trial, writes(3)).await;
    assert_eq!(say(trial, release(1)).await, Answer::Released(true));
    refused(trial, writes(3)).await;
    assert_eq!(say(trial, release(2)).await, Answer::Released(true));
    let token = granted(trial, writes(3)).await;
    assert_eq!(granted(trial, writes(3)).await, token, "asked twice");
    refused(trial, writes(4)).await;
    refused(trial, reads(1)).await;
    granted(trial, read("b", 1, secs(15), P, None)).await;
    assert_eq!(say(trial, release(3)).await, Answer::Released(true));
    granted(trial, reads(1)).await;
}

pub(super) async fn a_refusal_names_the_holder_and_the_remaining_time(trial: &mut Trial<'_>) {
    granted(trial, read("a", 1, secs(11), P, None)).await;
    granted(trial, read("a", 2, secs(17), P, None)).await;
    granted(trial, read("a", 3, secs(14), P, None)).await;
    let (left, counter, holder) = refused(trial, writes(4)).await;
    assert!(about(left, secs(17)), "the last of them: {left:?}");
    assert_eq!((counter > 0, holder), (true, Some(text(2))));
    for owner in 1..=3 {
        say(trial, release(owner)).await;
    }
    let token = granted(trial, writes(4)).await;
    for command in [reads(1), writes(1)] {
        let (left, counter, holder) = refused(trial, command).await;
        assert!(about(left, secs(15)), "{left:?}");
        assert_eq!((counter, holder), (token, Some(text(4))));
    }
}

pub(super) async fn each_reader_has_its_own_time(trial: &mut Trial<'_>) {
    granted(trial, read("a", 1, millis(40), P, None)).await;
    granted(trial, reads(2)).await;
    nap().await;
    let seen = inspected(trial).await;
    assert_eq!(seen.reading, 1);
    let lost = extend("a", 1, Side::Reader, secs(15), Duration::ZERO);
    assert_eq!(say(trial, lost).await, Answer::Lost);
    assert_eq!(say(trial, release(1)).await, Answer::Released(false));
    assert_eq!(say(trial, release(2)).await, Answer::Released(true));
    granted(trial, writes(3)).await;
    // The same for a writer.
    say(trial, release(3)).await;
    granted(trial, write("a", 4, millis(40), P, None)).await;
    nap().await;
    granted(trial, reads(1)).await;
}

pub(super) async fn an_intent_keeps_new_readers_out(trial: &mut Trial<'_>) {
    // A writer that was granted the lock keeps nobody out after it was taken back. Only a refused one does.
    granted(trial, write("a", 1, secs(15), P, Some(wait(10)))).await;
    assert_eq!(say(trial, taken_back(1)).await, Answer::Released(true));
    granted(trial, reads(1)).await;
    refused(trial, writes(2)).await;
    granted(trial, reads(3)).await; // no writer waits
    refused(trial, write("a", 2, secs(15), P, Some(wait(20)))).await;
    let (left, _, holder) = refused(trial, reads(4)).await;
    assert!(about(left, secs(18)), "{left:?}");
    assert_eq!(holder, Some(text(20)));
    granted(trial, reads(1)).await; // a reader is not asked to leave
    let kept = extend("a", 3, Side::Reader, secs(16), Duration::ZERO);
    assert_eq!(say(trial, kept).await, Answer::Extended);
    // The intent stays between attempts, and goes at the end of the wait.
    assert_eq!(say(trial, release(2)).await, Answer::Released(false));
    refused(trial, reads(4)).await;
    let end = release_of(2, Some(20));
    assert_eq!(say(trial, end).await, Answer::Released(false));
    granted(trial, reads(4)).await;
    // Of two intents the other one is still there.
    for who in [20, 21] {
        refused(trial, write("a", 2, secs(15), P, Some(wait(who)))).await;
    }
    say(trial, release_of(2, Some(20))).await;
    let (_, _, holder) = refused(trial, reads(5)).await;
    assert_eq!(holder, Some(text(21)));
    say(trial, release_of(2, Some(21))).await;
    // An intent whose life is over is not.
    let short = Waiter {
        life: BRIEF,
        ..wait(22)
    };
    refused(trial, write("a", 2, secs(15), P, Some(short))).await;
    refused(trial, reads(5)).await;
    outlast_brief().await;
    granted(trial, reads(5)).await;
}

pub(super) async fn the_window_admits_readers_after_a_writer_leaves(trial: &mut Trial<'_>) {
    granted(trial, write("a", 1, secs(15), P, Some(wait(10)))).await;
    refused(trial, write("a", 2, secs(15), P, Some(wait(20)))).await;
    refused(trial, read("a", 3, secs(15), P, Some(wait(30)))).await;
    say(trial, release_of(1, Some(10))).await;
    let (left, _, holder) = refused(trial, write("a", 2, secs(15), P, Some(wait(20)))).await;
    assert!(
        about(left, secs(5)) && holder.is_none(),
        "{left:?} {holder:?}"
    );
    granted(trial, reads(3)).await;
    granted(trial, reads(4)).await; // any reader
    for owner in [3, 4] {
        say(trial, release(owner)).await;
    }
    refused(trial, writes(2)).await; // it is not over yet
    // A window ends after its time, and the intent counts again.
    let short = release_with("b", 1, None, BRIEF);
    granted(trial, write("b", 1, secs(15), P, None)).await;
    refused(trial, write("b", 2, secs(15), P, Some(wait(20)))).await;
    refused(trial, read("b", 3, secs(15), P, Some(wait(30)))).await;
    say(trial, short).await;
    granted(trial, read("b", 3, secs(15), P, None)).await;
    outlast_brief().await;
    refused(trial, read("b", 4, secs(15), P, None)).await;
}

pub(super) async fn without_a_refused_reader_no_window_opens(trial: &mut Trial<'_>) {
    granted(trial, writes(1)).await;
    refused(trial, reads(3)).await; // it only tries, and does not wait
    refused(trial, write("a", 2, secs(15), P, Some(wait(20)))).await;
    say(trial, release(1)).await;
    refused(trial, reads(3)).await;
    granted(trial, write("a", 2, secs(15), P, Some(wait(20)))).await;
}

pub(super) async fn an_extension_needs_its_side(trial: &mut Trial<'_>) {
    let as_reader = |ttl| extend("a", 1, Side::Reader, ttl, Duration::ZERO);
    let as_writer = |ttl| extend("a", 1, Side::Writer, ttl, Duration::ZERO);
    for command in [as_reader(secs(15)), as_writer(secs(15))] {
        assert_eq!(say(trial, command).await, Answer::Lost);
    }
    assert_eq!(inspected(trial).await.reading, 0, "never re-created");
    granted(trial, reads(1)).await;
    assert_eq!(say(trial, as_writer(secs(15))).await, Answer::Lost);
    for (ttl, left) in [(11, 15), (17, 17)] {
        assert_eq!(say(trial, as_reader(secs(ttl))).await, Answer::Extended);
        let seen = inspected(trial).await;
        let (_, until) = seen.readers.first().unwrap();
        assert!(about(*until, secs(left)), "{until:?}");
    }
    say(trial, release(1)).await;
    granted(trial, writes(1)).await;
    for (ttl, left) in [(11, 15), (17, 17)] {
        assert_eq!(say(trial, as_writer(secs(ttl))).await, Answer::Extended);
        let (_, until) = inspected(trial).await.writer.unwrap();
        assert!(about(until.unwrap(), secs(left)), "{until:?}");
    }
}

pub(super) async fn a_writer_becomes_a_reader(trial: &mut Trial<'_>) {
    let token = granted(trial, writes(1)).await;
    refused(trial, write("a", 2, secs(15), P, Some(wait(20)))).await;
    refused(trial, read("a", 3, secs(15), P, Some(wait(30)))).await;
    trial.pushes().await;
    let down = extend("a", 1, Side::Reader, secs(11), secs(5));
    assert_eq!(say(trial, down.clone()).await, Answer::Extended);
    let seen = inspected(trial).await;
    assert_eq!((seen.writer, seen.reading, seen.counter), (None, 1, token));
    let (_, left) = seen.readers.first().unwrap();
    assert!(about(*left, secs(15)), "never shortened: {left:?}");
    assert_eq!(trial.pushes().await.len(), 1, "who waits is told");
    assert_eq!(granted(trial, reads(3)).await, token, "the window is open");
    refused(trial, writes(2)).await;
    assert_eq!(say(trial, down).await, Answer::Extended, "a reader's");
    let up = extend("a", 1, Side::Writer, secs(15), secs(5));
    assert_eq!(say(trial, up).await, Answer::Lost);
    assert_eq!(say(trial, release(1)).await, Answer::Released(true));
}

pub(super) async fn a_repair_restores_a_lease_that_conflicts_with_nobody(trial: &mut Trial<'_>) {
    let of = |owner, side, token| repair("a", owner, side, secs(15), token);
    let first = of(1, Side::Reader, P + 5);
    assert_eq!(say(trial, first).await, Answer::Repaired(true));
    assert_eq!(inspected(trial).await.counter, P + 5);
    assert_eq!(
        say(trial, of(2, Side::Reader, P)).await,
        Answer::Repaired(true)
    );
    assert_eq!(inspected(trial).await.counter, P + 5, "never lowered");
    for owner in [1, 3] {
        let beside = of(owner, Side::Writer, P);
        assert_eq!(say(trial, beside).await, Answer::Repaired(false));
    }
    for owner in [1, 2] {
        say(trial, release(owner)).await;
    }
    assert_eq!(
        say(trial, of(3, Side::Writer, P + 9)).await,
        Answer::Repaired(true)
    );
    for side in [Side::Reader, Side::Writer] {
        assert_eq!(say(trial, of(1, side, P)).await, Answer::Repaired(false));
    }
    assert_eq!(
        say(trial, of(3, Side::Writer, P)).await,
        Answer::Repaired(true)
    );
    let seen = inspected(trial).await;
    assert_eq!((seen.counter, seen.reading), (P + 9, 0));
    // The entry has become a reader meanwhile.
    assert_eq!(
        say(trial, of(3, Side::Reader, P)).await,
        Answer::Repaired(true)
    );
    let seen = inspected(trial).await;
    assert_eq!((seen.writer, seen.reading), (None, 1));
}

pub(super) async fn a_release_frees_only_what_its_owner_holds(trial: &mut Trial<'_>) {
    assert_eq!(say(trial, release(1)).await, Answer::Released(false));
    granted(trial, reads(1)).await;
    granted(trial, reads(2)).await;
    assert_eq!(say(trial, release(3)).await, Answer::Released(false));
    assert_eq!(inspected(trial).await.reading, 2);
    assert_eq!(say(trial, release(1)).await, Answer::Released(true));
    assert_eq!(say(trial, release(1)).await, Answer::Released(false));
    let strangers = "20000 3 5 word 5000 nonce";
    let unadmitted = Ok(Answer::ReleasedUnadmitted);
    assert_eq!(
        trial.ask_with(&release(2).into(), strangers).await,
        unadmitted
    );
    assert_eq!(inspected(trial).await.reading, 0, "it was done");
    refused_by_guard(trial, strangers).await;
    granted(trial, write("a", 4, secs(15), P, Some(wait(40)))).await;
    let release = release_of(4, Some(40));
    assert_eq!(trial.ask_with(&release.into(), strangers).await, unadmitted);
    let seen = inspected(trial).await;
    assert_eq!((seen.writer, seen.waiting), (None, 0));
}

/// Checks that this guard refuses every request except a release.
async fn refused_by_guard(trial: &mut Trial<'_>, guard: &str) {
    let requests = [
        reads(1),
        writes(1),
        raise(1, P),
        extend("a", 1, Side::Reader, secs(15), Duration::ZERO),
        repair("a", 1, Side::Writer, secs(15), P),
    ]
    .map(Command::from);
    let questions = [evict("a"), inspect("a")].map(Command::from);
    for command in requests.iter().chain(&questions) {
        let answer = trial.ask_with(command, guard).await;
        assert_eq!(answer, Err(node::Fault::NotAdmitted), "{command:?}");
    }
    assert_eq!(inspected(trial).await.reading, 0);
}

pub(super) async fn an_eviction_frees_all(trial: &mut Trial<'_>) {
    let nobody = Answer::Evicted {
        held: false,
        holders: Vec::new(),
    };
    assert_eq!(say(trial, evict("a")).await, nobody);
    let counter = granted(trial, read("a", 1, secs(11), P, None)).await;
    granted(trial, read("a", 2, secs(17), P, None)).await;
    refused(trial, write("a", 3, secs(15), P, Some(wait(30)))).await;
    trial.pushes().await;
    let both = Answer::Evicted {
        held: true,
        holders: vec![text(2).into(), text(1).into()],
    };
    assert_eq!(say(trial, evict("a")).await, both);
    assert_eq!(trial.pushes().await.len(), 1, "who waits is told");
    let seen = inspected(trial).await;
    let left = (seen.reading, seen.waiting, seen.counter);
    assert_eq!(left, (0, 0, counter), "the counter stays");
    for side in [Side::Reader, Side::Writer] {
        let again = repair("a", 1, side, secs(15), counter);
        assert_eq!(say(trial, again).await, Answer::Repaired(false));
    }
    granted(trial, writes(4)).await;
    let writer = Answer::Evicted {
        held: true,
        holders: vec![text(4).into()],
    };
    assert_eq!(say(trial, evict("a")).await, writer);
}

pub(super) async fn an_inspection_shows_holders_and_waiting_writers(trial: &mut Trial<'_>) {
    assert_eq!(inspected(trial).await, RwlockInspection::default());
    granted(trial, read("a", 1, secs(11), P, None)).await;
    granted(trial, read("a", 2, secs(17), P, None)).await;
    refused(trial, write("a", 3, secs(15), P, Some(wait(30)))).await;
    let seen = inspected(trial).await;
    assert_eq!((seen.reading, seen.waiting, seen.writer), (2, 1, None));
    let names = |all: &[(String, Duration)]| -> Vec<String> {
        all.iter().map(|(entry, _)| entry.clone()).collect()
    };
    assert_eq!(names(&seen.readers), [text(2), text(1)]);
    assert_eq!(names(&seen.waiters), [text(30)]);
    for owner in [1, 2] {
        say(trial, release(owner)).await;
    }
    let token = granted(trial, writes(3)).await;
    let seen = inspected(trial).await;
    assert_eq!((seen.reading, seen.counter), (0, token));
    assert!(
        matches!(seen.writer, Some((who, Some(left))) if who == text(3) && about(left, secs(15)))
    );
}
