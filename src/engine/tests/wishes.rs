//! Many who wait, and what they are told.

use super::*;

/// Wishes for one name, each of which waits for at most `within` ms.
fn crowd(world: &mut World, wishes: u64, within: Option<u64>) -> Vec<Answered> {
    let wait = Wait::For(within.map(Duration::from_millis));
    let ask = |id| {
        world.ask(|wish| {
            wish.id = WishId(id);
            wish.wait = wait;
        })
    };
    (1..=wishes).map(ask).collect()
}

#[test]
fn a_crowd_that_goes_away_leaves_nothing() {
    for way in 0..3 {
        let mut world = World::new(1);
        let mut answers = crowd(&mut world, 10_000, Some(60_000));
        match way {
            0 => (1..=10_000).for_each(|id| world.core.event(Event::Cancel(WishId(id)))),
            1 => (1..=10_000)
                .rev()
                .for_each(|id| world.core.event(Event::Cancel(WishId(id)))),
            _ => {
                world.core.close();
                for answer in &mut answers {
                    assert!(matches!(answer.try_recv(), Ok(Err(Error::Closed))));
                }
            }
        }
        world.at(0);
        assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
    }
}

/// No majority: each finds out, one after the other, without an end of the stack.
#[test]
fn a_crowd_before_dead_nodes_is_told_so() {
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
fn whom_no_majority_answers_is_told_when_enough_nodes_will_have_been_dialled() {
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

    // Nobody knows when one that is being dialled, or owes an answer, will be there.
    world.at(106_000);
    assert_eq!(pause(&mut world), 550);
}
