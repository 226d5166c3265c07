mod collisions;

use proptest::prelude::*;

use super::*;
use crate::{
    base::taken::Taken,
    protocol::{queue::beats::ROUNDING, slots::words::Won},
};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Tick {
    Tick::from_nanos((1_000 + ms) * MS)
}

fn terms() -> Terms {
    let (ttl, life) = (Duration::from_secs(10), Duration::from_secs(30));
    Terms::new(ttl, life, Duration::from_millis(10))
}

/// A search among three nodes.
fn seat(slots: u32, waits: bool) -> Seat {
    let limit = Limit { version: 1, slots };
    Seat::new(7, terms(), limit, 3, Rules::ALL).waits(waits)
}

fn zero(_: u64) -> u64 {
    0
}

fn next(seat: &mut Seat, ms: u64) -> Step {
    seat.next(at(ms), &mut zero)
}

fn slots(mine: Option<(u32, u64)>, others: &[u32]) -> Slots {
    let mut taken = Taken::default();
    let all = others.iter().copied().chain(mine.map(|(slot, _)| slot));
    all.for_each(|slot| taken.set(slot, true));
    Slots {
        mine,
        taken,
        version: 1,
        may_take: true,
        ticket: 7,
        next_free: Some(Duration::from_secs(5)),
    }
}

/// A node, the slot that it has for this search with its counter, and the slots that others have there.
type Told<'a> = (usize, Option<(u32, u64)>, &'a [u32]);

fn answers(seat: &mut Seat, ms: u64, all: &[Told<'_>]) {
    for (node, mine, others) in all {
        seat.answered(at(ms), *node, slots(*mine, others));
    }
}

/// A search that has asked all nodes for slot 0, or the next free one.
fn picks(slots: u32, waits: bool) -> Seat {
    let mut seat = seat(slots, waits);
    assert_eq!(next(&mut seat, 0), Step::Take(vec![0, 1, 2], Ask::Pick(0)));
    seat
}

#[track_caller]
fn won(step: &Step) -> &Won {
    match step {
        Step::Won(won) => won,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_deciding_vote_wins_in_one_round() {
    let mut seat = picks(3, true);
    answers(&mut seat, 10, &[(0, Some((1, 70)), &[0])]);
    assert!(matches!(next(&mut seat, 10), Step::Rest(_)));
    answers(&mut seat, 11, &[(2, Some((1, 70)), &[0])]);
    let step = next(&mut seat, 11);
    let won = won(&step);
    assert_eq!((won.slot, won.token, won.since), (1, 70, at(0)));
    assert_eq!(won.end, valid_until(at(0), Duration::from_secs(10)));
    assert_eq!(won.held, [(0, 70), (2, 70)]);
    assert_eq!(
        won.others, [0; 0],
        "who has not answered is told when it has"
    );
}

#[test]
fn a_slot_that_most_have_is_moved_to_with_a_token_beyond_the_one_in_hand() {
    let mut seat = picks(3, true);
    answers(
        &mut seat,
        10,
        &[
            (0, Some((1, 70)), &[]),
            (1, Some((2, 70)), &[]),
            (2, Some((2, 71)), &[]),
        ],
    );
    assert_eq!(next(&mut seat, 10), Step::Raise(2, 71, vec![1]));
    seat.raised(at(20), 1, Some(71));
    let step = next(&mut seat, 20);
    let won = won(&step);
    assert_eq!((won.slot, won.token), (2, 71));
    assert_eq!(won.others, [0], "slot 1 there is given back");
}

#[test]
fn a_raise_counts_only_if_it_is_exact() {
    let mut seat = picks(3, false);
    answers(
        &mut seat,
        10,
        &[
            (0, Some((2, 70)), &[]),
            (1, Some((2, 71)), &[]),
            (2, None, &[0, 1, 2]),
        ],
    );
    assert_eq!(next(&mut seat, 10), Step::Raise(2, 71, vec![0]));
    seat.raised(at(20), 0, Some(75));
    assert_eq!(next(&mut seat, 20), Step::Raise(2, 75, vec![1]));
    seat.raised(at(30), 1, None);
    assert_ne!(next(&mut seat, 30), Step::Rest(None));
}

#[test]
fn a_vote_is_over_when_something_was_sent_behind_it() {
    let mut seat = picks(3, true);
    // The first node has two requests to answer, because it is moved to slot 0. The third node answers the PICK only
    // after that.
    answers(&mut seat, 10, &[(0, Some((0, 70)), &[]), (1, None, &[1])]);
    assert!(matches!(next(&mut seat, 10), Step::Rest(_)));
    let floor = Some(70);
    assert_eq!(
        next(&mut seat, 30),
        Step::Take(vec![1, 2], Ask::Move { want: 0, floor })
    );
    answers(&mut seat, 31, &[(2, Some((0, 70)), &[])]);
    assert!(
        matches!(next(&mut seat, 31), Step::Rest(_)),
        "the MOVE that was sent behind it may have changed that"
    );
    answers(&mut seat, 40, &[(2, Some((0, 70)), &[])]);
    assert_eq!(won(&next(&mut seat, 40)).held, [(0, 70), (2, 70)]);
}

#[test]
fn a_try_is_refused_when_a_majority_has_answered_and_nothing_can_be_had() {
    let mut seat = picks(2, false);
    answers(&mut seat, 10, &[(0, None, &[0, 1]), (1, None, &[0, 1])]);
    assert_eq!(next(&mut seat, 10), Step::Refused);
}

#[test]
fn a_search_rests_while_an_answer_is_outstanding() {
    let mut seat = picks(2, true);
    answers(&mut seat, 10, &[(0, None, &[0, 1])]);
    seat.unanswered(at(10), 1);
    assert_eq!(
        next(&mut seat, 300),
        Step::Rest(None),
        "the third may still be late"
    );
}

#[test]
fn a_search_with_too_few_answers_ends_with_no_quorum() {
    let mut seat = picks(2, true);
    answers(&mut seat, 10, &[(0, None, &[0, 1])]);
    seat.unanswered(at(10), 1);
    assert!(matches!(next(&mut seat, 10), Step::Rest(_)));
    seat.answered_late(2);
    assert_eq!(next(&mut seat, 500), Step::NoQuorum);
}

#[test]
fn a_search_that_cannot_win_its_slot_yields_it_and_waits() {
    let mut seat = picks(1, true);
    answers(
        &mut seat,
        10,
        &[(0, Some((0, 70)), &[]), (1, None, &[0]), (2, None, &[0])],
    );
    assert_eq!(next(&mut seat, 10), Step::Yield(vec![0]));
    // Another owner has it on two of three nodes, so there is nothing to try for.
    seat.yielded(at(20), 0);
    assert_eq!(next(&mut seat, 20), Step::Take(vec![0, 1, 2], Ask::Stay));
}

#[test]
fn a_call_is_followed_at_once_and_on_all_nodes() {
    let mut seat = picks(2, true);
    answers(
        &mut seat,
        10,
        &[(0, None, &[0, 1]), (1, None, &[0, 1]), (2, None, &[0, 1])],
    );
    assert!(matches!(next(&mut seat, 10), Step::Rest(Some(_))));
    seat.slot_freed(1);
    assert_eq!(
        next(&mut seat, 50),
        Step::Take(
            vec![0, 1, 2],
            Ask::Move {
                want: 1,
                floor: None
            }
        )
    );
    seat.slot_freed(1);
    answers(
        &mut seat,
        60,
        &[(0, Some((1, 70)), &[0]), (1, Some((1, 70)), &[0])],
    );
    assert_eq!(won(&next(&mut seat, 60)).slot, 1);
}

#[test]
fn the_next_waiter_asks_once_the_called_one_is_late_by_any_clock() {
    let mut seat = picks(1, true);
    answers(
        &mut seat,
        10,
        &[(0, None, &[0]), (1, None, &[0]), (2, None, &[0])],
    );
    next(&mut seat, 10);
    seat.told_next(at(20), 1, Duration::from_secs(1));
    assert!(matches!(next(&mut seat, 1_021), Step::Rest(_)));
    assert_eq!(next(&mut seat, 1_022), Step::Take(vec![1], Ask::Stay));
}

/// One ticket for all nodes (protocol §6, step 5).
#[test]
fn a_node_with_a_smaller_ticket_is_asked_again_at_once() {
    let mut seat = picks(3, true);
    for (node, ticket) in [(0, 7), (1, 9), (2, 9)] {
        let behind = Slots {
            may_take: false,
            ticket,
            ..slots(None, &[0, 1, 2])
        };
        seat.answered(at(10), node, behind);
    }
    assert_eq!(next(&mut seat, 10), Step::Take(vec![0], Ask::Stay));
    assert_eq!(seat.ticket, 9);
    assert!(matches!(next(&mut seat, 10), Step::Rest(_)), "asked once");
}

#[test]
fn a_full_semaphore_is_asked_again_at_the_first_end() {
    let mut seat = picks(2, true);
    answers(
        &mut seat,
        10,
        &[(0, None, &[0, 1]), (1, None, &[0, 1]), (2, None, &[0, 1])],
    );
    assert_eq!(
        next(&mut seat, 10),
        Step::Rest(Some(at(5_010).plus(ROUNDING)))
    );
    let due = next(&mut seat, 5_020);
    assert_eq!(due, Step::Take(vec![0, 1, 2], Ask::Stay));
}

#[test]
fn another_limit_is_a_conflict_unless_a_known_one_is_older() {
    let limit = Limit {
        version: 0,
        slots: 3,
    };
    let other = Limit {
        version: 4,
        slots: 5,
    };
    let mut seat = Seat::new(7, terms(), limit, 3, Rules::ALL);
    let _ = next(&mut seat, 0);
    seat.conflicts(0, other);
    assert!(
        matches!(next(&mut seat, 5), Step::Rest(_)),
        "one is no majority"
    );
    seat.conflicts(1, other);
    assert_eq!(next(&mut seat, 10), Step::Conflict(other));

    let mut seat = picks(3, true);
    (0..3).for_each(|node| seat.conflicts(node, other));
    assert_eq!(next(&mut seat, 10), Step::Take(vec![0, 1, 2], Ask::Pick(0)));
    assert_eq!(seat.limit, other);
}

#[test]
fn a_slot_that_does_not_fit_the_smaller_limit_is_given_back() {
    let mut seat = picks(2, true);
    // Two holders from before the resize are still there.
    answers(
        &mut seat,
        10,
        &[(0, Some((0, 70)), &[4]), (1, Some((0, 70)), &[5])],
    );
    seat.answered_late(2);
    assert_eq!(
        next(&mut seat, 30),
        Step::Yield(vec![0, 1]),
        "0, 4 and 5 are three"
    );
    let mut seat = picks(2, true);
    answers(
        &mut seat,
        10,
        &[(0, Some((0, 70)), &[4]), (1, Some((0, 70)), &[4])],
    );
    assert_eq!(won(&next(&mut seat, 10)).slot, 0);
}

#[test]
fn a_grant_from_too_long_ago_is_not_a_vote() {
    let mut seat = picks(2, true);
    answers(&mut seat, 10, &[(0, Some((0, 70)), &[])]);
    seat.answered_late(1);
    seat.answered_late(2);
    answers(&mut seat, 9_600, &[(1, Some((0, 70)), &[])]);
    assert!(!matches!(next(&mut seat, 9_600), Step::Won(_)));
}

#[test]
fn an_answer_counts_from_the_oldest_request_that_it_may_belong_to() {
    let mut seat = picks(1, true);
    answers(&mut seat, 10, &[(0, Some((0, 70)), &[])]);
    // The others are late. They are asked again, and that request is taken back before it is sent.
    seat.answered_late(1);
    seat.answered_late(2);
    seat.ask(at(5_000), 1, Duration::ZERO);
    seat.came_back(at(5_000), 1);
    while let Step::Take(nodes, _) | Step::Yield(nodes) = next(&mut seat, 5_000) {
        for node in nodes {
            seat.mark_unsent(node);
        }
    }
    answers(
        &mut seat,
        9_700,
        &[(0, Some((0, 70)), &[]), (1, Some((0, 70)), &[])],
    );
    assert!(
        !matches!(next(&mut seat, 9_700), Step::Won(_)),
        "asked for 9.7 s ago"
    );
}

/// A node's behaviour: says if its answer is still on its way, and what it will say.
#[derive(Clone, Debug)]
enum Says {
    Mine(u32, u64),
    None(Vec<u32>),
    Conflict(u64, u32),
    Nothing,
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        4 => (0..3_u32, 70..73_u64).prop_map(|(slot, token)| Says::Mine(slot, token)),
        2 => prop::collection::vec(0..3_u32, 0..3).prop_map(Says::None),
        1 => (0..3_u64, 1..4_u32).prop_map(|(version, slots)| Says::Conflict(version, slots)),
        1 => Just(Says::Nothing),
    ]
}

proptest! {
    /// For all answers of five nodes, in any order: a search that wins has the slot with one token on three of them,
    /// each by the answer to the last request. It does not ask for ever without time passing. At its end it names every
    /// node that was asked.
    #[test]
    fn a_won_slot_stands_on_a_majority(
        all in prop::collection::vec((0..5_usize, says(), 0..4_u64), 1..60),
        random in any::<u64>(),
    ) {
        let limit = Limit { version: 1, slots: 3 };
        let mut seat = Seat::new(7, terms(), limit, 5, Rules::ALL);
        let mut up_to = |most: u64| random % most.saturating_add(1);
        // By node: the number of requests on their way, and the answer to the last one.
        let (mut pending, mut last) = ([0_u32; 5], [None; 5]);
        let mut asked = [false; 5];
        let mut now = 0;
        for (node, says, wait) in all {
            now += wait;
            for turn in 0.. {
                prop_assert!(turn < 50, "it goes round in circles");
                match seat.next(at(now), &mut up_to) {
                    Step::Take(nodes, _) => for node in nodes {
                        pending[node] += 1;
                        (asked[node], last[node]) = (true, None);
                    },
                    Step::Yield(nodes) => for node in nodes {
                        pending[node] += 1;
                        last[node] = None;
                    },
                    Step::Raise(slot, token, nodes) => for node in nodes {
                        seat.raised(at(now), node, Some(token));
                        last[node] = Some((slot, token));
                    },
                    Step::Won(won) => {
                        let votes = last.iter().filter(|said| **said == Some((won.slot, won.token)));
                        prop_assert!(votes.count() >= 3);
                        prop_assert!(won.slot < seat.limit.slots);
                        for (node, was_asked) in asked.iter().enumerate() {
                            let told = won.others.contains(&node) || pending[node] > 0;
                            let has_it = won.held.iter().any(|(held, _)| *held == node);
                            prop_assert!(!was_asked || told || has_it, "{node} is forgotten");
                        }
                        return Ok(());
                    }
                    Step::Rest(_) => break,
                    Step::Refused | Step::NoQuorum | Step::Conflict(_) => return Ok(()),
                }
            }
            if pending[node] == 0 {
                continue;
            }
            pending[node] -= 1;
            let is_last = pending[node] == 0;
            match says {
                Says::Mine(slot, token) => {
                    seat.answered(at(now), node, slots(Some((slot, token)), &[]));
                    last[node] = Some((slot, token)).filter(|_| is_last);
                }
                Says::None(others) => seat.answered(at(now), node, slots(None, &others)),
                Says::Conflict(version, slots) => seat.conflicts(node, Limit { version, slots }),
                Says::Nothing => seat.unanswered(at(now), node),
            }
        }
    }
}
