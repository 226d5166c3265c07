//! Requests that wait, are taken back, or are sent only once.

use super::*;
use crate::node::answer::Answer;
use crate::node::session::inflight::MOST;

const LAST: u64 = MOST as u64 + 3;

#[test]
fn only_requests_given_to_the_driver_are_withdrawn() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    assert_eq!(world.acquire(2), Ok(()));
    world.release(3);
    // The second ACQUIRE had not left, and the driver does not have the RELEASE yet.
    world.step(|session, step| session.withdrawn(step, 1, 1));
    world.answer(Ok(Answer::Granted(5)));
    world.answer(Ok(Answer::Released(false)));
    let heard = world.told();
    let granted = (1, Ok(Answer::Granted(5)));
    assert_eq!(
        heard,
        [
            (2, Err(Silence::Stalled)),
            granted,
            (3, Ok(Answer::Released(false)))
        ]
    );
}

#[test]
fn excess_requests_wait_in_order() {
    let mut world = full();
    assert_eq!(world.sent().len(), MOST);
    world.release(LAST);
    world.release(1);
    world.step(|session, step| session.meet_again(step));
    assert_eq!(
        kinds(&world.sent()),
        ["handshake"],
        "a handshake waits for nothing"
    );
    world.answer(Ok(Answer::Granted(1)));
    assert_eq!(world.sent().len(), 0, "the handshake has its place");
    for expected in ["acquire", "acquire", "acquire", "release", "release"] {
        world.answer(Ok(Answer::Granted(1)));
        assert_eq!(kinds(&world.sent()), [expected]);
    }
    world.answer(Ok(Answer::Granted(1)));
    assert_eq!(world.sent().len(), 0);
    assert_eq!(world.acquire(LAST + 1), Ok(()));
    assert_eq!(kinds(&world.sent()), ["acquire"], "there is room");
}

#[test]
fn waiting_requests_are_withdrawn_from_a_stalled_node() {
    let mut world = full();
    world.release(LAST);
    world.release(1);
    world.pass(500 * MS);
    let stalled = |round| (round, Err(Silence::Stalled));
    let expected = [LAST - 2, LAST - 1, LAST, LAST].map(stalled);
    assert_eq!(
        world.told(),
        expected,
        "the ACQUIREs, and the RELEASE of one"
    );
    assert!(!world.session.is_idle(), "the first one left");
    world.sent();
    for round in 1..=MOST {
        assert!(matches!(world.state(), NodeState::Stalled(_)), "{round}");
        world.answer(Ok(Answer::Granted(1)));
    }
    assert_eq!(world.state(), NodeState::Voting);
    world.pass(Duration::ZERO);
    assert_eq!(kinds(&world.sent()), ["release"]);
}

#[test]
fn requests_waiting_at_a_lost_connection_were_never_sent() {
    let mut world = full();
    world.release(LAST);
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    let told = world.told();
    let (lost, unsent) = told.split_at(MOST);
    assert!(
        lost.iter()
            .all(|(_, said)| *said == Err(Silence::ConnectionLost))
    );
    assert_eq!(unsent.len(), 4);
    for (_, said) in unsent {
        assert_eq!(*said, Err(Silence::Unreachable("reset".into())));
    }
    assert!(world.session.is_idle(), "there is nothing to free");
}

#[test]
fn handshakes_and_script_loads_are_not_sent_twice_or_forgotten() {
    let mut world = World::voting();
    for round in 1..=6 {
        assert_eq!(world.acquire(round), Ok(()));
    }
    world.sent();
    world.answer(Err(Fault::NotAdmitted));
    world.answer(Err(Fault::NotAdmitted));
    world.answer(Err(Fault::NoScript));
    world.answer(Err(Fault::NoScript));
    assert_eq!(kinds(&world.sent()), ["handshake", "load"]);
    // Neither had left.
    world.step(|session, step| session.withdrawn(step, 2, 0));
    world.answer(Err(Fault::NotAdmitted));
    world.answer(Err(Fault::NoScript));
    assert_eq!(kinds(&world.sent()), ["handshake", "load"]);
    world.meet(RUN, 40_000);
    world.answer(Ok(Answer::Server(server::Reply::Loaded)));
    for answer in [Fault::NotAdmitted, Fault::NoScript] {
        assert_eq!(world.acquire(7), Ok(()));
        world.sent();
        world.answer(Err(answer));
        assert_eq!(world.sent().len(), 1);
        world.meet(RUN, 40_000);
    }
    assert_eq!(world.acquire(8), Ok(()));
    world.answer(Err(Fault::NotAdmitted));
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    assert_eq!(kinds(&world.sent()), ["handshake"]);
}

/// As many requests as may be unanswered, and three more.
fn full() -> World {
    let mut world = World::voting();
    for round in 1..=MOST as u64 + 3 {
        assert_eq!(world.acquire(round), Ok(()));
    }
    world
}
