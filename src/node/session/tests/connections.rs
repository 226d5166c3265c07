//! Connections that end, and what is done on the next one.

use super::*;
use crate::node::answer::Answer;

#[test]
fn a_silent_node_is_redialled_and_its_old_connection_killed_first() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.release(1);
    world.pass(Duration::from_secs(2));
    assert!(world.effects.iter().any(|e| matches!(e, Effect::Close(0))));
    assert!(matches!(
        world.heard.pop_front(),
        Some(Heard::Answer {
            tag: Tag {
                round: RoundId(1),
                ..
            },
            answer: Err(Silence::ConnectionLost),
            ..
        })
    ));
    world.effects.clear();
    world.dial(8);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["handshake", "kill 7", "release"]);
}

#[test]
fn a_kill_that_failed_is_tried_again_and_one_that_is_forbidden_is_not() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["handshake", "kill 7"]);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.pass(Duration::from_secs(6));
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["kill 7"]);
    world.answer(Err(Fault::Withheld("NOPERM no".into())));
    assert_eq!(world.state(), NodeState::Voting, "it is not needed");
    world.pass(Duration::from_secs(6));
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["handshake"], "forgotten");
}

/// An ACQUIRE is on a connection that was lost. On the next connection CLIENT KILL fails.
fn kill_fails(rules: Rules) -> World {
    let mut world = World::with(rules);
    world.dial(7);
    world.meet(RUN, 40_000);
    assert_eq!(world.acquire(1), Ok(()));
    let (operation, until) = (release_of(1), world.now.plus(Duration::from_secs(60)));
    world.step(|session, step| session.release(step, &operation, until, Some(tag(1))));
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.told();
    world.effects.clear();
    world.dial(8);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["handshake", "kill 7", "release"]);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.answer(FREED);
    world
}

const FREED: Answered = Ok(Answer::Released(true));
const NOT_OURS: Answered = Ok(Answer::Released(false));
const KILLED: Answered = Ok(Answer::Server(server::Reply::Disconnected(true)));

#[test]
fn a_release_is_sent_again_behind_the_kill_that_was_repeated() {
    let mut world = kill_fails(Rules::ALL);
    assert!(
        world.told().is_empty() && !world.session.is_idle(),
        "it proves nothing"
    );
    // The same when the connection was lost again before it was answered.
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.dial(9);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["handshake", "kill 7", "release"]);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.answer(NOT_OURS);
    world.pass(Duration::from_secs(6));
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["kill 7"]);
    world.answer(KILLED);
    assert_eq!(kinds(&world.sent()), ["release"]);
    assert!(world.told().is_empty());
    world.answer(FREED);
    assert_eq!(world.told(), [(1, FREED.map_err(|_| Silence::Stalled))]);
    assert!(world.session.is_idle());
}

#[test]
fn a_release_is_done_in_the_midst_of_doubts_about_others() {
    let mut world = kill_fails(Rules::ALL);
    assert_eq!(world.acquire(2), Ok(()));
    world.release(2);
    world.answer(Ok(Answer::Granted(7)));
    world.answer(FREED);
    let told: Vec<u64> = world.told().into_iter().map(|(round, _)| round).collect();
    assert_eq!(told, [2, 2]);
}

#[test]
fn a_doubtful_release_ends_with_the_doubt_or_its_own_time() {
    // Another run: what the old connection carried is gone with its server.
    let mut world = kill_fails(Rules::ALL);
    world.pass(Duration::from_secs(6));
    world.sent();
    world.meet("bbbb/00000000/-1", 0);
    assert_eq!(kinds(&world.sent()), ["release"]);
    world.answer(NOT_OURS);
    assert!(world.session.is_idle());

    let mut world = kill_fails(Rules::ALL);
    world.pass(Duration::from_secs(61));
    assert!(world.session.is_idle(), "what it would free has expired");

    let world = kill_fails(Rules::without(Rule::ReleaseBehindKill));
    assert!(world.session.is_idle(), "it is believed");
}

#[test]
fn in_another_run_the_old_id_is_a_strangers() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.release(1);
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    world.meet("bbbb/00000000/-1", 0);
    assert_eq!(kinds(&world.sent()), ["handshake", "release"]);
}

#[test]
fn a_server_that_stopped_being_a_master_is_redialled() {
    for text in [
        "READONLY You can't write against a read only replica.",
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down",
    ] {
        let mut world = World::voting();
        assert_eq!(world.acquire(1), Ok(()));
        assert_eq!(world.acquire(2), Ok(()));
        world.release(2);
        world.sent();
        world.answer(Err(Fault::Error(text.into())));
        let told = [
            (1, Err(Silence::Failed(text.into()))),
            (2, Err(Silence::ConnectionLost)),
        ];
        assert_eq!(world.told(), told);
        assert!(matches!(world.effects.front(), Some(Effect::Close(0))));
        assert!(matches!(world.state(), NodeState::Unreachable(..)));
        // Answers that the driver still reads from the old connection have no effect, and its end has none either.
        world.answer(Ok(Answer::Granted(1)));
        world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
        world.effects.clear();
        world.dial(8);
        world.meet(RUN, 40_000);
        assert_eq!(kinds(&world.sent()), ["handshake", "kill 7", "release"]);
    }
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.answer(Err(Fault::Error("READONLYISH".into())));
    assert_eq!(world.state(), NodeState::Voting, "another word");
}

#[test]
fn a_server_that_withholds_a_needed_right_is_redialled() {
    let withheld = || Err(Fault::Withheld("NOPERM no".into()));
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.answer(withheld());
    let told = [(1, Err(Silence::Failed("NOPERM no".into())))];
    assert_eq!(world.told(), told);
    assert!(matches!(world.state(), NodeState::Unreachable(..)));

    let mut world = World::voting();
    world.pass(Duration::from_secs(6));
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    world.answer(withheld());
    assert!(matches!(world.state(), NodeState::Unreachable(..)));

    let mut world = World::voting();
    let survey = Operation::new(admission::Command::Survey);
    assert!(world.step(|session, step| session.ask_unvoting(step, tag(1), &survey)));
    world.answer(withheld());
    assert_eq!(world.told().len(), 1);
    assert_eq!(world.state(), NodeState::Voting, "only a bootstrap asks");
}

#[test]
fn a_note_is_that_of_the_connection() {
    let mut world = World::new();
    world.pass(MS);
    world.step(|session, step| session.connected(step, 7, Some("no EXISTS"), true));
    assert_eq!(world.session.note().as_deref(), Some("no EXISTS"));
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    assert_eq!(world.session.note().as_deref(), Some("no EXISTS"));
    world.dial(8);
    assert_eq!(world.session.note(), None);
}

#[test]
fn a_server_that_keeps_denying_its_role_is_dialled_less_often() {
    let mut world = World::new();
    let start = world.now;
    let mut dials = 0;
    while world.now.since(start) < Duration::from_secs(60) {
        while !world.effects.iter().any(|e| matches!(e, Effect::Dial(0))) {
            world.pass(MS);
        }
        dials += 1;
        world.effects.clear();
        world.step(|session, step| session.connected(step, dials, None, true));
        world.meet(RUN, 40_000);
        assert_eq!(world.acquire(dials), Ok(()));
        world.answer(Err(Fault::Error("READONLY".into())));
    }
    assert!((12..40).contains(&dials), "{dials} in a minute");
}

#[test]
fn each_dial_that_fails_is_followed_by_a_longer_wait_up_to_a_bound() {
    for (unfit, least) in [(false, Duration::ZERO), (true, 1_000 * MS)] {
        let mut world = World::new();
        let mut link = Link::new(world.now);
        for wait in [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            assert!(link.dial(world.now));
            assert!(!link.dial(world.now), "it is being dialled");
            world.step(|_, step| link.down(step, "no", unfit));
            let dial_at = link.dial_at().unwrap();
            let waits = dial_at.since(world.now);
            let wait = (wait * MS).max(least);
            assert!(wait / 2 <= waits && waits <= wait, "{waits:?} of {wait:?}");
            world.now = dial_at;
        }
    }
}
