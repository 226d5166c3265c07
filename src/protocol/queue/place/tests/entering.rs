//! A place that is taken only behind all others.

use super::*;

/// A place among five nodes that is behind all others.
fn only_last() -> Place {
    let terms = Terms::new(Duration::from_secs(10), Duration::from_secs(30), ms(10));
    let mut place = Place::new(at(0), TICKET, terms, 5, Rules::ALL).only_last();
    assert_eq!(place.next(at(0)), Step::Ask(vec![0, 1, 2, 3, 4], 1));
    place
}

#[test]
fn a_place_that_a_majority_has_is_then_taken_where_it_was_refused() {
    let mut place = only_last();
    for node in [3, 4, 0] {
        assert!(place.only_last);
        place.answered(at(10), node, behind(4, 5_000, 0));
        rests_until(&mut place, 10);
    }
    assert!(!place.only_last);
    place.answered(at(11), 1, Position::Refused);
    assert_eq!(place.next(at(11)), Step::Ask(vec![1], 2), "it came late");
    assert_eq!(place.asked().count(), 5);
}

#[test]
fn a_place_before_others_is_given_up_once_a_majority_answered() {
    let mut place = only_last();
    for (node, answer) in [(0, Position::Refused), (1, behind(4, 5_000, 0))] {
        place.answered(at(10), node, answer);
        rests_until(&mut place, 10);
    }
    place.answered(at(10), 2, Position::Refused);
    assert_eq!(place.next(at(10)), Step::Again);
    // The nodes that have refused it do not know it. Those that have not answered may.
    assert_eq!(place.asked().collect::<Vec<_>>(), [1, 3, 4]);
}

#[test]
fn a_node_that_refuses_a_second_request_may_know_the_first() {
    let mut place = only_last();
    place.unanswered(at(10), 0);
    place.answered(at(11), 1, Position::Refused);
    place.came_back(at(12), 0);
    assert_eq!(place.next(at(12)), Step::Ask(vec![0], 2));
    place.answered(at(13), 0, Position::Refused);
    assert_eq!(place.asked().collect::<Vec<_>>(), [0, 2, 3, 4]);
}

#[test]
fn a_place_behind_all_is_given_up_if_too_few_nodes_answer() {
    let mut place = only_last();
    place.unanswered(at(10), 0);
    place.mark_unsent(1);
    rests_until(&mut place, 10);
    place.answered(at(10), 2, behind(4, 5_000, 0));
    rests_until(&mut place, 10);
    place.went(3);
    assert_eq!(place.next(at(10)), Step::Unheard);
    // A node that has come back is asked again, and may answer.
    place.came_back(at(20), 0);
    assert_eq!(place.next(at(20)), Step::Ask(vec![0], 2));
}
