//! Deadlines: when the wait for answers begins and ends, and which requests wait for nodes.

use super::*;
use crate::node::answer::MutexInspection;

/// All nodes stall. The RELEASEs that follow are still on their way to the connections. The connections take back only
/// what they have: the requests before them.
#[test]
fn connections_withdraw_only_requests_they_were_given() {
    let mut world = World::new(3);
    let mut first = world.try_lock();
    world.sent();
    world.at(400);
    let mut second = world.ask(|acquisition| {
        acquisition.request.wants = Wants::Lock(Target::mutex(Name::new("b").unwrap()))
    });
    assert_eq!(world.sent(), [(0, 'A'), (1, 'A'), (2, 'A')]);
    world.at(500);
    assert!(matches!(first.try_recv(), Ok(Err(Error::NoQuorum(_)))));
    assert!(is_open(&mut second));
    let mut given = Vec::new();
    while let Some(effect) = world.core.next_effect() {
        match effect {
            Effect::Withdraw(node) => world.core.withdrawn(node, 1),
            Effect::Send(node, operation, _) => given.push((node, operation)),
            effect => panic!("{effect:?}"),
        }
    }
    assert!(matches!(second.try_recv(), Ok(Err(Error::NoQuorum(_)))));
    for node in 0..3 {
        world.says(node, Answer::Granted(7));
        let given = given.iter().filter(|(to, _)| *to == node);
        for (_, operation) in given {
            let released = operation.command().entry_that(Request::frees);
            assert!(released.is_some(), "{operation:?}");
            world.says(node, Answer::Released(true));
        }
    }
    assert!(world.core.leftovers().contains(&("releases", 0)));
}

#[test]
fn an_attempt_waits_from_when_its_requests_left() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.pause_until(3_000);
    world.sent();
    world.at(3_499);
    assert!(is_open(&mut answer));
    world.at(3_500);
    assert!(matches!(answer.try_recv(), Ok(Err(Error::NoQuorum(_)))));
}

#[test]
fn a_deadline_counts_once_the_sockets_were_looked_at() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    world.pause_until(9_000);
    let seen = |ms: u64| Tick::from_nanos(1_000_000_000_000 + ms * 1_000_000);
    world.core.tick(seen(499));
    assert!(is_open(&mut answer));
    world.core.answered(0, [Ok(Answer::Granted(7))]);
    world.core.tick(seen(500));
    assert!(matches!(answer.try_recv(), Ok(Err(Error::NoQuorum(_)))));
}

#[test]
fn every_task_waits_from_when_its_requests_left() {
    let mut world = World::new(3);
    let mut inspected = world.inspect();
    world.pause_until(2_000);
    world.sent();
    world.at(2_499);
    assert!(is_open(&mut inspected));
    world.at(2_500);
    assert!(inspected.try_recv().is_ok());

    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    let (reply, mut extended) = oneshot::channel();
    world.core.event(Event::Extend { lease: id, reply });
    world.pause_until(2_000);
    world.sent();
    world.at(2_499);
    assert!(is_open(&mut extended));
    world.at(2_500);
    assert!(matches!(extended.try_recv(), Ok(Err(Error::NoQuorum(_)))));

    let mut world = World::new(3);
    let (lease, id) = world.lease();
    let (reply, mut released) = oneshot::channel();
    let reply = Some(reply);
    world.core.event(Event::Release { lease: id, reply });
    world.pause_until(2_000);
    world.sent();
    world.at(2_499);
    assert!(is_open(&mut released));
    world.at(2_500);
    assert!(matches!(released.try_recv(), Ok(Err(Error::NoQuorum(_)))));
    std::mem::forget(lease);
}

/// A node that answers everything in time is waited for, even beside others that do not.
#[test]
fn a_late_node_does_not_make_the_others_late() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    // The requests to this node leave later than those to the others.
    world.core.disconnected(2, &Disconnected("died".into()));
    world.at(499);
    assert!(is_open(&mut answer));
    world.core.answered(0, [Ok(Answer::Granted(7))]);
    world.at(500);
    assert!(matches!(answer.try_recv(), Ok(Err(Error::NoQuorum(_)))));
}

#[test]
fn requests_wait_while_open_is_being_restored() {
    let mut world = World::new(3);
    let (_lease, _) = world.lease();
    let mut first = world.try_lock();
    world.sent();
    for node in 0..3 {
        world
            .core
            .answered(node, [Err(crate::node::Fault::NotAdmitted)]);
    }
    // Its next attempt waits like a request that comes now.
    let mut second = world.inspect();
    world.sent();
    world.at(400);
    assert!(is_open(&mut first) && is_open(&mut second));
    assert_eq!(world.sent(), []);
    world.meet(0);
    assert_eq!(world.sent(), [], "one votes");
    world.meet(1);
    let asked: Vec<_> = world
        .sent()
        .into_iter()
        .filter(|(_, k)| *k == 'A')
        .collect();
    assert_eq!(asked, [(0, 'A'), (1, 'A')]);
    for node in 0..2 {
        world.core.answered(node, [Ok(Answer::Released(false))]);
        let inspected = Answer::InspectedMutex(Box::new(MutexInspection {
            counter: 7,
            ..MutexInspection::default()
        }));
        let nothing = Answer::InspectedPool(Box::default());
        let nobody = Answer::InspectedRwlock(Box::default());
        let inspected = [Ok(inspected), Ok(nothing), Ok(nobody)];
        world.core.answered(node, inspected);
        world.core.answered(node, [Ok(Answer::Granted(8))]);
    }
    assert!(matches!(first.try_recv(), Ok(Ok(Some(_)))));
}

#[test]
fn a_request_waits_for_a_handshake_no_longer_than_for_an_answer() {
    let mut world = World::new(3);
    let _other = world.inspect();
    world.sent();
    for node in 0..3 {
        world
            .core
            .answered(node, [Err(crate::node::Fault::NotAdmitted)]);
    }
    world.sent();
    world.at(100);
    let mut answer = world.try_lock();
    world.at(499);
    assert!(is_open(&mut answer));
    world.at(500);
    let answer = answer.try_recv();
    assert!(
        matches!(answer, Ok(Err(Error::NoQuorum(_)))),
        "the handshakes are late"
    );
}

/// The report names all late nodes, not only those that decided the result.
#[test]
fn a_report_names_every_node_that_was_late() {
    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    let (mut extended, mut tried) = (world.extend(id), world.try_lock());
    world.sent();
    world.at(500);
    let errors = [
        extended.try_recv().unwrap().err(),
        tried.try_recv().unwrap().err(),
    ];
    for error in errors {
        let Some(Error::NoQuorum(report)) = error else {
            panic!("{error:?}")
        };
        let late = report.nodes().iter();
        let late = late.filter(|node| node.vote == crate::Vote::None(crate::Silence::TimedOut));
        assert_eq!(late.count(), 3, "{report}");
    }
}
