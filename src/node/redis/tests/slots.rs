//! Slots on real servers: keys of another type, and values that no client of this library has written.

use super::{real::Real, *};
use crate::{
    base::limit::Limit,
    node::{
        answer::{Answer, Answered, Slots},
        mutex::cases::extends,
        request::{Family, Mode, Pool, Question, Release, Request, Seat, Target, Verb, Waiting},
    },
};

const SLOTS: &str = "quorate:@semaphore:a";
const ENDS: &str = "quorate:@semaphore-ends:a";
const LINE: &str = "quorate:@semaphore-line:a";

fn pool() -> Pool {
    Pool {
        name: name("a"),
        family: Family::Permits,
    }
}

fn limit(version: u64, slots: u32) -> Limit {
    Limit { version, slots }
}

/// A request for slot 0.
fn request(owner: u128, verb: Verb) -> Command {
    Command::Request(Request {
        target: Target::Slot(pool(), Some(0)),
        entry: entry(owner),
        verb,
    })
}

/// Asks for slot 0 of two, or a place in the queue.
fn take(owner: u128) -> Command {
    take_as(Mode::Move, owner)
}

fn take_as(mode: Mode, owner: u128) -> Command {
    let seat = Seat {
        limit: limit(0, 2),
        mode,
        ticket: 50,
        term: secs(10),
        life: secs(10),
        channel: "".into(),
    };
    let take = Verb::Acquire {
        ttl: secs(10),
        floor: 7,
        wait: Waiting::Slot(seat),
    };
    request(owner, take)
}

fn free(owner: u128) -> Command {
    request(owner, Verb::Release(Release::default()))
}

fn extend_slot(owner: u128) -> Command {
    request(owner, extends(secs(10)))
}

fn inspect_slots() -> Command {
    Question::InspectPool(pool()).into()
}

fn mine(real: &mut Real, owner: u128) -> Option<(u32, u64)> {
    match real.say(take(owner)) {
        Answer::Slots(Slots { mine, .. }) => mine,
        other => panic!("{other:?}"),
    }
}

fn freed(ours: bool) -> Answered {
    Ok(Answer::Released(ours))
}

fn answer(real: &mut Real, command: Command) -> Answered {
    real.batch(&[command]).remove(0)
}

fn word(answer: &Answered) -> &str {
    match answer {
        Err(Fault::Error(text)) => text.split(' ').next().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_of_another_type_is_an_error_and_keeps_nobody_from_releasing() {
    for key in [SLOTS, ENDS, LINE, "quorate:c0", "quorate:c1"] {
        on_servers(|real| {
            assert_eq!(mine(real, 1), Some((0, 7)));
            assert_eq!(mine(real, 2), None);
            real.text(&["DEL", key]);
            real.text(&["SADD", key, "x"]);
            if key == "quorate:c1" {
                // The counter is read from `c1` if `c0` does not have it.
                real.text(&["DEL", "quorate:c0"]);
            }
            assert_eq!(word(&answer(real, inspect_slots())), "WRONGTYPE", "{key}");
            if key.contains("@") {
                assert_eq!(word(&answer(real, take(3))), "WRONGTYPE", "{key}");
            }
            let held = key != SLOTS;
            assert_eq!(answer(real, free(1)), freed(held), "{key}");
            assert_eq!(answer(real, free(2)), freed(false), "{key}");
            assert_eq!(real.text(&["SCARD", key]), "1");
            if held {
                let gone = entry(1);
                let left = real.text(&["HEXISTS", SLOTS, gone.as_str()]);
                assert_eq!(left, "0", "{key}");
                assert_eq!(real.text(&["HEXISTS", SLOTS, "0"]), "0", "{key}");
            }
        });
    }
}

#[test]
fn a_damaged_limit_counts_as_missing() {
    on_servers(|real| {
        for damaged in [
            "many",
            "3",
            "-1 3",
            "1 2 3",
            "1 65537",
            "9007199254740992 3",
        ] {
            real.text(&["HSET", SLOTS, "limit", damaged]);
            match real.say(inspect_slots()) {
                Answer::InspectedPool(there) => assert_eq!(there.limit, None),
                other => panic!("{other:?}"),
            }
            assert_eq!(mine(real, 1).map(|(slot, _)| slot), Some(0));
            assert_eq!(real.text(&["HGET", SLOTS, "limit"]), "0 2");
            assert_eq!(answer(real, free(1)), freed(true));
        }
    });
}

#[test]
fn a_damaged_place_is_removed_from_the_queue() {
    on_servers(|real| {
        let (one, two) = (entry(1), entry(2));
        assert!(mine(real, 1).is_some());
        for damaged in ["x", "1 2 3", "", "1 0 10000 10000"] {
            real.text(&["HSET", SLOTS, two.as_str(), damaged]);
            real.text(&["ZADD", LINE, "5", two.as_str()]);
            assert_eq!(answer(real, free(1)), freed(true), "{damaged:?}");
            assert_eq!(real.text(&["ZCARD", LINE]), "0", "{damaged:?}");
            assert!(mine(real, 1).is_some(), "{damaged:?}");
            assert_eq!(real.text(&["HGET", SLOTS, "0"]), one.as_str());
            real.text(&["HDEL", SLOTS, two.as_str()]);
        }
    });
}

#[test]
fn a_damaged_counter_gives_no_slot() {
    on_servers(|real| {
        for damaged in ["many", "-1", "1.5", "9007199254740994"] {
            real.text(&["HSET", "quorate:c0", "@semaphore:0:a", damaged]);
            assert_eq!(word(&answer(real, take(1))), "CORRUPT", "{damaged}");
            assert_eq!(real.text(&["HEXISTS", SLOTS, "0"]), "0");
        }
        // It does not fail for an owner that holds the slot already.
        real.text(&["HDEL", "quorate:c0", "@semaphore:0:a"]);
        assert_eq!(mine(real, 1), Some((0, 7)));
        real.text(&["HSET", "quorate:c0", "@semaphore:0:a", "many"]);
        let extended = Ok(Answer::Extended);
        assert_eq!(answer(real, extend_slot(1)), extended);
        assert_eq!(answer(real, free(1)), freed(true));
    });
}

/// A ticket that somebody else wrote there is not passed on to any client.
#[test]
fn a_damaged_ticket_is_not_passed_on() {
    on_servers(|real| {
        assert!(mine(real, 1).is_some());
        for damaged in ["1e300", "inf", "-5", "9007199254740992"] {
            real.text(&["ZADD", LINE, damaged, "x"]);
            match real.say(take_as(Mode::Pick, 2)) {
                Answer::Slots(Slots { mine, ticket, .. }) => {
                    assert!(mine.is_none() || ticket == 50, "{damaged}");
                }
                other => panic!("{other:?}"),
            }
            real.text(&["DEL", LINE]);
            real.say(free(2));
        }
    });
}

#[test]
fn every_semaphore_key_expires() {
    on_servers(|real| {
        let left = |real: &mut Real| {
            [SLOTS, ENDS, LINE].map(|key| real.text(&["PTTL", key]).parse::<i64>().unwrap())
        };
        assert!(mine(real, 1).is_some());
        let [slots, ends, _] = left(real);
        assert!(slots > 75_000 && ends > 75_000, "{slots} {ends}");
        assert!(mine(real, 2).is_none());
        assert!(left(real).iter().all(|left| *left > 75_000));
        // If less than three quarters are left, each use prolongs it.
        for command in [take(1), take(2), extend_slot(1)] {
            for key in [SLOTS, ENDS, LINE] {
                real.text(&["PEXPIRE", key, "59000"]);
            }
            real.say(command);
            assert!(left(real).iter().all(|left| *left > 75_000));
        }
        for owner in [1, 2] {
            real.say(free(owner));
        }
        let [slots, ends, line] = left(real);
        assert_eq!((ends, line), (-2, -2), "nothing is left in them");
        assert!(slots > 75_000);
    });
}
