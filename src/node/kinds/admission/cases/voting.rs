//! Nodes that may vote, and what a node that may not vote does nevertheless.

use super::{lines::brought, *};
use crate::node::answer::Answer;

pub(super) async fn a_node_that_may_not_vote_takes_only_releases(trial: &mut Trial<'_>) {
    trial.say(acquire("a", 1, secs(10), 0)).await;
    let guarded = [
        acquire("b", 1, secs(10), 0),
        raise("a", 1, 50),
        extend("a", 1, secs(20)),
        repair("a", 1, secs(20), 50),
        repair("b", 1, secs(20), 50),
    ]
    .map(node::Command::from);
    let questions = [inspect("a"), evict("a")].map(node::Command::from);
    for guard in [
        "20000 3 5 word 5000 nonce",
        "20000 3 3 other 5000 nonce",
        "30000 3 3 word 5000 nonce",
        "20000 3 3 word 5001 nonce",
        // `OwnGuard`: the data of another member.
        "20000 3 3 word 5000 theirs",
        "1 3 20000",
        "",
    ] {
        for command in guarded.iter().chain(&questions) {
            let answer = trial.ask_with(command, guard).await;
            assert_eq!(answer, Err(Fault::NotAdmitted), "{guard}: {command:?}");
        }
    }
    assert!(about(remaining(trial, "a").await.unwrap(), secs(10)));
    assert_eq!(counter(trial, "a").await, 1);
    // A release is obeyed nevertheless.
    assert_eq!(
        trial.ask_with(&release("a", 1).into(), "else").await,
        Ok(Answer::ReleasedUnadmitted)
    );
    trial.change(Change::Flush).await;
    for command in guarded.iter().chain(&questions) {
        let answer = trial.ask(command.clone()).await;
        assert_eq!(answer, Err(Fault::NotAdmitted), "emptied: {command:?}");
    }
    assert_eq!(
        trial.ask(release("a", 1)).await,
        Ok(Answer::ReleasedUnadmitted)
    );
    let (record, open) = trial.record(&hello()).await;
    assert_eq!((record.witnessed, open), (0, false));
}

pub(super) async fn a_handshake_identifies_the_server(trial: &mut Trial<'_>) {
    let server = trial.meet(&hello()).await.server;
    assert_eq!((&*server.role, &*server.mode), ("master", "standalone"));
    assert_eq!(server.eviction, "noeviction");
    let major = server.version.split('.').next().unwrap();
    assert!(major.parse::<u32>().unwrap() >= 7, "{}", server.version);
    assert!(server.run.ends_with("/00000000/-1"), "{}", server.run);
}

pub(super) async fn a_handshake_tells_the_time(trial: &mut Trial<'_>) {
    // For another fleet nothing is written, and the time is told nevertheless.
    for hello in [hello(), brought("5 other 20000 5000 0 0 0", None)] {
        let before = trial.wall_us().await;
        let time = trial.meet(&hello).await.time;
        let off = time.abs_diff(before);
        assert!(off < 2_000_000, "{}: {off} µs", trial.name());
    }
}

pub(super) async fn a_failback_is_another_run(trial: &mut Trial<'_>) {
    trial.say(acquire("a", 1, secs(10), 0)).await;
    let before = trial.meet(&hello()).await;
    let stood = trial.stands().await;
    trial.change(Change::Replica(true)).await;
    for hello in [hello(), brought("5 other 90000 0 2 1 90000/nobody", None)] {
        let meeting = trial.meet(&hello).await;
        assert_ne!(meeting.server.role, "master");
        assert_eq!(
            (meeting.stored, meeting.open),
            (before.stored.clone(), false)
        );
        assert_eq!(trial.stands().await, stood, "nothing is written");
    }
    let record = before.stored.record().unwrap();
    for command in [
        acquire("b", 1, secs(10), 0).into(),
        extend("a", 1, secs(20)).into(),
        release("a", 1).into(),
        node::Command::from(admit(record)),
    ] {
        let error = trial.error(command.clone()).await;
        assert_eq!(error, "READONLY", "{command:?}");
    }
    trial.change(Change::Replica(false)).await;
    let (after, open) = trial
        .record(&Handshake {
            nonce: "new".into(),
            ..hello()
        })
        .await;
    assert_ne!(after.run, record.run);
    assert_eq!((after.witnessed, &*after.id, open), (0, "new", false));
    assert!(after.vouched && after.used, "it had voted: its terms stay");
    assert_eq!(
        trial.ask(extend("a", 1, secs(20))).await,
        Err(Fault::NotAdmitted)
    );
    assert_eq!(trial.say(release("a", 1)).await, Answer::ReleasedUnadmitted);
}
