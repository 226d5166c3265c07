//! Several locks at once on a real server: keys of another type, damaged counters, and the keys themselves.

use super::real::{Real, on_servers};
use crate::node::{
    answer::Answer,
    mutex::{
        cases::{self as one, entry, secs},
        several::cases::{acquire, extend, raise, release, repair},
    },
};

const BOTH: [&str; 2] = ["a", "b"];

fn held(which: &str, counter: u64, holder: Option<u128>) -> Answer {
    Answer::Held {
        which: Some(one::name(which)),
        remaining: None,
        counter,
        holder: holder.map(|owner| entry(owner).text()),
        ticket: 0,
    }
}

/// Checks that none of these keys exists.
fn gone(real: &mut Real, keys: &[&str]) {
    for key in keys {
        assert_eq!(real.text(&["EXISTS", key]), "0", "{key}");
    }
}

/// protocol §8: a foreign key in the place of a lock is never overwritten, and never counts as this client's. The other
/// locks are not taken.
#[test]
fn a_key_of_another_kind_refuses_the_whole_set() {
    on_servers(|real| {
        real.text(&["RPUSH", "quorate:@mutex:b", "x"]);
        for of in [vec!["a", "b"], vec!["b", "c"], vec!["a", "b", "c"]] {
            assert_eq!(real.say(acquire(&of, 1, secs(10), 5)), held("b", 0, None));
            let refused = Answer::Repaired(false);
            assert_eq!(real.say(repair(&of, 1, secs(10), 5)), refused);
            for command in [raise(&of, 1, 5), extend(&of, 1, secs(10))] {
                assert_eq!(real.say(command), Answer::Lost);
            }
            let nothing = Answer::Released(false);
            assert_eq!(real.say(release(&of, 1, 0)), nothing);
        }
        gone(
            real,
            &["quorate:@mutex:a", "quorate:@mutex:c", "quorate:c0"],
        );
        assert_eq!(real.text(&["LLEN", "quorate:@mutex:b"]), "1");

        // A lock without an end is held for longest.
        real.say(one::acquire("c", 2, secs(10), 7));
        assert_eq!(
            real.say(acquire(&["b", "c"], 1, secs(10), 0)),
            held("b", 7, None)
        );
        real.text(&["PERSIST", "quorate:@mutex:c"]);
        let refused = real.say(acquire(&["a", "c"], 1, secs(10), 0));
        assert_eq!(refused, held("c", 7, Some(2)));
        real.ok(&["SET", "quorate:@mutex:d", &"x".repeat(1 << 20)]);
        let refused = real.say(acquire(&["a", "d"], 1, secs(10), 0));
        assert_eq!(refused, held("d", 0, None));
    });
}

/// protocol §8: no script fails after its first write. One counter that is not a number makes it fail before.
#[test]
fn one_corrupt_counter_fails_the_whole_set() {
    on_servers(|real| {
        for bad in [
            "x",
            "",
            "-1",
            "nan",
            "inf",
            "1.5",
            "9007199254740994",
            "1e400",
        ] {
            for hash in ["quorate:c0", "quorate:c1"] {
                real.text(&["HSET", hash, "@mutex:b", bad]);
                for command in [
                    acquire(&BOTH, 1, secs(10), 5),
                    repair(&BOTH, 1, secs(10), 5),
                ] {
                    assert_eq!(real.error(command), "CORRUPT", "{bad:?}");
                }
                gone(real, &["quorate:@mutex:a", "quorate:@mutex:b"]);
                real.text(&["HDEL", hash, "@mutex:b"]);
            }
        }
        real.say(acquire(&BOTH, 1, secs(10), 5));
        real.text(&["HSET", "quorate:c0", "@mutex:b", "x"]);
        assert_eq!(real.error(raise(&BOTH, 1, 9)), "CORRUPT");
        assert_eq!(real.text(&["HGET", "quorate:c0", "@mutex:a"]), "5");
        let freed = Answer::Released(true);
        assert_eq!(real.say(release(&BOTH, 1, 0)), freed);
        real.text(&["HSET", "quorate:c0", "_", "x", "@mutex:b", "6"]);
        let begun_again = Answer::Granted(7);
        assert_eq!(real.say(acquire(&BOTH, 1, secs(10), 5)), begun_again);
        real.say(release(&BOTH, 1, 0));
        for hash in ["quorate:c0", "quorate:c1"] {
            real.text(&["DEL", "quorate:c0", "quorate:c1"]);
            real.ok(&["SET", hash, "x"]);
            let refused = real.error(acquire(&BOTH, 1, secs(10), 5));
            assert_eq!(refused, "WRONGTYPE", "{hash}");
            gone(real, &["quorate:@mutex:a", "quorate:@mutex:b"]);
        }
    });
}

/// protocol §8: a counter that cannot be read, or a queue key of another type, does not make a RELEASE fail.
#[test]
fn a_release_frees_although_other_keys_are_damaged() {
    on_servers(|real| {
        real.say(acquire(&BOTH, 1, secs(10), 5));
        let over = "9007199254740000";
        real.ok(&["SET", "quorate:waiting", over]);
        real.ok(&["SET", "quorate:@mutex-line:a", "x"]);
        real.text(&["ZADD", "quorate:@mutex-line:b", "50", entry(2).as_str()]);
        real.text(&["HSET", "quorate:c0", "@mutex:b", "x"]);
        let freed = Answer::Released(true);
        assert_eq!(real.say(release(&BOTH, 1, 0)), freed);
        gone(real, &["quorate:@mutex:a", "quorate:@mutex:b"]);
    });
}

/// protocol §8: the keys are those of single locks.
#[test]
fn the_keys_are_those_of_single_locks() {
    on_servers(|real| {
        real.say(acquire(&["a:b", "c"], 1, secs(10), 1_760_000_000_000_001));
        for n in ["a:b", "c"] {
            let (key, field) = (format!("quorate:@mutex:{n}"), format!("@mutex:{n}"));
            assert_eq!(real.text(&["GET", &key]), entry(1).as_str());
            let counter = real.text(&["HGET", "quorate:c0", &field]);
            assert_eq!(counter, "1760000000000001");
        }
        let begun = real.text(&["HGET", "quorate:c0", "_"]);
        assert_eq!(begun.len(), 65);
    });
}
