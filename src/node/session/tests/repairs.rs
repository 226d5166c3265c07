//! Repairs. A REPAIR may leave a lock behind, as an ACQUIRE may. Unlike an ACQUIRE it is not the first request of its
//! owner.

use super::*;
use crate::node::answer::Answer;

/// A node on which the lock stands, or stood.
fn held() -> World {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.answer(Ok(Answer::Granted(7)));
    world.left();
    world.sent();
    world.told();
    world
}

#[test]
fn a_repair_that_was_taken_back_leaves_its_release_to_be_sent() {
    let mut world = held();
    assert_eq!(world.repair(1), Ok(()));
    world.release(1);
    world.sent();
    world.step(|session, step| session.withdrawn(step, 2, 0));
    assert_eq!(world.told(), [(1, Err(Silence::Stalled))]);
    assert!(!world.session.is_idle(), "the lock may stand there");
    world.pass(MS);
    assert_eq!(kinds(&world.sent()), ["release"]);
}

#[test]
fn a_repair_that_was_lost_with_its_connection_is_ended_before_the_release() {
    let mut world = held();
    assert_eq!(world.repair(1), Ok(()));
    world.sent();
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    assert_eq!(world.told(), [(1, Err(Silence::ConnectionLost))]);
    world.release(1);
    world.effects.clear();
    world.dial(8);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["handshake", "kill 7", "release"]);
}

#[test]
fn a_repair_is_sent_once() {
    let mut world = held();
    assert_eq!(world.repair(1), Ok(()));
    world.release(1);
    world.sent();
    world.answer(Err(Fault::NoScript));
    assert_eq!(world.told(), [(1, Err(Silence::ScriptsFlushed))]);
    assert_eq!(kinds(&world.sent()), ["load"], "it would pass its RELEASE");
}

#[test]
fn a_node_in_quarantine_is_asked_for_no_repair() {
    let mut world = World::new();
    world.dial(7);
    world.meet(RUN, 0);
    world.sent();
    let refused = world.repair(1);
    assert!(
        matches!(refused, Err(Silence::Quarantined(_))),
        "{refused:?}"
    );
    assert_eq!(kinds(&world.sent()), [""; 0]);
}
