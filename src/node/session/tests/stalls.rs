//! Nodes that owe an answer.

use super::*;
use crate::node::answer::Answer;

#[test]
fn a_node_that_does_not_answer_is_stalled_and_asked_for_nothing() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.pass(Duration::from_millis(499));
    assert_eq!(world.state(), NodeState::Voting);
    assert_eq!(world.acquire(2), Ok(()));
    world.release(2);
    world.pass(Duration::from_millis(1));
    assert!(matches!(world.state(), NodeState::Stalled(_)));
    assert_eq!(world.acquire(3), Err(Silence::Stalled));
    assert!(
        world
            .effects
            .iter()
            .any(|e| matches!(e, Effect::Withdraw(0)))
    );
    // The second ACQUIRE and its RELEASE had not left. Neither is owed any more.
    world.step(|session, step| session.withdrawn(step, 2, 0));
    assert!(world.session.is_idle());
    world.sent();
    world.release(1);
    assert_eq!(
        kinds(&world.sent()),
        ["release"],
        "of what was written it still goes out"
    );
    world.answer(Ok(Answer::Granted(1)));
    assert_eq!(world.state(), NodeState::Voting, "any answer ends it");
}

#[test]
fn a_release_that_a_stall_took_back_is_sent_behind_what_it_frees() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.left();
    world.pass(499 * MS);
    // Both are sent in the turn of the loop that finds the node stalled, so neither has left.
    assert_eq!(world.acquire(2), Ok(()));
    world.release(2);
    let owed = world.release(1);
    world.sent();
    world.pass(MS);
    assert!(matches!(world.state(), NodeState::Stalled(_)));
    assert!(world.sent().is_empty());
    world.step(|session, step| session.withdrawn(step, 3, 0));
    // This process may end now, and the node may carry out the first ACQUIRE after that.
    assert_eq!(kinds(&world.sent()), ["release"]);
    world.pass(100 * MS);
    assert!(world.sent().is_empty(), "once");
    world.answer(Ok(Answer::Granted(1)));
    assert_eq!(world.state(), NodeState::Voting);
    let patience = world.session.patience(Some(owed), &world.settings);
    assert_eq!(patience, None, "who waits for it does not wait longer");
    world.answer(Ok(Answer::Released(true)));
    assert!(world.session.is_idle());
}

#[test]
fn nobody_is_stalled_before_time_was_looked_at() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    // The process was paused, and what arrived in the meantime is unread.
    world.now = world.now.plus(10_000 * MS);
    assert_eq!(world.state(), NodeState::Voting);
    assert_eq!(world.acquire(2), Ok(()));
    let seen = world.now.minus(9_501 * MS);
    world.step(|session, step| session.tick(step, seen));
    assert_eq!(world.state(), NodeState::Voting, "seen until 499 ms only");
    world.step(|session, step| session.tick(step, seen.plus(MS)));
    assert!(matches!(world.state(), NodeState::Stalled(_)));
}

#[test]
fn a_node_that_answers_ever_later_is_stalled_until_nothing_is_overdue() {
    let mut world = World::voting();
    for (round, wait) in [(1, 0), (2, 100), (3, 10)] {
        world.pass(wait * MS);
        assert_eq!(world.acquire(round), Ok(()));
    }
    world.pass(390 * MS);
    world.answer(Ok(Answer::Granted(1)));
    world.pass(99 * MS);
    assert_eq!(world.state(), NodeState::Voting, "the second is 499 ms old");
    world.pass(MS);
    assert_eq!(
        world.state(),
        NodeState::Stalled(500 * MS),
        "though it answered 100 ms ago"
    );
    world.pass(10 * MS);
    world.answer(Ok(Answer::Granted(2)));
    assert!(
        matches!(world.state(), NodeState::Stalled(_)),
        "the third is 500 ms old"
    );
    assert_eq!(world.acquire(4), Err(Silence::Stalled));
    world.answer(Ok(Answer::Granted(3)));
    assert_eq!(world.state(), NodeState::Voting);

    assert_eq!(world.acquire(5), Ok(()));
    world.pass(2 * MS);
    assert_eq!(world.acquire(6), Ok(()));
    world.pass(499 * MS);
    assert!(matches!(world.state(), NodeState::Stalled(_)));
    world.answer(Ok(Answer::Granted(5)));
    assert_eq!(world.state(), NodeState::Voting, "the last is 499 ms old");
}

#[test]
fn only_total_silence_closes_a_connection() {
    let mut world = World::voting();
    for round in 0..10 {
        assert_eq!(world.acquire(round), Ok(()));
    }
    for _ in 0..9 {
        world.pass(1_999 * MS);
        world.answer(Ok(Answer::Granted(1)));
    }
    assert!(matches!(world.state(), NodeState::Stalled(_)));
    assert!(!world.effects.iter().any(|e| matches!(e, Effect::Close(0))));
    world.pass(1_999 * MS);
    assert!(!world.effects.iter().any(|e| matches!(e, Effect::Close(0))));
    world.pass(MS);
    assert!(world.effects.iter().any(|e| matches!(e, Effect::Close(0))));
}

#[test]
fn the_time_that_a_node_may_take_begins_when_the_request_left() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.now = world.now.plus(3_000 * MS);
    assert!(world.session.unwritten() > 0);
    world.left();
    assert!(world.session.unwritten() == 0);
    assert_eq!(world.acquire(2), Ok(()));
    world.pass(MS);
    world.left();
    world.pass(498 * MS);
    assert_eq!(world.state(), NodeState::Voting);
    world.pass(MS);
    assert!(matches!(world.state(), NodeState::Stalled(_)));
    // The second request is taken back. The first one had left.
    world.step(|session, step| session.withdrawn(step, 1, 0));
    assert!(world.session.unwritten() == 0);
    world.answer(Ok(Answer::Granted(1)));
    assert_eq!(world.acquire(3), Ok(()));
    assert!(world.session.unwritten() > 0);
}
