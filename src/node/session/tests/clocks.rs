//! A node whose clock is too far behind this client's is not counted (protocol §3, "Why it is safe").

use super::*;

/// This client's wall clock when it connects, in µs.
const WALL: u64 = 1_760_000_000_000_000;

/// A node that votes and whose clock was `behind` when it was met. The wall clock went on by `took` until the answer
/// came.
fn met(rules: Rules, behind: Duration, took: Duration) -> World {
    let mut world = World::with(rules);
    world.clock.set(world.now, WALL);
    world.dial(7);
    let later = WALL + took.as_micros() as u64;
    world.clock.set(world.now, later);
    world.read_behind(behind);
    world.sent();
    world
}

impl World {
    fn read_behind(&mut self, behind: Duration) {
        let stored = Stored::Record(record(RUN, 40_000));
        let time = WALL - behind.as_micros() as u64;
        self.read_with(RUN, stored, |meeting| meeting.time = time);
    }

    fn refusal(&self) -> String {
        match self.state() {
            NodeState::Refused(why) => why,
            state => panic!("{state}"),
        }
    }

    fn extend(&mut self, round: u64) -> Result<(), Silence> {
        let operation = asked(round, extends(Duration::from_secs(10)));
        self.step(|session, step| session.ask(step, tag(round), &operation))
    }
}

#[test]
fn a_clock_that_is_more_than_max_ttl_behind_is_not_counted() {
    let most = TERMS.max_ttl;
    let more = most + Duration::from_micros(1);
    assert_eq!(
        met(Rules::ALL, most, Duration::ZERO).state(),
        NodeState::Voting
    );
    let why = met(Rules::ALL, more, Duration::ZERO).refusal();
    assert_eq!(
        why,
        "its clock is 30.0 s behind this machine's, which is more than max_ttl: correct the clock that is wrong (NTP)"
    );
}

#[test]
fn a_wall_clock_that_goes_on_until_the_answer_makes_no_clock_late() {
    let world = met(Rules::ALL, Duration::ZERO, Duration::from_secs(3600));
    assert_eq!(world.state(), NodeState::Voting);
}

#[test]
fn an_answer_counts_as_late_by_what_it_takes_beyond_half_of_the_margin() {
    let most = TERMS.max_ttl + TERMS.margin / 2;
    for (took, counts) in [(most, true), (most + Duration::from_millis(1), false)] {
        let mut world = World::new();
        world.clock.set(world.now, WALL);
        world.dial(7);
        world.now = world.now.plus(took);
        world.read_behind(Duration::ZERO);
        assert_eq!(world.state() == NodeState::Voting, counts, "{took:?}");
    }
}

#[test]
fn a_clock_that_is_set_right_counts_from_the_next_handshake_on() {
    let hour = Duration::from_secs(3600);
    let mut world = met(Rules::ALL, hour, Duration::ZERO);
    let why = world.refusal();
    assert!(why.contains("its clock is 1 h behind"), "{why}");
    // Its record is still in sight, and it is met every second.
    assert!(world.session.witness().is_some());
    world.pass(Duration::from_millis(1_100));
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    // A clock that is a little more or less behind is not reported again.
    world.read_behind(hour - Duration::from_secs(2));
    assert_eq!(world.refusal(), why);
    world.pass(Duration::from_millis(1_100));
    world.read_behind(hour / 2);
    assert!(world.refusal().contains("its clock is 30 min behind"));
    world.pass(Duration::from_millis(1_100));
    world.read_behind(Duration::ZERO);
    assert_eq!(world.state(), NodeState::Voting);
}

/// Its clock is measured from one handshake of a connection to another.
#[test]
fn a_clock_that_runs_too_fast_is_noted_until_the_connection_ends() {
    for (ppm, is_noted) in [(4_000, false), (20_000, true)] {
        let mut world = met(Rules::ALL, Duration::ZERO, Duration::ZERO);
        for handshake in 1..=40 {
            world.pass(Duration::from_secs(6));
            assert_eq!(kinds(&world.sent()), ["handshake"]);
            let stored = Stored::Record(record(RUN, 40_000));
            let time = WALL + handshake * 6 * (1_000_000 + ppm);
            world.read_with(RUN, stored, |meeting| meeting.time = time);
        }
        let note = world.session.note();
        let says = |note: &String| note.contains("% faster than this machine's");
        assert_eq!(note.as_ref().is_some_and(says), is_noted, "{note:?}");
        assert_eq!(world.state(), NodeState::Voting);
        world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
        world.dial(8);
        assert_eq!(world.session.note(), None);
    }
}

#[test]
fn a_node_whose_clock_is_behind_is_asked_to_extend_and_not_to_grant() {
    let mut world = met(Rules::ALL, Duration::from_secs(3600), Duration::ZERO);
    assert!(matches!(world.acquire(1), Err(Silence::Unfit(_))));
    world.extend(2).unwrap();
    world.sent();
    // If its memory may not vote, it is not asked for that either.
    let mut world = World::new();
    world.clock.set(world.now, WALL);
    world.dial(7);
    let young = Stored::Record(record(RUN, 0));
    world.read_with(RUN, young, |meeting| meeting.time = 0);
    assert!(matches!(world.extend(2), Err(Silence::Unfit(_))));
}

#[cfg(feature = "test-util")]
#[test]
fn without_the_rule_a_node_whose_clock_is_behind_votes() {
    let rules = Rules::without(Rule::ClockNotBehind);
    let world = met(rules, Duration::from_secs(3600), Duration::ZERO);
    assert_eq!(world.state(), NodeState::Voting);
}
