//! A wait ends at the time that its caller set. The answers that have come by then decide.

use super::*;
use crate::{NodeState, Report, Silence, Vote};

impl World {
    fn lock_within(&mut self, ms: u64) -> Answered {
        self.ask(|acquisition| {
            acquisition.request.wait = Wait::For(Some(Duration::from_millis(ms)))
        })
    }

    /// Acquisitions that each want another name, and wait for at most `within` ms.
    fn flood(&mut self, acquisitions: u64, within: Option<u64>) -> Vec<Answered> {
        let wait = Wait::For(within.map(Duration::from_millis));
        let ask = |n| {
            let name = Name::new(format!("job:{n}")).unwrap();
            self.ask(|acquisition| {
                (acquisition.id, acquisition.request.wait) = (AcquisitionId::of_call(n), wait);
                acquisition.request.wants = Wants::Lock(Target::mutex(name));
            })
        };
        (0..acquisitions).map(ask).collect()
    }
}

/// The refusal of a caller that waited.
fn refusal(answer: &mut Answered) -> Report {
    match answer.try_recv() {
        Ok(Err(Error::Held(report))) => report,
        other => panic!("{other:?}"),
    }
}

fn no_quorum(answer: &mut Answered) -> Report {
    match answer.try_recv() {
        Ok(Err(Error::NoQuorum(report))) => report,
        other => panic!("{other:?}"),
    }
}

fn unheard(report: &Report) -> Vec<usize> {
    let nodes = report.nodes().iter().enumerate();
    let silent = nodes.filter(|(_, node)| node.vote == Vote::None(Silence::WaitOver));
    silent.map(|(node, _)| node).collect()
}

const GRANTED: Answer = Answer::Granted(7);
const ALL_RELEASED: [(usize, char); 3] = [(0, 'R'), (1, 'R'), (2, 'R')];

#[test]
fn an_attempt_ends_with_the_wait_and_is_taken_back_everywhere() {
    let mut world = World::new(3);
    let mut answer = world.lock_within(50);
    world.sent();
    world.says(1, GRANTED);
    world.at(49);
    assert!(is_open(&mut answer));
    world.at(50);
    let report = no_quorum(&mut answer);
    assert_eq!(unheard(&report), [0, 2], "{report}");
    assert_eq!(world.sent(), ALL_RELEASED);
    // The end of a caller's wait says nothing about the nodes.
    let states = world.core.states(world.clock.now());
    assert!(states.iter().all(|state| *state == NodeState::Voting));
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn the_wait_began_when_the_caller_asked_not_when_the_engine_heard_of_it() {
    let mut world = World::new(3);
    let asked_at = world.clock.now();
    world.at(30);
    let wait = Wait::For(Some(Duration::from_millis(50)));
    let mut answer = world
        .ask(|acquisition| (acquisition.request.wait, acquisition.asked_at) = (wait, asked_at));
    assert_eq!(world.sent().len(), 3);
    world.at(49);
    assert!(is_open(&mut answer));
    world.at(50);
    no_quorum(&mut answer);

    let mut late = world
        .ask(|acquisition| (acquisition.request.wait, acquisition.asked_at) = (wait, asked_at));
    assert_eq!(unheard(&no_quorum(&mut late)), [0, 1, 2]);
    assert_eq!(world.sent(), ALL_RELEASED, "of the first: it asked nobody");
}

#[test]
fn a_wait_that_ends_after_a_majority_answered_reports_held() {
    let mut world = World::new(5);
    let mut answer = world.lock_within(50);
    world.sent();
    world.says(0, GRANTED);
    for node in [1, 2] {
        world.core.answered(node, [Ok(held())]);
    }
    world.at(49);
    assert!(is_open(&mut answer), "two more might grant");
    world.at(50);
    let report = refusal(&mut answer);
    assert_eq!(report.holder(), Some("web-1:77"));
    assert_eq!(unheard(&report), [3, 4]);
}

#[test]
fn tokens_are_not_made_equal_after_the_end() {
    // The third answer is waited for when the wait ends.
    let mut world = World::new(3);
    let mut answer = world.lock_within(50);
    world.sent();
    world.at(40);
    world.says(0, GRANTED);
    world.says(1, Answer::Granted(8));
    world.at(50);
    assert_eq!(unheard(&refusal(&mut answer)), [2]);
    assert_eq!(world.sent(), ALL_RELEASED, "and no raise");

    // The raise is under way.
    let mut world = World::new(3);
    let mut answer = world.lock_within(50);
    world.sent();
    for (node, token) in [(0, 7), (1, 8), (2, 9)] {
        world.says(node, Answer::Granted(token));
    }
    assert_eq!(world.sent(), [(0, 'T')]);
    world.at(49);
    assert!(is_open(&mut answer));
    world.at(50);
    assert_eq!(unheard(&refusal(&mut answer)), [0]);
    assert_eq!(world.sent(), ALL_RELEASED);
}

/// This process was paused, and the grants had arrived when it went on. They are read before the clock is looked at.
#[test]
fn grants_read_after_a_pause_win_even_past_the_end_of_the_wait() {
    let mut world = World::new(3);
    let mut answer = world.lock_within(50);
    world.sent();
    world.pause_until(80);
    world.says(0, GRANTED);
    world.says(2, GRANTED);
    assert!(matches!(answer.try_recv(), Ok(Ok(Some(_)))));
    world.at(80);
}

#[test]
fn a_wait_for_nodes_to_be_met_ends_on_time() {
    let mut world = World::new(3);
    let _other = world.inspect();
    world.sent();
    for node in 0..3 {
        world.core.answered(node, [Err(Fault::NotAdmitted)]);
    }
    world.sent();
    let (mut later, mut sooner) = (world.lock_within(80), world.lock_within(50));
    let mut tried = world.try_lock();
    world.at(49);
    assert!(is_open(&mut sooner));
    world.at(50);
    no_quorum(&mut sooner);
    world.at(79);
    assert!(is_open(&mut later));
    world.at(80);
    no_quorum(&mut later);
    assert!(is_open(&mut tried), "one attempt has no end but the nodes'");
    assert_eq!(world.sent(), []);
    world.at(500);
    no_quorum(&mut tried);
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn a_queued_wait_without_voting_nodes_ends_with_no_quorum() {
    let mut world = World::new(3);
    let mut answer = world.lock_within(50);
    world.sent();
    for node in 0..3 {
        world.core.answered(node, [Ok(held())]);
    }
    let in_line: Vec<_> = (0..3).map(|node| (node, 'J')).collect();
    let taken_back = vec![(2, 'R')]; // The others had refused it.
    assert_eq!(world.sent(), [taken_back, in_line].concat());
    world.says(2, Answer::Released(false));
    for node in 0..3 {
        world.core.answered(node, [Err(Fault::NotAdmitted)]);
    }
    world.at(49);
    assert!(is_open(&mut answer));
    world.sent();
    world.at(50);
    no_quorum(&mut answer);
    // In case the JOINs arrived after all, the release goes on until the place would have expired.
    world.at(35_000);
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

/// As with `flock --wait 0`: it does not wait for the lock, but it waits for the nodes.
#[test]
fn a_zero_wait_makes_one_attempt() {
    let mut world = World::new(3);
    let mut answer = world.lock_within(0);
    assert_eq!(world.sent(), [(0, 'A'), (1, 'A'), (2, 'A')]);
    world.at(400);
    assert!(is_open(&mut answer));
    world.says(0, GRANTED);
    world.says(1, GRANTED);
    assert!(matches!(answer.try_recv(), Ok(Ok(Some(_)))));
    world.sent();
    let mut answer = world.lock_within(0);
    for node in [2, 0, 1] {
        world.core.answered(node, [Ok(held())]);
    }
    refusal(&mut answer);
}

#[test]
fn a_flood_of_names_asks_in_turns() {
    let mut world = World::new(3);
    let mut answers = world.flood(1_030, None);
    let asked_of = |node: usize, sent: &[(usize, char)]| {
        sent.iter().filter(|sent| **sent == (node, 'A')).count()
    };
    assert_eq!(asked_of(0, &world.sent()), 1_025, "and one nevertheless");
    world.says(0, GRANTED);
    world.says(0, GRANTED);
    assert!(is_open(&mut answers[0]));
    world.says(1, GRANTED);
    assert!(answers[0].try_recv().is_ok());
    assert_eq!(asked_of(0, &world.sent()), 0);
    world.says(1, GRANTED);
    assert!(answers[1].try_recv().is_ok());
    assert_eq!(asked_of(0, &world.sent()), 1, "the next one");
    // While the nodes are as busy, one more begins every 5 ms, because other requests may keep them busy for good.
    world.at(4);
    assert_eq!(asked_of(0, &world.sent()), 0);
    world.at(5);
    assert_eq!(asked_of(0, &world.sent()), 1);
    // A caller that does not wait asks at once.
    world.ask(|acquisition| acquisition.id = AcquisitionId::of_call(9_999));
    assert_eq!(asked_of(0, &world.sent()), 1);
}

#[test]
fn a_flood_on_stopped_nodes_gets_no_quorum_and_leaves_nothing() {
    let mut world = World::new(3);
    let mut answers = world.flood(5_000, None);
    for gone in (0..5_000).step_by(3) {
        world
            .core
            .event(Event::Cancel(AcquisitionId::of_call(gone)));
    }
    for ms in (0..1_500).step_by(5) {
        world.at(ms);
    }
    for (n, answer) in answers.iter_mut().enumerate() {
        let answer = answer.try_recv();
        assert!(
            n % 3 == 0 || matches!(answer, Ok(Err(Error::NoQuorum(_)))),
            "{n}: {answer:?}"
        );
    }
    world.core.event(Event::Cancel(AcquisitionId::of_call(0)));
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn a_wait_that_ends_before_its_turn_in_a_flood_asked_no_node() {
    let mut world = World::new(3);
    let mut answers = world.flood(1_100, Some(50));
    world.sent();
    world.at(49);
    assert!(answers.iter_mut().all(is_open));
    // These are too many ends to look at in one go.
    (0..10).for_each(|_| world.at(50));
    for answer in &mut answers {
        assert_eq!(unheard(&no_quorum(answer)), [0, 1, 2]);
    }
    let asked = world.sent().into_iter().filter(|(_, what)| *what == 'A');
    assert!(asked.count() <= 3, "who is told so has asked nobody");
}
