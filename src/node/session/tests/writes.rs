//! A server that refuses writes is reported, and is asked as before.

use super::*;

const OOM: &str =
    "OOM command not allowed when used memory > 'maxmemory'. script: f00, on @user_script:7.";

fn voter() -> Stored {
    Stored::Record(record(RUN, Z))
}

fn full(meeting: &mut Meeting) {
    meeting.write = Some(Err(OOM.into()));
}

impl World {
    fn published(&self) -> NodeState {
        self.session.published(self.now, &self.fleet)
    }

    /// The published reason begins with this code.
    #[track_caller]
    fn refuses_with(&self, code: &str) {
        match self.published() {
            NodeState::RefusesWrites(why) => assert!(why.starts_with(code), "{why}"),
            state => panic!("{state}"),
        }
    }
}

#[test]
fn a_voter_that_refuses_a_write_is_told_and_is_still_asked() {
    let mut world = World::new();
    world.dial(7);
    world.read_with(RUN, voter(), full);
    world.refuses_with("OOM: ");
    assert_eq!(world.state(), NodeState::Voting, "it is asked as before");
    world.sent();
    world.pass(Duration::from_millis(1_100));
    assert_eq!(kinds(&world.sent()), ["handshake"], "every second");
    world.read(RUN, voter());
    assert_eq!(world.published(), NodeState::Voting);
}

#[test]
fn a_write_error_of_a_request_is_shown_until_the_next_handshake() {
    for error in [
        OOM,
        "MISCONF Errors writing to the AOF file: No space left on device",
        "NOREPLICAS Not enough good replicas to write.",
    ] {
        let code = error.split(' ').next().unwrap();
        let mut world = World::voting();
        world.session.take_changed();
        world.acquire(1).unwrap();
        world.sent();
        world.answer(Err(Fault::Error(error.into())));
        world.refuses_with(code);
        assert!(world.session.take_changed(), "it is published");
        world.pass(Duration::from_millis(1_000));
        assert_eq!(kinds(&world.sent()), ["handshake"], "within a second");
        world.read(RUN, voter());
        assert_eq!(world.published(), NodeState::Voting);
        assert!(world.session.take_changed());
    }
}

#[test]
fn a_handshake_that_tried_no_write_takes_nothing_back() {
    let mut world = World::new();
    world.dial(7);
    world.read_with(RUN, voter(), full);
    world.sent();
    world.pass(Duration::from_millis(1_100));
    world.sent();
    world.read_with(RUN, voter(), |meeting| meeting.write = None);
    world.refuses_with("OOM: ");
    world.pass(Duration::from_millis(1_100));
    assert_eq!(kinds(&world.sent()), ["handshake"], "still every second");
}

#[test]
fn another_error_of_a_request_says_nothing_of_writes() {
    let mut world = World::voting();
    world.acquire(1).unwrap();
    world.answer(Err(Fault::Error("ERR something else".into())));
    assert_eq!(world.published(), NodeState::Voting);
}

#[test]
fn a_handshake_that_could_not_write_its_record_tells_why() {
    let mut world = World::new();
    world.dial(7);
    world.answer(Err(Fault::Error(OOM.into())));
    world.refuses_with("OOM: ");
    assert_eq!(world.state(), world.published(), "it does not vote");
    world.sent();
    world.pass(Duration::from_millis(1_100));
    assert_eq!(kinds(&world.sent()), ["handshake"], "every second");
}
