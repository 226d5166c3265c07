//! How answers are handled, and releases that are sent until they are answered.

use super::*;
use crate::{
    FencingToken,
    base::{clock::cpu_time, taken::Taken},
    node::answer::{Answer, MutexInspection, Slots},
};

#[test]
fn a_release_is_repeated_until_answered_or_over() {
    let mut world = World::voting();
    world.release(1);
    assert_eq!(kinds(&world.sent()), ["release"]);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.pass(Duration::from_millis(250));
    assert_eq!(kinds(&world.sent()), ["release"]);
    world.answer(Ok(Answer::Released(true)));
    assert!(world.session.is_idle());
    world.release(2);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.pass(Duration::from_secs(10));
    assert!(world.session.is_idle(), "what it would free has expired");
}

/// The answer -1: the release is done, and it is no vote. If the node was taken for a voter, it is met again.
#[test]
fn a_release_on_an_unadmitted_memory_is_done_and_is_not_a_vote() {
    let mut world = World::voting();
    world.release(1);
    world.sent();
    world.answer(Ok(Answer::ReleasedUnadmitted));
    assert!(world.session.is_idle(), "the duty is over");
    assert_eq!(world.told(), [(1, Err(Silence::NotAdmitted))]);
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    assert_ne!(world.state(), NodeState::Voting);
    // It is known by now, so further releases there ask for no more handshakes.
    world.meet(RUN, 0);
    world.sent();
    for round in 2..100 {
        world.release(round);
        world.answer(Ok(Answer::ReleasedUnadmitted));
    }
    assert!(!kinds(&world.sent()).contains(&"handshake"));
}

#[test]
fn a_release_is_waited_for_if_it_was_sent_at_once() {
    let mut world = World::voting();
    let patience = |world: &World, id| world.session.patience(Some(id), &world.settings);
    let id = world.release(1);
    assert_eq!(patience(&world, id), Some(world.now.plus(500 * MS)));
    world.answer(Err(Fault::Error("BUSY".into())));
    assert_eq!(world.acquire(2), Ok(()));
    assert_eq!(patience(&world, id), None, "it is sent again, some time");
    world.pass(200 * MS);
    assert_eq!(patience(&world, id), None);
    let mut world = World::new();
    world.dial(7);
    let id = world.release(1);
    world.meet(RUN, 40_000);
    assert_eq!(patience(&world, id), None, "it was late already");
}

#[test]
fn releases_end_at_little_cost() {
    const MANY: u64 = 50_000;
    let mut world = World::new();
    for round in 0..MANY {
        // Later releases end earlier.
        let until = world.now.plus(u32::try_from(MANY - round).unwrap() * MS);
        world.step(|session, step| {
            session.release(step, &release_of(round), until, None);
        });
    }
    let start = cpu_time();
    let mut searches = 0;
    for _ in 1..MANY {
        world.now = world.now.plus(MS);
        let (seen, next) = (world.now, world.session.requests.duties.next_expiry());
        world.step(|session, step| session.tick(step, seen));
        // Each search says when the next one is.
        searches += u64::from(world.session.requests.duties.next_expiry() != next);
    }
    assert!((1..=MANY / 50).contains(&searches), "{searches}");
    assert!(!world.session.is_idle(), "one is left");
    // A little late, so that not every release that ends needs a look of its own.
    world.now = world.now.plus(50 * MS);
    let seen = world.now;
    world.step(|session, step| session.tick(step, seen));
    assert!(world.session.is_idle());
    let took = cpu_time() - start;
    // The bound is for a debug build. A search for each of the 50,000 takes far longer.
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn after_a_flush_of_scripts_an_acquire_is_not_sent_again_and_a_release_is() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.release(1);
    world.sent();
    world.answer(Err(Fault::NoScript));
    world.answer(Err(Fault::NoScript));
    assert_eq!(kinds(&world.sent()), ["load", "release"]);
    world.answer(Ok(Answer::Server(server::Reply::Loaded)));
    world.answer(Err(Fault::NoScript));
    assert_eq!(
        kinds(&world.sent()),
        ["load"],
        "a server that refuses scripts is not asked in a loop"
    );
    world.pass(Duration::from_millis(250));
    assert_eq!(kinds(&world.sent()), ["release"]);
    assert!(matches!(
        world.heard.pop_front(),
        Some(Heard::Answer {
            tag: Tag {
                round: RoundId(1),
                ..
            },
            answer: Err(Silence::ScriptsFlushed),
            ..
        })
    ));
}

#[test]
fn a_damaged_counter_is_taken_from_no_reply() {
    let max = FencingToken::MAX;
    let holder = Some(("x".to_owned(), None));
    let held = |counter| Answer::Held {
        which: None,
        remaining: None,
        counter,
        holder: Some("x".into()),
        ticket: 0,
    };
    let inspected = |counter| {
        Answer::InspectedMutex(Box::new(MutexInspection {
            holder: holder.clone(),
            counter,
            ..MutexInspection::default()
        }))
    };
    let taken = |counter| Answer::Taken { counter, seq: 1 };
    let slots = |counter, ticket| {
        Answer::Slots(Slots {
            mine: Some((3, counter)),
            taken: Taken::default(),
            version: 1,
            may_take: true,
            ticket,
            next_free: None,
        })
    };
    for reply in [
        Answer::Granted(max),
        Answer::Raised(max),
        held(max),
        inspected(max),
        taken(max),
        slots(max, max),
        Answer::Extended,
    ] {
        assert_eq!(reply.clone().credible(), Ok(reply));
    }
    for damaged in [max + 1, u64::MAX] {
        for reply in [
            Answer::Granted(damaged),
            Answer::Raised(damaged),
            taken(damaged),
            slots(damaged, 0),
        ] {
            match reply.credible() {
                Err(Fault::Error(why)) => assert!(why.contains("damaged"), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        // The holder is still reported.
        assert_eq!(held(damaged).credible(), Ok(held(0)));
        assert_eq!(inspected(damaged).credible(), Ok(inspected(0)));
        // A damaged ticket counts as none.
        assert_eq!(slots(7, damaged).credible(), Ok(slots(7, 0)));
    }
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.answer(Ok(Answer::Granted(max + 1)));
    let (_, answer) = world.told().remove(0);
    assert!(matches!(answer, Err(Silence::Failed(why)) if why.contains("damaged")));
}

#[test]
fn answers_say_how_long_a_round_trip_takes_on_this_connection() {
    let mut world = World::new();
    let trip = |world: &World| world.session.round_trip(&world.settings);
    world.dial(7);
    assert_eq!(trip(&world), None);
    // The request leaves later than it was asked for. The time in between is not the node's.
    world.pass(9 * MS);
    world.left();
    world.pass(8 * MS);
    world.meet(RUN, 40_000);
    assert_eq!(trip(&world), Some(24 * MS), "8 and four times 4");
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    assert_eq!(trip(&world), None, "the next may lead elsewhere");

    // A RELEASE that is sent again behind the scripts is not a sample.
    let mut world = World::voting();
    world.release(1);
    world.pass(8 * MS);
    world.answer(Err(Fault::NoScript));
    let before = trip(&world);
    assert_eq!(kinds(&world.sent()), ["release", "load", "release"]);
    world.answer(Ok(Answer::Server(server::Reply::Loaded)));
    let loaded = trip(&world);
    world.pass(100 * MS);
    world.answer(Ok(Answer::Released(true)));
    assert_eq!(trip(&world), loaded);
    assert_ne!(before, None);
}
