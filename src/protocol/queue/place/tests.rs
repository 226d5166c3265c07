mod entering;

use super::*;
use crate::protocol::queue::votes::Won;

const TICKET: u64 = 100;
fn at(ms: u64) -> Tick {
    Tick::from_nanos(1_000_000_000 + ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three nodes, 10 ms away.
fn place() -> Place {
    let terms = Terms::new(Duration::from_secs(10), Duration::from_secs(30), ms(10));
    Place::new(at(0), TICKET, terms, 3, Rules::ALL)
}

/// A place that has asked all nodes. Each answered that it is first behind a holder that did not wait.
fn in_line() -> Place {
    let mut place = place();
    assert_eq!(place.next(at(0)), Step::Ask(vec![0, 1, 2], 1));
    for node in 0..3 {
        place.answered(at(10), node, behind(0, 5_000, 0));
    }
    place
}

/// The same, after it has asked all nodes once more.
fn in_line_twice() -> Place {
    let mut place = in_line();
    assert_eq!(place.next(at(260)), Step::Ask(vec![0, 1, 2], 2));
    for node in 0..3 {
        place.answered(at(270), node, behind(0, 5_000, 0));
    }
    place
}

fn behind(rank: u64, remaining: u64, ticket: u64) -> Position {
    Position::Behind {
        rank,
        remaining: Some(ms(remaining)),
        ticket,
        is_first: false,
        is_reserved: false,
        holder: 0,
    }
}

fn rests_until(place: &mut Place, now: u64) -> Option<Tick> {
    match place.next(at(now)) {
        Step::Rest(at) => at,
        other => panic!("{other:?}"),
    }
}

/// The next step that is not a request.
fn settles(place: &mut Place, now: u64) -> Step {
    loop {
        match place.next(at(now)) {
            Step::Ask(..) => {}
            other => return other,
        }
    }
}

fn wins(place: &mut Place, now: u64) -> Won {
    match place.next(at(now)) {
        Step::Won(won) => won,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_waiter_asks_all_nodes_and_then_each_from_time_to_time() {
    let mut place = in_line();
    let beat = rests_until(&mut place, 10).unwrap();
    assert!((at(220)..=at(260)).contains(&beat), "{beat:?}");
    assert_eq!(place.next(at(260)), Step::Ask(vec![0, 1, 2], 2));
    // A waiter that is further behind asks every third of its life.
    for node in 0..3 {
        place.answered(at(270), node, behind(4, 5_000, 7));
    }
    let beat = rests_until(&mut place, 270).unwrap();
    assert!((at(9_000)..=at(10_270)).contains(&beat), "{beat:?}");
    assert_eq!(place.asked().collect::<Vec<_>>(), [0, 1, 2]);
}

/// Until then a node need not tell it that it is next.
#[test]
fn a_new_waiter_asks_again_soon_at_any_rank() {
    let mut place = place();
    place.next(at(0));
    for node in 0..3 {
        place.answered(at(10), node, behind(4, 60_000, 7));
    }
    let soon = rests_until(&mut place, 10).unwrap();
    assert!(soon <= at(260), "S / 4: {soon:?}");
    assert_eq!(place.next(soon), Step::Ask(vec![0, 1, 2], 2));
    let now = soon.since(at(0)).as_millis() as u64;
    for node in 0..3 {
        place.answered(at(now), node, behind(4, 60_000, 7));
    }
    let later = rests_until(&mut place, now).unwrap();
    assert!(later > at(9_000), "a third of its life: {later:?}");
}

#[test]
fn the_next_waiter_asks_when_the_current_lease_ends() {
    let mut place = place();
    place.next(at(0));
    for node in 0..3 {
        place.answered(at(10), node, behind(0, 100, 0));
    }
    assert_eq!(rests_until(&mut place, 10), Some(at(112)));
}

#[test]
fn two_hand_overs_with_one_token_win() {
    let mut place = in_line();
    place.handed(at(100), 0, 1, 7);
    assert_eq!(
        rests_until(&mut place, 100),
        Some(at(112)),
        "1.2 round trips"
    );
    place.handed(at(101), 2, 1, 7);
    let won = wins(&mut place, 101);
    assert_eq!((won.token, won.end), (7, at(1_000 - 12)));
    assert_eq!(place.held().collect::<Vec<_>>(), [(0, 7), (2, 7)]);
}

#[test]
fn after_one_hand_over_the_others_are_asked() {
    let mut place = in_line();
    place.handed(at(100), 0, 1, 7);
    assert_eq!(place.next(at(112)), Step::Ask(vec![1, 2], 2));
    assert!(rests_until(&mut place, 113).unwrap() > at(200), "once");
    place.answered(at(122), 1, Position::Taken { seq: 2, token: 7 });
    assert_eq!(wins(&mut place, 122).token, 7);
}

#[test]
fn a_waiter_yields_all_to_a_smaller_ticket_only() {
    for (ticket, yields) in [(TICKET - 1, true), (TICKET + 1, false), (0, false)] {
        let mut place = in_line();
        place.handed(at(100), 0, 1, 7);
        place.next(at(112));
        place.answered(at(121), 1, behind(0, 900, ticket));
        // It may still get the third node.
        rests_until(&mut place, 121);
        place.answered(at(122), 2, behind(0, 900, ticket));
        if !yields {
            rests_until(&mut place, 122);
            continue;
        }
        assert_eq!(place.next(at(122)), Step::GiveWay(vec![(0, 1)]));
        rests_until(&mut place, 122);
        // A late message about what was given back: the node is told again that it was.
        place.handed(at(124), 0, 1, 7);
        rests_until(&mut place, 124);
        place.came_back(at(125), 0);
        place.next(at(125));
        place.answered(at(135), 0, Position::Taken { seq: 1, token: 7 });
        assert_eq!(place.next(at(135)), Step::GiveWay(vec![(0, 1)]));
    }
}

#[test]
fn a_called_waiter_asks_all_nodes_then_only_the_calling_one() {
    let mut place = in_line();
    place.called(at(100), 1);
    assert_eq!(place.next(at(100)), Step::Ask(vec![0, 1, 2], 2));
    // It asks the node while the node calls. It asks once more when that request is answered.
    place.called(at(101), 2);
    rests_until(&mut place, 101);
    place.answered(at(110), 2, behind(0, 0, 0));
    assert_eq!(place.next(at(110)), Step::Ask(vec![2], 3));
    place.answered(at(110), 0, Position::Taken { seq: 2, token: 9 });
    place.called(at(111), 1);
    place.answered(at(111), 1, behind(0, 0, 0));
    assert_eq!(place.next(at(111)), Step::Ask(vec![1], 4));
}

#[test]
fn a_waiter_told_that_it_is_next_asks_now_and_at_the_given_time() {
    let mut place = in_line();
    // It has just asked, which is recent enough.
    place.told_next(at(50), 1, ms(60));
    assert_eq!(rests_until(&mut place, 50), Some(at(112)));
    assert_eq!(place.next(at(112)), Step::Ask(vec![1], 2));
    place.answered(at(120), 1, behind(4, 60_000, 7));
    rests_until(&mut place, 120);
    place.told_next(at(600), 1, ms(60));
    assert!(matches!(place.next(at(600)), Step::Ask(nodes, _) if nodes.contains(&1)));
    place.answered(at(610), 1, behind(0, 50, 7));
    assert_eq!(rests_until(&mut place, 610), Some(at(662)));
}

/// The last in the queue is told, in case the second one has vanished together with the first.
#[test]
fn a_waiter_told_a_time_asks_then_at_any_rank() {
    let mut place = in_line();
    place.told_next(at(50), 1, ms(1_000));
    let fresh = rests_until(&mut place, 50).unwrap();
    assert!(fresh < at(1_052), "it is heard of before");
    let now = fresh.since(at(0)).as_millis() as u64;
    assert!(matches!(place.next(fresh), Step::Ask(nodes, 2) if nodes.contains(&1)));
    place.answered(at(now), 1, behind(4, 60_000, 7));
    assert_eq!(rests_until(&mut place, now), Some(at(1_052)));
}

#[test]
fn unequal_tokens_wait_for_the_rest_and_are_raised() {
    let mut place = in_line();
    place.handed(at(100), 0, 1, 7);
    place.handed(at(100), 1, 1, 8);
    assert_eq!(rests_until(&mut place, 100), Some(at(110)));
    assert_eq!(place.next(at(110)), Step::Raise(8, vec![(0, 1)]));
    place.handed(at(111), 2, 1, 6);
    assert_eq!(place.next(at(111)), Step::Raise(8, vec![(2, 1)]));
    place.raised(at(111), 2, Some(8));
    assert_eq!(wins(&mut place, 112).token, 8);
}

#[test]
fn a_failed_raise_yields_all() {
    let mut place = in_line();
    place.handed(at(100), 0, 1, 7);
    place.handed(at(100), 1, 1, 8);
    rests_until(&mut place, 100);
    assert_eq!(place.next(at(110)), Step::Raise(8, vec![(0, 1)]));
    place.raised(at(111), 0, Some(9));
    let until = loop {
        match place.next(at(111)) {
            Step::Ask(..) => {}
            Step::Rest(until) => break until.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert!(until <= at(134));
    assert_eq!(place.next(at(134)), Step::GiveWay(vec![(0, 1), (1, 1)]));
}

#[test]
fn a_vote_that_is_over_is_asked_for_again() {
    let mut place = in_line();
    place.handed(at(100), 0, 1, 7);
    place.next(at(112));
    for node in 1..3 {
        place.answered(at(113), node, behind(0, 5_010 - 113, 0));
    }
    let mut asked = Vec::new();
    for now in (113..1_100).step_by(5) {
        while let Step::Ask(nodes, _) = place.next(at(now)) {
            for node in nodes {
                asked.push((now, node));
                match node {
                    0 => place.unanswered(at(now), node),
                    _ => place.answered(at(now), node, behind(0, 5_010 - now, 0)),
                }
            }
        }
    }
    assert!(
        asked
            .iter()
            .any(|(now, node)| *node == 0 && (938..948).contains(now)),
        "{asked:?}"
    );
}

#[test]
fn a_node_that_may_not_be_asked_is_left_alone_until_it_is_back() {
    let mut place = place();
    place.next(at(0));
    place.mark_unsent(1);
    place.unanswered(at(10), 2);
    place.answered(at(10), 0, behind(3, 60_000, 0));
    assert_eq!(place.next(at(260)), Step::Ask(vec![0, 2], 2));
    place.came_back(at(300), 1);
    assert_eq!(place.next(at(300)), Step::Ask(vec![1], 3));
}

#[test]
fn a_node_that_cannot_call_is_asked_more_often() {
    let mut place = place();
    place.next(at(0));
    for node in 0..3 {
        place.set_can_push(node, node != 1);
        place.answered(at(10), node, behind(0, 60_000, 0));
    }
    let next = rests_until(&mut place, 10).unwrap();
    assert!((at(110)..=at(136)).contains(&next), "{next:?}");
    assert_eq!(place.next(next), Step::Ask(vec![1], 2));
}

#[test]
fn after_a_raise_without_a_majority_the_next_one_raises_again() {
    let terms = Terms::new(Duration::from_secs(1), Duration::from_secs(30), ms(10));
    let mut place = Place::new(at(0), TICKET, terms, 5, Rules::ALL);
    place.next(at(0));
    for (node, token) in [(0, 7), (1, 7), (2, 9)] {
        let seq = 1;
        place.answered(at(10), node, Position::Taken { seq, token });
    }
    let mut raised = Vec::new();
    for now in 10..3_000 {
        // Each vote ends at another time and comes again with its token, so they are never all good at once.
        match place.next(at(now)) {
            Step::Ask(nodes, seq) => {
                for node in nodes {
                    let token = [7, 7, 9, 11, 13][node];
                    let answer = match now % 400 < 100 && node > 2 {
                        true => behind(0, 0, 0),
                        false => Position::Taken { seq, token },
                    };
                    place.answered(at(now + 1 + node as u64), node, answer);
                }
            }
            Step::Raise(token, _) => raised.push((now, token)),
            _ => {}
        }
    }
    assert!(raised.len() > 2, "{raised:?}");
}

#[test]
fn a_waiter_yields_to_a_ticketless_holder_that_renews() {
    let mut place = in_line();
    place.handed(at(100), 0, 1, 7);
    for (now, remaining) in [(110, 4_900), (300, 4_720)] {
        place.answered(at(now), 1, behind(0, remaining, 0));
        place.answered(at(now), 2, behind(0, remaining, 0));
        let next = place.next(at(now));
        assert!(
            !matches!(next, Step::GiveWay(_)),
            "{next:?}: it does not renew"
        );
    }
    place.answered(at(500), 1, behind(0, 5_000, 0));
    assert_eq!(place.next(at(500)), Step::GiveWay(vec![(0, 1)]));
}

#[test]
fn between_equal_tickets_the_entry_decides() {
    let behind = |is_first| Position::Behind {
        rank: 0,
        remaining: Some(ms(900)),
        ticket: TICKET,
        is_first,
        is_reserved: false,
        holder: 0,
    };
    let mut place = in_line();
    place.handed(at(100), 0, 1, 7);
    place.answered(at(110), 1, behind(false));
    place.answered(at(110), 2, behind(false));
    let next = place.next(at(110));
    assert!(!matches!(next, Step::GiveWay(_)), "{next:?}");
    place.answered(at(111), 1, behind(true));
    place.answered(at(111), 2, behind(true));
    assert_eq!(place.next(at(111)), Step::GiveWay(vec![(0, 1)]));
}

/// This waiter has one of five nodes, and an earlier waiter has two. It may still get the other two, so it waits until
/// one of them turns out to be out of reach. Otherwise a waiter that is cut off from all but two nodes would stop
/// everybody.
#[test]
fn a_partial_grant_is_yielded_only_if_it_cannot_win_otherwise() {
    type Change = fn(&mut Place);
    let (silent, refused, unreached): (Change, Change, Change) = (
        |place| place.unanswered(at(130), 4),
        |place| place.mark_unsent(4),
        |place| place.unreached(4),
    );
    let before: Change = |place| place.answered(at(130), 4, behind(0, 900, TICKET - 2));
    let another: Change = |place| place.answered(at(130), 4, behind(0, 900, 0));
    for change in [silent, refused, unreached, before, another] {
        let terms = Terms::new(Duration::from_secs(10), Duration::from_secs(30), ms(10));
        let mut place = Place::new(at(0), TICKET, terms, 5, Rules::ALL);
        place.next(at(0));
        for node in 0..5 {
            // The present holder was before this waiter. That says nothing about the next one.
            place.answered(at(10), node, behind(0, 5_000, TICKET - 3));
        }
        place.handed(at(100), 0, 1, 7);
        assert_eq!(place.next(at(112)), Step::Ask(vec![1, 2, 3, 4], 2));
        for node in [1, 2] {
            place.answered(at(122), node, behind(0, 900, TICKET - 1));
        }
        place.answered(at(123), 3, behind(0, 900, TICKET + 1));
        rests_until(&mut place, 123);
        change(&mut place);
        assert_eq!(place.next(at(130)), Step::GiveWay(vec![(0, 1)]));
    }
}

/// A node that does not hear of a YIELD is told again, and asked until it has heard it.
#[test]
fn an_unconfirmed_yield_is_repeated() {
    let mut place = in_line();
    place.handed(at(100), 0, 1, 7);
    place.next(at(112));
    for node in 1..3 {
        place.answered(at(122), node, behind(0, 900, TICKET - 1));
    }
    assert_eq!(place.next(at(122)), Step::GiveWay(vec![(0, 1)]));
    let mut given = 0;
    for now in (122..5_000).step_by(10) {
        match place.next(at(now)) {
            Step::GiveWay(grants) => {
                assert_eq!(grants, [(0, 1)]);
                given += 1;
            }
            Step::Ask(nodes, _) => {
                for node in nodes {
                    match node {
                        0 => place.answered(at(now), 0, Position::Taken { seq: 1, token: 7 }),
                        node => place.answered(at(now), node, behind(0, 900, TICKET - 1)),
                    }
                }
            }
            Step::Rest(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(given > 10, "{given}");
}

/// A holder that a majority names has a lease, no matter which ticket it has. It must be possible to repair that lease
/// here.
#[test]
fn a_waiter_yields_to_a_holder_that_a_majority_names() {
    let by = |holder| Position::Behind {
        rank: 0,
        remaining: Some(ms(900)),
        ticket: TICKET + 1,
        is_first: false,
        is_reserved: false,
        holder,
    };
    let mut place = in_line();
    place.handed(at(100), 0, 1, 7);
    place.answered(at(110), 1, by(5));
    rests_until(&mut place, 110);
    place.answered(at(111), 2, by(6));
    rests_until(&mut place, 111);
    place.answered(at(112), 2, by(5));
    assert_eq!(place.next(at(112)), Step::GiveWay(vec![(0, 1)]));
}

/// Two votes with unequal tokens that are never good at the same time for long enough to be raised.
#[test]
fn an_expired_split_is_yielded_to_an_earlier_waiter() {
    for before in [true, false] {
        let mut place = in_line_twice();
        place.handed(at(280), 0, 1, 7);
        let ticket = if before { TICKET - 1 } else { TICKET + 1 };
        place.answered(at(290), 2, behind(0, 900, ticket));
        place.handed(at(918), 1, 2, 8);
        assert!(matches!(settles(&mut place, 918), Step::Rest(_)));
        // The first vote is good for 1 s, less 12 ms of drift and 50 ms of notice.
        let next = settles(&mut place, 938);
        match before {
            true => assert_eq!(next, Step::GiveWay(vec![(1, 2)])),
            false => assert!(!matches!(next, Step::GiveWay(_)), "{next:?}"),
        }
    }
}

/// Tokens are raised while the votes are good for long enough.
#[test]
fn unequal_tokens_are_not_waited_for_until_a_vote_is_over() {
    let mut place = in_line_twice();
    place.handed(at(280), 0, 1, 7);
    place.handed(at(928), 1, 2, 8);
    assert_eq!(settles(&mut place, 928), Step::Rest(Some(at(933))));
    assert_eq!(settles(&mut place, 933), Step::Raise(8, vec![(0, 1)]));
}
