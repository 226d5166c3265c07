//! When a node is met, what a handshake brings, and how its answer is handled.

use super::*;
use crate::node::admission::Vouch;
use crate::node::answer::Answer;

#[test]
fn the_handshake_comes_first_and_alone() {
    let mut world = World::new();
    world.dial(7);
    assert!(world.acquire(1).is_err(), "the handshake is unread");
    world.release(2);
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["release"]);
    assert_eq!(world.acquire(3), Ok(()));
}

#[test]
fn a_quarantined_node_gets_handshakes_and_releases_only() {
    let mut world = World::new();
    world.see_neighbour(Some(&record("bbbb/00000000/-1", 0)));
    world.dial(7);
    world.meet(RUN, 0);
    world.sent();
    assert_eq!(
        world.state(),
        NodeState::Quarantined(Duration::from_millis(Z))
    );
    assert!(matches!(world.acquire(1), Err(Silence::Quarantined(_))));
    world.release(2);
    world.pass(Duration::from_millis(1100));
    let sent = world.sent();
    assert_eq!(
        kinds(&sent),
        ["release", "handshake"],
        "met again every second"
    );
    let Some(Command::Admission(admission::Command::Handshake(handshake))) = sent.last() else {
        panic!()
    };
    assert_eq!(handshake.known, Some((RUN.into(), "id".into())));
    assert!(
        (1000..=1100).contains(&handshake.witnessed),
        "counted by this clock: {}",
        handshake.witnessed
    );
}

#[test]
fn a_memory_that_is_not_admitted_is_met_again_before_anything_else() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.sent();
    world.answer(Err(Fault::NotAdmitted));
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    assert!(world.acquire(2).is_err());
}

#[test]
fn a_handshake_that_fails_does_not_say_which_run_this_is() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.release(1);
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.release(2);
    assert_eq!(
        kinds(&world.sent()),
        ["handshake"],
        "7 may be a stranger's by now"
    );
    world.pass(Duration::from_secs(2));
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    world.meet("bbbb/00000000/-1", 0);
    assert_eq!(kinds(&world.sent()), ["release", "release"]);
}

#[test]
fn a_server_that_permits_no_key_outside_keys_is_refused_with_the_reason() {
    for error in [
        "ERR Error running script (call to 63143b6f): @user_script:1: script tried accessing undeclared key, key: q",
        "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array",
        "ERR Script attempted to access a non local key in a cluster node",
    ] {
        let mut world = World::new();
        world.dial(7);
        world.answer(Err(Fault::Error(error.into())));
        let state = world.state().to_string();
        assert!(
            state.contains(error) && state.contains("use Redis or Valkey"),
            "{state}"
        );
    }
}

#[test]
fn witnessing_counts_from_the_last_answer_and_a_majority_in_sight() {
    let ms = Duration::from_millis;
    let mut world = World::new();
    world.dial(7);
    let first = world.last_handshake();
    assert_eq!((first.known, first.witnessed), (None, 0));
    world.meet(RUN, 1000);
    world.pass(ms(1100));
    let alone = world.last_handshake();
    assert_eq!((alone.known, alone.witnessed), (None, 0), "alone");
    world.meet(RUN, 1000);
    world.pass(ms(600));
    world.see_neighbour(Some(&quiet()));
    world.pass(ms(500));
    let handshake = world.last_handshake();
    assert_eq!(handshake.known, Some((RUN.into(), "id".into())));
    assert!(
        (1400..=1500).contains(&handshake.witnessed),
        "since two were in sight: {}",
        handshake.witnessed
    );
    // The time on the way back does not count for the server.
    world.pass(ms(400));
    world.meet(RUN, 1500);
    world.pass(ms(1100));
    let witnessed = world.last_handshake().witnessed;
    assert!((2500..=2600).contains(&witnessed), "{witnessed}");
}

#[test]
fn a_new_connection_brings_nothing_that_was_witnessed_before() {
    let mut world = World::new();
    world.see_neighbour(Some(&quiet()));
    world.dial(7);
    world.meet(RUN, 1000);
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    let handshake = world.last_handshake();
    assert_eq!((handshake.known, handshake.witnessed), (None, 0));
}

#[test]
fn a_handshake_brings_what_the_fleet_knows() {
    let mut world = World::new();
    world.dial(7);
    let handshake = world.last_handshake();
    assert_eq!((handshake.masters, &*handshake.list), (3, "word"));
    assert_eq!((handshake.vouch, handshake.used), (Vouch::Stranger, false));
    assert_eq!(handshake.terms, TERMS);
    world.meet(RUN, 0);
    let mut greater = record("bbbb/00000000/-1", 90_000);
    greater.terms.max_ttl = Duration::from_secs(60);
    world.see_neighbour(Some(&greater));
    world.pass(Duration::from_millis(1100));
    let handshake = world.last_handshake();
    assert_eq!((handshake.vouch, handshake.used), (Vouch::Voter, true));
    assert_eq!(handshake.terms, greater.terms);
}

#[test]
fn a_request_carries_the_guard_of_the_record_that_was_read_here() {
    let mut world = World::voting();
    let guard = |world: &mut World| match world.effects.pop_back() {
        Some(Effect::Send(0, _, guard)) => guard.as_str().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(world.acquire(1), Ok(()));
    assert_eq!(guard(&mut world), "30000 3 3 word 5000 id");
    world.answer(Ok(Answer::Granted(1)));
    world.pass(Duration::from_secs(6));
    let other = BootRecord {
        id: "other".into(),
        ..record(RUN, 40_000)
    };
    world.read(RUN, Stored::Record(other));
    assert_eq!(world.acquire(2), Ok(()));
    assert_eq!(guard(&mut world), "30000 3 3 word 5000 other");
}

#[test]
fn a_voter_on_less_than_the_fleets_terms_is_met_again_before_it_counts() {
    let mut world = World::voting();
    let mut greater = record("bbbb/00000000/-1", 90_000);
    greater.terms.max_ttl = Duration::from_secs(60);
    world.see_neighbour(Some(&greater));
    assert_eq!(world.state(), NodeState::Connecting);
    assert!(world.acquire(1).is_err());
    // A handshake that was sent before the terms were known is sent again at once.
    world.step(|session, step| session.meet_again(step));
    let mut greatest = greater.clone();
    greatest.terms.margin = Duration::from_secs(6);
    world.see_neighbour(Some(&greatest));
    world.sent();
    world.meet(RUN, 40_000);
    assert_eq!(world.last_handshake().terms, greatest.terms);
    let learned = BootRecord {
        terms: greatest.terms,
        ..record(RUN, 90_000)
    };
    world.read(RUN, Stored::Record(learned));
    assert_eq!(world.state(), NodeState::Voting);
}

#[test]
fn a_foreign_voter_stops_every_node_and_is_asked_again_every_second() {
    let mut world = World::voting();
    let foreign = BootRecord {
        masters: 5,
        ..record("bbbb/00000000/-1", 90_000)
    };
    world.see_neighbour(Some(&foreign));
    assert!(matches!(world.state(), NodeState::Refused(why) if why.contains("b:1")));
    assert!(world.acquire(1).is_err());
    world.release(2);
    assert_eq!(kinds(&world.sent()), ["release"], "it is obeyed by anybody");
    world.step(|session, step| session.meet_again(step));
    let handshake = world.last_handshake();
    assert_eq!((handshake.vouch, handshake.known), (Vouch::Stranger, None));
    world.answer(Ok(Answer::Released(true)));
    world.meet(RUN, 40_000);
    world.pass(Duration::from_millis(1100));
    assert_eq!(kinds(&world.sent()), ["handshake"]);
    world.see_neighbour(None);
    assert_eq!(world.state(), NodeState::Voting);
}

#[test]
fn a_record_of_another_fleet_is_refused_with_both_sides_named() {
    let of = |witnessed| {
        Stored::Record(BootRecord {
            list: "theirs".into(),
            ..record(RUN, witnessed)
        })
    };
    let vouched = |stored| match stored {
        Stored::Record(record) => Stored::Record(BootRecord {
            vouched: true,
            ..record
        }),
        stored => stored,
    };
    for (stored, texts) in [
        (
            of(40_000),
            [
                "\"theirs\"",
                "\"word\"",
                "QUORATE_FLEET",
                "DEL quorate:boot",
            ],
        ),
        (
            vouched(of(0)),
            [
                "\"theirs\"",
                "\"word\"",
                "it is replaced",
                "DEL quorate:boot",
            ],
        ),
        (
            of(0),
            [
                "\"theirs\"",
                "\"word\"",
                "QUORATE_FLEET",
                "replaces the record by itself",
            ],
        ),
        (
            Stored::Other("2".into()),
            ["format 2", "format 3", "one version", "DEL quorate:boot"],
        ),
        (Stored::Nothing, ["no record", "", "", ""]),
    ] {
        let mut world = World::new();
        world.dial(7);
        world.read(RUN, stored);
        let NodeState::Refused(why) = world.state() else {
            panic!("{:?}", world.state())
        };
        assert!(texts.iter().all(|text| why.contains(text)), "{why}");
        world.sent();
        world.pass(Duration::from_millis(1100));
        assert_eq!(kinds(&world.sent()), ["handshake"], "every second");
    }
}

/// A record of this fleet on the neighbour. It does not vote.
fn quiet() -> BootRecord {
    record("bbbb/00000000/-1", 0)
}

#[test]
fn run_and_id_of_a_foreign_record_are_brought_by_a_client_that_stays() {
    let second = Duration::from_millis(1_100);
    let foreign = || {
        Stored::Record(BootRecord {
            list: "theirs".into(),
            ..record(RUN, 0)
        })
    };
    let mut world = World::new();
    world.dial(7);
    world.read(RUN, foreign());
    world.sent();
    for _ in 0..2 {
        world.pass(second);
        assert_eq!(world.last_handshake().known, None, "it may only look");
        world.read(RUN, foreign());
    }
    world.pass(second);
    let stays = world.last_handshake();
    assert_eq!(stays.known, Some((RUN.into(), "id".into())));
    assert_eq!(stays.witnessed, 0);
    // After a new connection the client has to stay again.
    world.step(|session, step| session.disconnected(step, &Disconnected("cut".into())));
    world.dial(8);
    world.read(RUN, foreign());
    world.sent();
    world.pass(second);
    assert_eq!(world.last_handshake().known, None);
}
