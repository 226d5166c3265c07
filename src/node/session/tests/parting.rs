//! The last handshake, when the quorum ends.

use super::*;

#[test]
fn the_last_handshake_brings_what_was_counted() {
    let mut world = watched();
    world.step(|session, step| session.part(step));
    let handshake = world.last_handshake();
    assert_eq!(handshake.witnessed, Z - 10_000 + 700);
    assert_eq!(handshake.known, Some((RUN.into(), "id".into())));
    assert!(world.session.is_parting());
    world.meet(RUN, Z - 9_300);
    assert!(!world.session.is_parting(), "it was answered");
}

#[test]
fn a_handshake_under_way_serves_as_the_last_one() {
    let mut world = watched();
    world.step(|session, step| session.meet_again(step));
    world.step(|session, step| session.part(step));
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    assert!(world.session.is_parting());
}

#[test]
fn a_last_handshake_is_waited_for_while_it_may_be_answered() {
    let mut stalled = watched();
    stalled.step(|session, step| session.part(step));
    stalled.pass(Duration::from_millis(499));
    assert!(stalled.session.is_parting());
    stalled.pass(Duration::from_millis(1));
    assert!(!stalled.session.is_parting(), "it is stalled");
    stalled.sent();
    stalled.step(|session, step| session.part(step));
    assert!(stalled.sent().is_empty(), "and asked for nothing more");

    let mut cut = watched();
    cut.step(|session, step| session.part(step));
    cut.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    assert!(!cut.session.is_parting(), "its connection is gone");

    let mut refused = watched();
    refused.step(|session, step| session.part(step));
    refused.answer(Err(Fault::Error("OOM".into())));
    assert!(!refused.session.is_parting(), "an error is an answer");
}

#[test]
fn no_last_handshake_where_nothing_is_to_be_counted() {
    let mut voting = World::voting();
    voting.pass(Duration::from_millis(700));
    voting.step(|session, step| session.part(step));
    assert!(voting.sent().is_empty());

    let mut unmet = World::new();
    unmet.dial(7);
    unmet.sent();
    unmet.step(|session, step| session.part(step));
    assert!(unmet.sent().is_empty());
    assert!(!unmet.session.is_parting());
}

/// A node that was met, with 10 s of its quarantine left, and a majority in sight for 700 ms.
fn watched() -> World {
    let mut world = World::new();
    world.see_neighbour(Some(&record("bbbb/00000000/-1", 0)));
    world.dial(7);
    world.meet(RUN, Z - 10_000);
    world.sent();
    world.pass(Duration::from_millis(700));
    world.sent();
    world
}
