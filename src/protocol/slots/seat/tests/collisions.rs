//! Searches that collided: what they try for next, and when.

use super::*;

#[test]
fn with_plenty_free_another_slot_is_tried_at_once() {
    let split = |seat: &mut Seat| {
        let all: [Told<'_>; 3] = [
            (0, Some((0, 70)), &[1, 2]),
            (1, Some((1, 70)), &[0, 2]),
            (2, Some((2, 70)), &[0, 1]),
        ];
        answers(seat, 10, &all);
        next(seat, 10)
    };
    // Slots 3 to 6 are free on all nodes.
    let moves = Ask::Move {
        want: 3,
        floor: None,
    };
    assert_eq!(split(&mut picks(7, true)), Step::Take(vec![0, 1, 2], moves));
    assert_eq!(split(&mut picks(6, true)), Step::Yield(vec![0, 1, 2]));
    assert_eq!(split(&mut picks(7, false)), Step::Refused);
    // It does not go on like this for ever.
    let mut seat = picks(7, true);
    let mut tries = 0;
    while let Step::Take(..) = split(&mut seat) {
        tries += 1;
    }
    assert_eq!(tries, 4);
}

/// Slot 0 is this search's on one node and another owner's on two. All other slots are free.
fn meets(seat: &mut Seat, ms: u64) {
    let all: [Told<'_>; 3] = [(0, Some((0, 70)), &[]), (1, None, &[0]), (2, None, &[0])];
    answers(seat, ms, &all);
}

#[test]
fn a_search_that_yielded_rests_even_with_plenty_free() {
    let mut seat = picks(7, true);
    let mut tries = 0;
    let yields = loop {
        meets(&mut seat, 10);
        // The random number is the greatest possible.
        match seat.next(at(10), &mut |most| most) {
            Step::Take(..) => tries += 1,
            step => break step,
        }
    };
    assert_eq!((tries, yields), (4, Step::Yield(vec![0])));
    let step = seat.next(at(10), &mut |most| most);
    assert!(matches!(step, Step::Rest(_)), "{step:?}");
}

#[test]
fn more_free_slots_mean_an_earlier_retry_within_the_ttl() {
    // The latest time at which a search that sees this number of free slots looks again.
    let rests = |slots: u32, round_trip: u64| {
        let (ttl, life) = (Duration::from_secs(10), Duration::from_secs(30));
        let terms = Terms::new(ttl, life, Duration::from_millis(round_trip));
        let limit = Limit { version: 1, slots };
        let mut seat = Seat::new(7, terms, limit, 3, Rules::ALL);
        next(&mut seat, 0);
        for node in 0..3 {
            seat.answered(at(0), node, self::slots(None, &[0]));
        }
        match seat.next(at(0), &mut |most| most) {
            Step::Rest(Some(until)) => until.since(at(0)).as_millis(),
            step => panic!("{step:?}"),
        }
    };
    assert_eq!([rests(2, 10), rests(3, 10), rests(4, 10)], [160, 80, 53]);
    assert_eq!(
        [rests(2, 70), rests(2, 300), rests(2, 900)],
        [1_120, 1_250, 1_800]
    );
}

#[test]
fn a_slot_that_comes_in_sight_is_tried_before_the_next_look() {
    let (mut seat, mut ms) = (picks(1, true), 10);
    let last = &mut |most: u64| most;
    let rest = |step: Step, ms: u64| match step {
        Step::Rest(Some(until)) => u64::try_from(until.since(at(ms)).as_millis()).unwrap(),
        step => panic!("{step:?}"),
    };
    meets(&mut seat, ms);
    assert_eq!(seat.next(at(ms), last), Step::Yield(vec![0]));
    seat.yielded(at(ms), 0);
    // The slot is free on one node and taken on two. The search looks again less and less often.
    for within in [160, 320, 500, 500] {
        assert_eq!(rest(seat.next(at(ms), last), ms), within);
        ms += within;
        assert_eq!(
            seat.next(at(ms), last),
            Step::Take(vec![0, 1, 2], Ask::Stay)
        );
        answers(
            &mut seat,
            ms,
            &[(0, None, &[]), (1, None, &[0]), (2, None, &[0])],
        );
    }
    assert_eq!(rest(seat.next(at(ms), last), ms), 500);
    // Then the slot ends on one of these nodes.
    ms += 100;
    seat.ask(at(ms), 1, Duration::ZERO);
    assert_eq!(seat.next(at(ms), last), Step::Take(vec![1], Ask::Stay));
    answers(&mut seat, ms, &[(1, None, &[])]);
    assert_eq!(rest(seat.next(at(ms), last), ms), 160, "not 400");
    let moves = Ask::Move {
        want: 0,
        floor: None,
    };
    assert_eq!(
        seat.next(at(ms + 160), last),
        Step::Take(vec![0, 1, 2], moves)
    );
}

#[test]
fn slots_that_do_not_fit_while_the_limit_shrinks_are_not_free() {
    let mut seat = picks(7, true);
    // Slot 8 is held above the limit. An owner that enters must not make it more than 7 together with that.
    let over = [8, 9, 10];
    let all: [Told<'_>; 3] = [(0, None, &over), (1, None, &over), (2, None, &over)];
    answers(&mut seat, 10, &all);
    let moves = |want| Ask::Move { want, floor: None };
    let last = &mut |most: u64| most;
    assert_eq!(seat.next(at(10), last), Step::Take(vec![0, 1, 2], moves(3)));
    let over = [8, 9, 10, 11, 12, 13, 14];
    let all: [Told<'_>; 3] = [(0, None, &over), (1, None, &over), (2, None, &over)];
    answers(&mut seat, 20, &all);
    assert!(matches!(seat.next(at(20), last), Step::Rest(_)));
}
