//! A server that is full.

use super::*;

pub(super) async fn a_full_server_frees_and_grants_nothing(trial: &mut Trial<'_>) {
    trial.say(acquire("a", 1, secs(10), 5)).await;
    trial.say(acquire("b", 1, secs(10), 5)).await;
    trial.change(Change::Full(true)).await;
    assert_eq!(trial.error(acquire("c", 1, secs(10), 0)).await, "OOM");
    assert_eq!(trial.error(acquire("a", 2, secs(10), 0)).await, "OOM");
    assert_eq!(trial.error(raise("a", 1, 9)).await, "OOM");
    assert_eq!(
        trial.say(raise("a", 1, 5)).await,
        Answer::Raised(5),
        "nothing to write"
    );
    assert_eq!(trial.say(extend("a", 1, secs(20))).await, Answer::Extended);
    assert_eq!(trial.error(repair("c", 1, secs(10), 9)).await, "OOM");
    assert_eq!(trial.error(repair("a", 1, secs(10), 9)).await, "OOM");
    assert_eq!(
        trial.say(repair("a", 1, secs(20), 5)).await,
        Answer::Repaired(true),
        "nothing to write"
    );
    assert_eq!(
        trial.say(inspect("c")).await,
        Answer::InspectedMutex(Box::default())
    );
    assert_eq!(
        trial.say(release("a", 1)).await,
        Answer::Released(true),
        "`DeleteFirst`"
    );
    assert_eq!(trial.say(evict("b")).await, mutex::cases::evicted(Some(1)));
    assert_eq!(trial.say(evict("c")).await, mutex::cases::evicted(None));
    assert_eq!(
        trial.say(repair("c", 1, secs(10), 5)).await,
        Answer::Repaired(false),
        "it was evicted"
    );
    let (record, open) = trial.record(&hello()).await;
    assert!(open, "nothing to write");
    assert_eq!(trial.error(admit(&record)).await, "OOM");
}

pub(super) async fn a_full_server_is_closed_and_not_opened(trial: &mut Trial<'_>) {
    let gone = "3 3 word 20000 5000 eeee/00000000/-1 old 0 0 25200";
    let ripe = "3 3 word 20000 5000 RUN/00000000/-1 old 0 0 25200";
    let guard = "20000 3 3 word 5000 old";
    // A server does not stop a script after its first write, and DEL is a write.
    let (answered, boot, open) = full(trial, gone, Some(guard)).await;
    assert!(answered && open.is_none());
    assert_eq!(boot, "3 3 word 20000 5000 RUN/00000000/-1 nonce 1 1 0");
    let refused = |boot: &str| (false, boot.to_owned(), None);
    assert_eq!(full(trial, gone, None).await, refused(gone));
    assert_eq!(
        full(trial, ripe, None).await,
        refused(ripe),
        "it is not opened"
    );
    let untouched = (true, ripe.to_owned(), Some(guard.to_owned()));
    assert_eq!(
        full(trial, ripe, Some(guard)).await,
        untouched,
        "nothing to write"
    );

    // A w that has grown by 1 % does not fail the handshake either: otherwise all leases there would be lost.
    trial.change(Change::Full(false)).await;
    trial.put(Key::Boot, Some(ripe)).await;
    trial.put(Key::Open, Some(guard)).await;
    let known = trial.record(&hello()).await.0;
    trial.change(Change::Full(true)).await;
    let later = Handshake {
        known: Some((known.run, known.id)),
        witnessed: 30_000,
        ..hello()
    };
    let (record, open) = trial.record(&later).await;
    assert!(open && record.witnessed == 30_000);
    assert!(
        trial.stands().await[0]
            .as_deref()
            .unwrap()
            .ends_with(" 25200")
    );

    trial.change(Change::Full(false)).await;
    trial.change(Change::Flush).await;
    trial.change(Change::Full(true)).await;
    assert_eq!(trial.error(Command::Handshake(hello())).await, "OOM");
    assert_eq!(trial.stands().await, [None, None]);
}

pub(super) async fn a_full_server_says_that_it_refuses_writes(trial: &mut Trial<'_>) {
    trial.put(Key::Time, None).await;
    // TIME was written less than a second ago in some of these steps, by a client that is not this one.
    for (full, forget) in [(false, false), (true, false), (true, true), (false, true)] {
        if forget {
            trial.put(Key::Time, None).await;
        }
        trial.change(Change::Full(full)).await;
        let before = trial.stands_in(Key::Time).await;
        let meeting = trial.meet(&hello()).await;
        assert!(meeting.open, "{}: it votes all the same", trial.name());
        let write = meeting.write.unwrap();
        let code = write.as_ref().map_err(|text| text.split(' ').next());
        let wanted = if full { Err(Some("OOM")) } else { Ok(&()) };
        assert_eq!(code, wanted, "{}: full {full}, {before:?}", trial.name());
        let after = trial.stands_in(Key::Time).await;
        if full {
            assert_eq!(after, before, "{}: it refuses the write", trial.name());
        } else {
            assert!(after.is_some(), "{}", trial.name());
            let meeting = trial.meet(&hello()).await;
            assert_eq!(meeting.write, Some(Ok(())), "{}", trial.name());
            let again = trial.stands_in(Key::Time).await;
            assert_eq!(again, after, "{}: once a second", trial.name());
        }
    }
}

/// Meets a full master with these keys. Returns true if it answers, and then the keys.
async fn full(
    trial: &mut Trial<'_>,
    boot: &str,
    open: Option<&str>,
) -> (bool, String, Option<String>) {
    trial.change(Change::Full(false)).await;
    trial.put(Key::Boot, Some(boot)).await;
    trial.put(Key::Open, open).await;
    trial.change(Change::Full(true)).await;
    let answered = trial.ask(Command::Handshake(hello())).await.is_ok();
    let [boot, open] = trial.stands().await;
    (answered, boot.unwrap(), open)
}
