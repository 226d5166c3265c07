//! Joining a queue without an attempt, where others were queued a moment ago.

use super::*;

impl World {
    /// A lease that came through the queue is released. So others may be waiting there. Returns its ticket.
    fn came_through(&mut self) -> u64 {
        let (mut answer, place) = self.waits(Renewal::auto());
        self.pushes(1, &place, handed(7));
        self.pushes(2, &place, handed(7));
        let _lease = answer.try_recv().unwrap().unwrap().unwrap();
        self.frees();
        place.1.ticket
    }

    fn frees(&mut self) {
        let id = self.core.first_lease().unwrap();
        let _released = self.release(id);
        assert_eq!(self.sent(), all('R'));
        let freed = Answer::Released(true);
        ALL.iter().for_each(|node| self.says(*node, freed.clone()));
    }

    fn wants_it_again(&mut self) -> Answered {
        let wait = Wait::For(None);
        self.ask(|acquisition| {
            (
                acquisition.id,
                acquisition.request.wait,
                acquisition.request.renewal,
            ) = (AcquisitionId::of_call(2), wait, Renewal::auto());
        })
    }

    /// The places that were asked for, with `only_last`. The RELEASEs that went before them are returned too.
    fn joins(&mut self) -> (Vec<usize>, Vec<(Entry, Place)>) {
        let (mut released, mut places) = (Vec::new(), Vec::new());
        for (node, command) in self.until_sent() {
            match joins(&command) {
                Some(place) => places.push(place),
                None if command.entry_that(Request::frees).is_some() => released.push(node),
                None => panic!("{command:?}"),
            }
        }
        self.core.mark_written();
        (released, places)
    }
}

fn full() -> Fault {
    Fault::Error("OOM command not allowed".into())
}

fn others_are_ahead(ticket: u64) -> Answer {
    Answer::Held {
        which: None,
        remaining: Some(Duration::from_secs(1)),
        counter: 6,
        holder: Some("0123456789abcdef0123456789abcdef@web-1:77".into()),
        ticket,
    }
}

#[test]
fn a_contended_name_is_joined_at_once_and_behind_all_waiters() {
    let mut world = World::new(3);
    let before = world.came_through();
    let mut answer = world.wants_it_again();
    let (released, joins) = world.joins();
    assert_eq!((released.len(), joins.len()), (0, 3));
    assert!(
        joins
            .iter()
            .all(|(_, place)| place.only_last && place.ticket > before)
    );
    let (first, place) = joins[0].clone();
    let far = place.ticket + 1_000_000;
    world.says(0, others_are_ahead(far));
    assert_eq!(world.sent(), []);
    world.says(1, others_are_ahead(5));
    // Only the node that has not answered may know that place.
    let (released, joins) = world.joins();
    assert_eq!((released, joins.len()), (vec![2], 3));
    for (entry, place) in &joins {
        assert!(!place.only_last && place.ticket > far && *entry != first);
        assert_eq!(*entry, joins[0].0);
    }
    world.says(2, in_line());
    world.says(2, Answer::Released(false));
    ALL.iter().for_each(|node| world.says(*node, in_line()));
    let place = joins[0].clone();
    world.pushes(0, &place, handed(8));
    world.pushes(2, &place, handed(8));
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(lease.token().as_u64(), 8);
}

#[test]
fn new_place_without_random_bits_ends_the_wait_and_is_rolled_back_once() {
    let mut world = World::new(3);
    world.came_through();
    let mut answer = world.wants_it_again();
    let (_, joins) = world.joins();
    world.core.set_chance(Chance::Dry);
    world.says(0, others_are_ahead(joins[0].1.ticket + 1_000_000));
    world.says(1, others_are_ahead(5));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::System(_)), "{error}");
    // Only the node that has not answered may know the place that was given up.
    assert_eq!(world.sent(), [(2, 'R')]);
    world.says(2, in_line());
    world.says(2, Answer::Released(false));
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn a_join_that_wins_a_free_lock_ends_the_contended_state() {
    let mut world = World::new(3);
    world.came_through();
    let mut answer = world.wants_it_again();
    assert_eq!(world.sent(), all('J'));
    let taken = Answer::Taken { counter: 8, seq: 1 };
    world.says(0, taken.clone());
    world.says(1, taken);
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(lease.token().as_u64(), 8);
    world.says(2, Answer::Taken { counter: 8, seq: 1 });
    world.sent();
    world.frees();
    let wait = Wait::For(None);
    let _kept = world.ask(|acquisition| {
        (acquisition.id, acquisition.request.wait) = (AcquisitionId::of_call(3), wait)
    });
    assert_eq!(world.sent(), all('A'));
}

#[test]
fn a_queue_not_heard_of_for_a_second_is_not_expected() {
    for (ms, letter) in [(900, 'J'), (1_001, 'A')] {
        let mut world = World::new(3);
        world.came_through();
        world.at(ms);
        world.sent();
        let _kept = world.wants_it_again();
        assert_eq!(world.sent(), all(letter), "{ms}");
    }
}

#[test]
fn a_join_that_fails_on_a_majority_falls_back_to_an_attempt() {
    let mut world = World::new(3);
    world.came_through();
    let mut answer = world.wants_it_again();
    assert_eq!(world.sent(), all('J'));
    world.core.answered(0, [Err(full())]);
    assert_eq!(world.sent(), []);
    world.core.answered(1, [Err(full())]);
    let sent = world.sent();
    assert_eq!(sent, [all('R'), all('A')].concat());
    // This is the first attempt, and it fails as such.
    world.core.answered(0, [Err(full())]);
    for node in [0, 1] {
        world.core.answered(node, [Err(full())]);
        world.core.answered(node, [Err(full())]);
    }
    let told = answer.try_recv().unwrap();
    assert!(matches!(told, Err(Error::NoQuorum(_))), "{told:?}");
}

#[test]
fn an_acquisition_attempts_while_a_failed_join_makes_its_attempt() {
    let mut world = World::new(3);
    world.came_through();
    let _joined = world.wants_it_again();
    assert_eq!(world.sent(), all('J'));
    world.core.answered(0, [Err(full())]);
    world.core.answered(1, [Err(full())]);
    assert_eq!(world.sent(), [all('R'), all('A')].concat());
    let wait = Wait::For(None);
    let _refused = world.ask(|acquisition| {
        (acquisition.id, acquisition.request.wait) = (AcquisitionId::of_call(3), wait)
    });
    assert_eq!(world.sent(), all('A'));
    // The first attempt stays open. The second one is refused, so that the name is contended again.
    world.says(0, Answer::Released(false));
    world.says(0, Answer::Granted(9));
    world.says(0, others_are_ahead(5));
    world.says(1, Answer::Released(false));
    world.core.answered(1, [Err(full())]);
    world.says(1, others_are_ahead(5));
    assert_eq!(world.sent(), [vec![(2, 'R')], all('J')].concat());
    let _last = world.ask(|acquisition| {
        (acquisition.id, acquisition.request.wait) = (AcquisitionId::of_call(4), wait)
    });
    assert_eq!(world.sent(), all('A'));
}

#[test]
fn a_single_attempt_on_a_contended_name_does_not_join_the_queue() {
    for wait in [Wait::Never, Wait::For(Some(Duration::ZERO))] {
        let mut world = World::new(3);
        world.came_through();
        let _kept = world.ask(|acquisition| {
            (acquisition.id, acquisition.request.wait) = (AcquisitionId::of_call(2), wait)
        });
        assert_eq!(world.sent(), all('A'), "{wait:?}");
    }
}

#[test]
fn a_crowd_of_joins_is_limited_to_sixteen_at_a_time() {
    let mut world = World::new(3);
    world.came_through();
    let wait = Wait::For(None);
    let _kept: Vec<_> = (2..100)
        .map(|id| {
            world.ask(|acquisition| {
                (acquisition.id, acquisition.request.wait) = (AcquisitionId::of_call(id), wait)
            })
        })
        .collect();
    assert_eq!(world.sent().len(), 16 * 3);
    // Two nodes have registered all of these, so the next ones begin.
    for node in [0, 1] {
        for _ in 0..16 {
            world.says(node, in_line());
        }
    }
    world.at(1);
    assert_eq!(world.sent().len(), 16 * 3);
}

#[test]
fn an_acquisition_does_not_join_at_once_beside_an_earlier_attempt() {
    let mut world = World::new(3);
    let wait = Wait::For(None);
    let ask = |world: &mut World, id| {
        std::mem::forget(world.ask(|acquisition| {
            (acquisition.id, acquisition.request.wait) = (AcquisitionId::of_call(id), wait)
        }));
        world.sent()
    };
    assert_eq!(ask(&mut world, 1), all('A'));
    assert_eq!(ask(&mut world, 2), all('A'));
    // The first one is refused and joins the queue, so the name is contended from now on.
    for node in [0, 1] {
        world.core.answered(node, [Ok(held())]);
    }
    assert_eq!(world.sent(), [vec![(2, 'R')], all('J')].concat());
    assert_eq!(
        ask(&mut world, 3),
        all('A'),
        "the second has not joined yet"
    );
}

#[test]
fn a_cancelled_join_makes_room_for_the_next_one() {
    for hears_first in [false, true] {
        let mut world = World::new(3);
        world.came_through();
        let wait = Wait::For(None);
        for id in 2..18 {
            drop(world.ask(|acquisition| {
                (acquisition.id, acquisition.request.wait) = (AcquisitionId::of_call(id), wait)
            }));
        }
        assert_eq!(world.sent().len(), 16 * 3);
        if hears_first {
            (0..16).for_each(|_| world.says(0, in_line()));
        }
        for id in 2..18 {
            world.core.event(Event::Cancel(AcquisitionId::of_call(id)));
        }
        world.sent();
        let _kept = world.ask(|acquisition| {
            (acquisition.id, acquisition.request.wait) = (AcquisitionId::of_call(18), wait)
        });
        assert_eq!(world.sent(), all('J'), "{hears_first}");
    }
}
