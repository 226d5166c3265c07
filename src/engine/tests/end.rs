//! The end of the engine: a shutdown, handles that are gone, and the end of the runtime.

use super::*;

#[test]
fn two_concurrent_shutdowns_return_the_same_names() {
    let mut world = World::new(1);
    let mut answer = world.try_lock();
    world.core.answered(0, [Ok(Answer::Granted(7))]);
    let _lease = answer.try_recv().unwrap().unwrap().unwrap();
    let mut told = Vec::new();
    for within in [5, 9] {
        let (reply, answer) = oneshot::channel();
        world.core.event(Event::Shutdown {
            within: Duration::from_secs(within),
            reply,
        });
        told.push(answer);
    }
    assert!(
        told.iter_mut().all(|answer| answer.try_recv().is_err()),
        "a lease is held"
    );
    world.at(5_000);
    for mut answer in told {
        assert_eq!(answer.try_recv().unwrap(), ["a"]);
    }
}

/// Otherwise nobody could renew or release it.
#[test]
fn a_grant_after_all_handles_are_dropped_is_released() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    let World {
        mut core, _engine, ..
    } = world;
    drop(_engine);
    for node in 0..2 {
        let granted = Answer::Granted(7);
        core.answered(node, [Ok(granted)]);
    }
    assert!(answer.try_recv().is_err());
    let effects = std::iter::from_fn(|| core.next_effect());
    let released = |effect: &Effect| match effect {
        Effect::Send(_, operation, _) => operation.command().entry_that(Request::frees).is_some(),
        _ => false,
    };
    assert_eq!(effects.filter(released).count(), 3);
}

#[test]
fn leases_are_lost_with_the_runtime_and_still_released() {
    let mut world = World::new(3);
    let (lease, id) = world.lease();
    world.core.end();
    let lost = pin!(lease.lost()).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(lost, Poll::Ready(LossReason::NodesLost));
    world.sent();
    world.core.event(Event::Release {
        lease: id,
        reply: None,
    });
    assert_eq!(world.sent(), [(0, 'R'), (1, 'R'), (2, 'R')]);
}

#[test]
fn a_shutdown_writes_the_count_of_a_quarantine_and_waits_for_that() {
    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    world.at(400);
    let mut answer = world.shutdown(2_000);
    assert_eq!(world.greeted(), [2]);
    assert!(is_open(&mut answer) && !world.core.is_done());
    world.meet(2);
    assert_eq!(answer.try_recv().unwrap(), [""; 0]);
    assert!(world.core.is_done());
}

#[test]
fn a_shutdown_where_no_node_is_in_quarantine_sends_nothing() {
    let mut world = World::new(3);
    world.at(400);
    let mut answer = world.shutdown(2_000);
    assert_eq!(world.greeted(), [0; 0]);
    assert!(answer.try_recv().is_ok() && world.core.is_done());
}

#[test]
fn a_shutdown_waits_for_the_count_until_its_timeout_or_a_lost_node() {
    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    let mut answer = world.shutdown(100);
    world.greeted();
    world.core.mark_written();
    world.at(99);
    assert!(!world.core.is_done());
    world.at(100);
    assert!(answer.try_recv().is_ok() && world.core.is_done());

    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    let mut answer = world.shutdown(10_000);
    world.greeted();
    world.core.mark_written();
    world.at(499);
    assert!(!world.core.is_done());
    world.at(500);
    assert!(answer.try_recv().is_ok() && world.core.is_done(), "stalled");

    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    let mut answer = world.shutdown(10_000);
    world.greeted();
    world.core.disconnected(2, &Disconnected("died".into()));
    assert!(answer.try_recv().is_ok() && world.core.is_done(), "gone");
}

#[test]
fn when_all_handles_are_gone_the_count_is_written_too() {
    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    world.at(400);
    world.core.close();
    assert_eq!(world.greeted(), [2]);
    assert!(!world.core.is_done());
    world.meet(2);
    assert!(world.core.is_done());
}

/// The entry on a node that is away is a minority, and ends with its ttl.
#[test]
fn shutdown_with_a_dead_node_ends_when_a_majority_has_confirmed() {
    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    world.core.disconnected(2, &Disconnected("died".into()));
    let mut released = world.release(id);
    assert_eq!(world.sent(), [(0, 'R'), (1, 'R')]);
    let mut answer = world.shutdown(5_000);
    world.says(0, Answer::Released(true));
    assert!(is_open(&mut answer), "two nodes may still hold it");
    world.says(1, Answer::Released(true));
    assert!(matches!(released.try_recv(), Ok(Ok(()))));
    assert_eq!(answer.try_recv().unwrap(), [""; 0]);
    assert!(world.core.is_done());
}

#[test]
fn shutdown_with_a_silent_node_ends_when_it_is_stalled() {
    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    let _released = world.release(id);
    world.sent();
    for node in 0..2 {
        world.says(node, Answer::Released(true));
    }
    let mut answer = world.shutdown(5_000);
    world.at(499);
    assert!(is_open(&mut answer), "the node may be merely far away");
    world.at(500);
    assert_eq!(answer.try_recv().unwrap(), [""; 0]);

    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    let _released = world.release(id);
    world.sent();
    let mut answer = world.shutdown(5_000);
    for node in 0..3 {
        assert!(is_open(&mut answer));
        world.says(node, Answer::Released(true));
    }
    assert!(answer.try_recv().is_ok(), "all have answered");
}

#[test]
fn shutdown_without_a_confirming_majority_waits_for_its_whole_time() {
    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    for node in 1..3 {
        world.core.disconnected(node, &Disconnected("died".into()));
    }
    world.core.event(Event::Release {
        lease: id,
        reply: None,
    });
    world.sent();
    world.says(0, Answer::Released(true));
    let mut answer = world.shutdown(5_000);
    world.at(4_999);
    assert!(is_open(&mut answer), "one of the two may come back");
    world.at(5_000);
    assert!(answer.try_recv().is_ok() && world.core.is_done());

    let mut world = World::new(1);
    let mut locked = world.try_lock();
    world.says(0, Answer::Granted(7));
    drop(locked.try_recv());
    let id = world.core.first_lease().unwrap();
    world.core.disconnected(0, &Disconnected("died".into()));
    world.core.event(Event::Release {
        lease: id,
        reply: None,
    });
    let mut answer = world.shutdown(5_000);
    assert!(is_open(&mut answer), "one node is a majority of one");
}

#[test]
fn shutdown_does_not_wait_for_a_node_that_answers_a_release_with_an_error() {
    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    let _released = world.release(id);
    world.sent();
    let mut answer = world.shutdown(5_000);
    let error = Fault::Error("ERR something is broken".into());
    world.core.answered(2, [Err(error)]);
    for node in 0..2 {
        assert!(is_open(&mut answer));
        world.says(node, Answer::Released(true));
    }
    assert!(answer.try_recv().is_ok());
}

/// No caller waits in this case. So the release goes on until the node has answered or the ttl is over.
#[test]
fn handles_that_are_gone_leave_a_release_to_a_dead_node_in_the_background() {
    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    world.core.disconnected(2, &Disconnected("died".into()));
    world.core.event(Event::Release {
        lease: id,
        reply: None,
    });
    world.core.close();
    world.sent();
    for node in 0..2 {
        world.says(node, Answer::Released(true));
    }
    assert!(!world.core.is_done());
}

#[test]
fn voting_waits_for_votes_and_reports_why_they_are_missing() {
    let mut world = World::witnessed(&[VOTES, 5_000, 5_000]);
    let (mut long, mut short) = (world.voting(2_000), world.voting(1_000));
    world.at(999);
    assert!(is_open(&mut short));
    world.at(1_000);
    let error = short.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::Quarantined(_)), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_millis(29_300)));
    world.witnessed[2] = VOTES;
    world.at(1_200);
    assert!(is_open(&mut long));
    assert_eq!(world.greeted(), [1, 2]);
    world.meet(2);
    assert!(matches!(long.try_recv(), Ok(Ok(()))));

    let mut world = World::witnessed(&[VOTES, 5_000, 5_000]);
    world.core.disconnected(1, &Disconnected("died".into()));
    world.core.disconnected(2, &Disconnected("died".into()));
    let error = world.voting(0).try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    assert!(error.to_string().contains("died"), "{error}");
}

#[test]
fn a_caller_that_stops_waiting_for_votes_is_forgotten() {
    let mut world = World::witnessed(&[VOTES, 5_000, 5_000]);
    let callers = |world: &World| world.core.leftovers()[6];
    let forgotten = world.voting(60_000);
    assert_eq!(callers(&world), ("callers", 1));
    drop(forgotten);
    world.at(1);
    assert_eq!(callers(&world), ("callers", 0));

    let mut closed = world.voting(60_000);
    let _ended = world.shutdown(1_000);
    assert!(
        matches!(closed.try_recv(), Err(oneshot::error::TryRecvError::Closed)),
        "the caller is told Closed"
    );
}
