//! Crowds of waiters, and what they are told.

use super::*;

/// Acquisitions of one name, each of which waits for at most `within` ms.
fn crowd(world: &mut World, acquisitions: u64, within: Option<u64>) -> Vec<Answered> {
    let wait = Wait::For(within.map(Duration::from_millis));
    let ask = |id| {
        world.ask(|acquisition| {
            acquisition.id = AcquisitionId::of_call(id);
            acquisition.request.wait = wait;
        })
    };
    (1..=acquisitions).map(ask).collect()
}

/// Each change of a stage is held against the table of arrows. An arrow that nobody takes does not belong there.
#[test]
fn each_arrow_between_the_stages_of_an_acquisition_is_taken() {
    use crate::{
        engine::acquire::taken,
        testing::simulation::{Profile, Rules, run},
    };
    let mut world = World::new(1);
    let _crowd = crowd(&mut world, 100, Some(1_000));
    world.at(1_001);
    let mut missing = Vec::new();
    for seed in 1..100 {
        for profile in [Profile::RwlockStorm, Profile::LineStorm, Profile::Slots] {
            run(seed, profile, Rules::ALL).unwrap();
        }
        missing = taken::not_yet();
        if missing.is_empty() {
            return;
        }
    }
    panic!("{missing:?}");
}

#[test]
fn a_crowd_that_goes_away_leaves_nothing() {
    for way in 0..3 {
        let mut world = World::new(1);
        let mut answers = crowd(&mut world, 10_000, Some(60_000));
        match way {
            0 => (1..=10_000)
                .for_each(|id| world.core.event(Event::Cancel(AcquisitionId::of_call(id)))),
            1 => (1..=10_000)
                .rev()
                .for_each(|id| world.core.event(Event::Cancel(AcquisitionId::of_call(id)))),
            _ => {
                world.core.close();
                for answer in &mut answers {
                    assert!(matches!(
                        answer.try_recv(),
                        Err(tokio::sync::oneshot::error::TryRecvError::Closed)
                    ));
                }
            }
        }
        world.at(0);
        assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
    }
}

#[test]
fn throttled_acquisition_that_is_cancelled_lets_no_other_ask() {
    let mut world = World::new(1);
    let _answers = crowd(&mut world, 20, Some(60_000));
    assert_eq!(world.sent().len(), 16);
    world.core.event(Event::Cancel(AcquisitionId::of_call(18)));
    assert_eq!(world.sent(), []);
    // When one that asks ends, another one may ask.
    world.core.event(Event::Cancel(AcquisitionId::of_call(1)));
    assert_eq!(world.sent(), [(0, 'R'), (0, 'A')]);
}

#[test]
fn throttled_acquisition_whose_time_is_over_is_told_and_leaves_nothing() {
    let mut world = World::new(1);
    let mut asking = crowd(&mut world, 16, None);
    let mut throttled = world.ask(|acquisition| {
        (acquisition.id, acquisition.request.wait) = (
            AcquisitionId::of_call(17),
            Wait::For(Some(Duration::from_millis(50))),
        );
    });
    assert_eq!(world.sent().len(), 16);
    world.at(50);
    assert!(matches!(throttled.try_recv(), Ok(Err(_))));
    assert_eq!(world.sent(), [], "the others still ask");
    assert!(asking.iter_mut().all(|answer| answer.try_recv().is_err()));
    (1..=16).for_each(|id| world.core.event(Event::Cancel(AcquisitionId::of_call(id))));
    assert_eq!(world.sent().len(), 16, "each is taken back");
    let refused = (0..16).map(|_| Ok(held()));
    let released = (0..16).map(|_| Ok(Answer::Released(false)));
    world.core.answered(0, refused.chain(released));
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn acquisition_of_a_caller_that_is_gone_asks_no_node() {
    let mut world = World::new(1);
    drop(world.ask(|acquisition| acquisition.reply = oneshot::channel().0));
    assert_eq!(world.sent(), []);
}

/// There is no majority. The waiters find out one after the other, without recursion that could overflow the stack.
#[test]
fn a_crowd_of_waiters_on_dead_nodes_gets_no_quorum() {
    let mut world = World::new(1);
    let mut answers = crowd(&mut world, 10_000, None);
    world.core.disconnected(0, &Disconnected("died".into()));
    for _ in 0..10_000 / 16 {
        world.at(0);
    }
    for answer in &mut answers {
        assert!(matches!(answer.try_recv(), Ok(Err(Error::NoQuorum(_)))));
    }
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn no_quorum_retry_after_is_when_enough_nodes_will_be_dialled() {
    let mut world = World::new(3);
    let pause = |world: &mut World| {
        let error = world.try_lock().try_recv().unwrap().unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error}");
        error.retry_after().unwrap().as_millis()
    };
    for node in [1, 2] {
        world.core.disconnected(node, &Disconnected("died".into()));
    }
    let first = pause(&mut world);
    assert!(
        (75..=100).contains(&first),
        "the first back-off: {first} ms"
    );
    for round in 1..=10 {
        world.at(round * 10_000);
        assert_eq!(world.greeted(), [0]);
        world.meet(0);
        for node in [1, 2] {
            let no = DialError::Unreachable("no".into());
            world.core.dial_failed(node, &no);
        }
    }
    let last = pause(&mut world);
    assert!((2_550..=5_050).contains(&last), "the longest: {last} ms");
    world.at(102_000);
    let less = pause(&mut world);
    assert_eq!(less + 2_000, last, "it is a time, not a guess");

    // Nobody knows when a node that is being dialled, or that owes an answer, will be there.
    world.at(106_000);
    assert_eq!(pause(&mut world), 550);
}
