//! Tests of what only a real server can show: keys of another type, the script cache, connections and rights. The
//! conformance suite tests what every kind of node has to do.

mod alone;
mod batches;
mod real;
mod several;
mod slots;

use std::{io::Read as _, time::Duration};

use self::real::on_servers;
use super::Keys;
use crate::{
    base::clock::{Clock as _, SystemClock},
    node::{
        Command, Fault,
        admission::{
            self, Handshake,
            cases::{admit, hello},
        },
        answer::Answer,
        kinds::scripts,
        mutex::cases::{DAY, acquire, entry, evict, extend, inspect, name, raise, release, secs},
        server,
    },
    testing::conformance::trial::GUARD,
};

/// protocol §3: a foreign key in the place of a lock is never overwritten, and never counts as this client's.
#[test]
fn a_key_of_another_kind_is_left_alone() {
    on_servers(|real| {
        real.text(&["RPUSH", "quorate:@mutex:a", "x"]);
        let forever = Answer::Held {
            which: None,
            remaining: None,
            counter: 0,
            holder: None,
            ticket: 0,
        };
        assert_eq!(real.say(acquire("a", 1, secs(10), 5)), forever.clone());
        assert_eq!(real.say(release("a", 1)), Answer::Released(false));
        for command in [raise("a", 1, 5), extend("a", 1, secs(10))] {
            assert_eq!(real.say(command), Answer::Lost);
        }
        for command in [inspect("a"), evict("a")] {
            assert_eq!(real.error(command.clone()), "WRONGTYPE", "{command:?}");
        }
        assert_eq!(real.text(&["LLEN", "quorate:@mutex:a"]), "1");
        assert_eq!(
            real.say(Command::Admission(admission::Command::Survey)),
            surveyed(false, None)
        );

        real.say(acquire("b", 1, secs(10), 0));
        // The same once the counters exist.
        assert_eq!(real.say(acquire("a", 1, secs(10), 5)), forever);
        assert_eq!(real.text(&["LLEN", "quorate:@mutex:a"]), "1");
        real.text(&["PERSIST", "quorate:@mutex:b"]);
        assert_eq!(real.say(extend("b", 1, secs(10))), Answer::Extended);
        let forever = Answer::Held {
            which: None,
            remaining: None,
            counter: 1,
            holder: Some(entry(1).text()),
            ticket: 0,
        };
        assert_eq!(real.say(acquire("b", 2, secs(10), 0)), forever);

        // A text that is not an entry names no holder.
        for foreign in ["a random value", &"x".repeat(1 << 20), &"\u{1b}".repeat(99)] {
            real.ok(&["SET", "quorate:@mutex:c", foreign]);
            let refused = Answer::Held {
                which: None,
                remaining: None,
                counter: 0,
                holder: None,
                ticket: 0,
            };
            assert_eq!(real.say(acquire("c", 1, secs(10), 0)), refused);
        }
    });
}

/// protocol §3: no script fails after its first write. A counter that is not a number makes it fail before.
#[test]
fn a_corrupt_counter_is_an_error_and_nothing_is_written() {
    on_servers(|real| {
        real.say(acquire("held", 1, secs(10), 5));
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
                real.text(&["HSET", hash, "@mutex:a", bad]);
                assert_eq!(
                    real.error(acquire("a", 1, secs(10), 5)),
                    "CORRUPT",
                    "{bad:?}"
                );
                assert_eq!(real.error(inspect("a")), "CORRUPT", "{bad:?}");
                assert_eq!(real.text(&["EXISTS", "quorate:@mutex:a"]), "0", "{bad:?}");
                real.text(&["HDEL", hash, "@mutex:a"]);
            }
            real.text(&["HSET", "quorate:c0", "@mutex:held", bad]);
            assert_eq!(real.error(raise("held", 1, 6)), "CORRUPT", "{bad:?}");
        }
        real.text(&["HSET", "quorate:c0", "_", "x"]);
        assert_eq!(
            real.say(acquire("a", 1, secs(10), 5)),
            Answer::Granted(5),
            "begun again"
        );
        for hash in ["quorate:c0", "quorate:c1"] {
            real.text(&["DEL", hash]);
            real.ok(&["SET", hash, "x"]);
            assert_eq!(
                real.error(acquire("b", 1, secs(10), 5)),
                "WRONGTYPE",
                "{hash}"
            );
            assert_eq!(real.text(&["EXISTS", "quorate:@mutex:b"]), "0", "{hash}");
            real.text(&["DEL", hash]);
        }
    });
}

/// protocol §3: the keys and their bytes, which every client of this format shares.
#[test]
fn the_keys_are_those_of_the_protocol() {
    on_servers(|real| {
        real.say(acquire("a:b", 1, secs(10), 1_760_000_000_000_001));
        assert_eq!(real.text(&["GET", "quorate:open"]), GUARD);
        let (record, _) = real.record(&hello());
        assert_eq!(real.text(&["GET", "quorate:boot"]), record.to_string());
        assert_eq!(real.text(&["GET", "quorate:@mutex:a:b"]), entry(1).as_str());
        assert_eq!(
            real.text(&["HGET", "quorate:c0", "@mutex:a:b"]),
            "1760000000000001"
        );
        assert_eq!(
            real.text(&["OBJECT", "ENCODING", "quorate:c0"]),
            "hashtable",
            "no listpack"
        );
        assert_eq!(
            real.text(&["DBSIZE"]),
            "5",
            "boot, open, time, c0, the lock"
        );
        assert_eq!(real.text(&["TTL", "quorate:boot"]), "-1");
        assert_eq!(real.text(&["TTL", "quorate:open"]), "-1");
        assert_eq!(real.text(&["TTL", "quorate:time"]), "-1");
    });
}

/// protocol §2, bootstrap: the survey asks for the counters of its own prefix, and needs no script.
#[test]
fn a_survey_keeps_to_its_prefix() {
    on_servers(|real| {
        real.ok(&["SCRIPT", "FLUSH"]);
        for (prefix, other) in [("quorate", "quorate:x"), ("q", "qq"), ("a:b", "a")] {
            real.keys = Keys::new(prefix);
            for hash in ["c0", "c1"] {
                real.text(&["HSET", &format!("{other}:{hash}"), "_", "x"]);
                assert_eq!(
                    real.say(Command::Admission(admission::Command::Survey)),
                    surveyed(false, None)
                );
                let own = format!("{prefix}:{hash}");
                real.text(&["HSET", &own, "_", "x"]);
                assert_eq!(
                    real.say(Command::Admission(admission::Command::Survey)),
                    surveyed(true, None),
                    "{own}"
                );
                real.text(&["HSET", &own, "@mutex:a", "1"]);
                let named = surveyed(true, Some("a"));
                assert_eq!(
                    real.say(Command::Admission(admission::Command::Survey)),
                    named,
                    "{own}"
                );
                real.ok(&["FLUSHALL"]);
            }
        }
    });
}

/// protocol §2, bootstrap: a survey that cannot name a lock still succeeds.
#[test]
fn a_survey_needs_no_name() {
    on_servers(|real| {
        // Names that no client can have given.
        for field in ["x", "@mutex:", "mutex:a"] {
            real.text(&["HSET", "quorate:c0", "_", "x", field, "1"]);
            assert_eq!(
                real.say(Command::Admission(admission::Command::Survey)),
                surveyed(true, None),
                "{field}"
            );
            real.text(&["DEL", "quorate:c0"]);
        }
        // The key is not a hash, so it holds no counters.
        real.ok(&["SET", "quorate:c0", "x"]);
        assert_eq!(
            real.say(Command::Admission(admission::Command::Survey)),
            surveyed(true, None)
        );
        real.text(&["HSET", "quorate:c1", "@mutex:a", "1"]);
        assert_eq!(
            real.say(Command::Admission(admission::Command::Survey)),
            surveyed(true, Some("a"))
        );
        real.ok(&["FLUSHALL"]);
        // With many counters, any one of them may be named.
        for n in 0..300 {
            real.text(&["HSET", "quorate:c0", &format!("@mutex:job-{n}"), "1"]);
        }
        for _ in 0..20 {
            match real.say(Command::Admission(admission::Command::Survey)) {
                Answer::Admission(admission::Reply::Surveyed { lock, .. }) => {
                    assert!(lock.unwrap().as_str().starts_with("job-"))
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

/// protocol §2, NOSCRIPT: nothing was done, the handshake needs no cache, and all scripts can be loaded again.
#[test]
fn scripts_can_vanish() {
    on_servers(|real| {
        real.ok(&["SCRIPT", "FLUSH"]);
        let (record, _) = real.record(&hello());
        for command in [
            acquire("a", 1, secs(10), 0).into(),
            raise("a", 1, 1).into(),
            extend("a", 1, secs(1)).into(),
            release("a", 1).into(),
            inspect("a").into(),
            evict("a").into(),
            Command::from(admit(&record)),
        ] {
            assert_eq!(
                real.ask(command.clone()),
                Err(Fault::NoScript),
                "{command:?}"
            );
        }
        let answers = real.batch(&[
            Command::Server(server::Command::LoadScripts),
            acquire("a", 1, secs(10), 0).into(),
        ]);
        assert_eq!(
            answers,
            [
                Ok(Answer::Server(server::Reply::Loaded)),
                Ok(Answer::Granted(1))
            ]
        );
        for script in scripts::all() {
            assert_eq!(
                real.text(&["SCRIPT", "LOAD", script.source()]),
                script.sha()
            );
        }
    });
}

/// The answers of a batch come in the order of its commands, of any kind.
#[test]
fn a_batch_is_answered_in_order() {
    on_servers(|real| {
        let answers = real.batch(&[
            acquire("a", 1, secs(10), 3).into(),
            release("a", 2).into(),
            Command::Server(server::Command::LoadScripts),
            raise("a", 1, 4).into(),
            extend("a", 1, secs(10)).into(),
            Command::Server(server::Command::Disconnect {
                client: u64::MAX >> 1,
            }),
            release("a", 1).into(),
            acquire("a", 2, secs(10), 0).into(),
        ]);
        let wanted = [
            Answer::Granted(3),
            Answer::Released(false),
            Answer::Server(server::Reply::Loaded),
            Answer::Raised(4),
            Answer::Extended,
            Answer::Server(server::Reply::Disconnected(false)),
            Answer::Released(true),
            Answer::Granted(5),
        ];
        assert_eq!(answers, wanted.map(Ok));
    });
}

/// protocol §3, client step 5: an older connection of this client is ended, with everything that is still on its way on
/// it.
#[test]
fn an_older_connection_can_be_ended() {
    on_servers(|real| {
        let mut old = real.another();
        let client = old.text(&["CLIENT", "ID"]).parse().unwrap();
        assert_eq!(
            real.say(Command::Server(server::Command::Disconnect { client })),
            Answer::Server(server::Reply::Disconnected(true))
        );
        assert_eq!(
            real.say(Command::Server(server::Command::Disconnect { client })),
            Answer::Server(server::Reply::Disconnected(false))
        );
        assert!(matches!(old.stream.read(&mut [0; 16]), Ok(0) | Err(_)));
    });
}

/// protocol §2: the keys of the prefix and the commands that the documentation lists are enough.
#[test]
fn a_user_with_only_the_listed_rights_can_do_everything() {
    on_servers(|real| {
        let mut rights = vec![
            "ACL",
            "SETUSER",
            "quorate",
            "on",
            ">secret",
            "resetkeys",
            "~quorate:*",
            "&quorate:wake:*",
            "-@all",
        ];
        rights.extend([
            "+eval",
            "+evalsha",
            "+script|load",
            "+client|kill",
            "+hello",
            "+info",
            "+time",
            "+get",
            "+mget",
            "+set",
            "+del",
            "+unlink",
            "+rename",
            "+hget",
            "+hmget",
            "+hset",
            "+pttl",
            "+pexpire",
            "+exists",
            "+hdel",
            "+zadd",
            "+zrem",
            "+zrange",
            "+zrank",
            "+zscore",
            "+zcard",
            "+ssubscribe",
            "+spublish",
        ]);
        real.ok(&rights);
        real.ok(&["AUTH", "quorate", "secret"]);
        let (record, _) = real.record(&hello());
        let answers = real.batch(&[
            Command::Server(server::Command::LoadScripts),
            admit(&record).into(),
            acquire("a", 1, secs(10), 3).into(),
            acquire("a", 2, secs(10), 3).into(),
            raise("a", 1, 4).into(),
            extend("a", 1, secs(10)).into(),
            inspect("a").into(),
            evict("a").into(),
            release("a", 1).into(),
            Command::Admission(admission::Command::Survey),
            Command::Server(server::Command::Disconnect {
                client: u64::MAX >> 1,
            }),
        ]);
        for answer in &answers {
            assert!(answer.is_ok(), "{answer:?}");
        }
        // HRANDFIELD is not among these rights. It would name the lock.
        assert_eq!(answers[9], Ok(surveyed(true, None)));
        real.ok(&["AUTH", "default", ""]);
        let begun = SystemClock.wall_us() - DAY.as_micros() as u64 * 8;
        real.text(&["HSET", "quorate:c0", "_", &format!("{begun:<65}")]);
        real.ok(&["AUTH", "quorate", "secret"]);
        assert_eq!(
            real.say(acquire("a", 3, secs(10), 0)),
            Answer::Granted(5),
            "rotation"
        );
        assert!(
            real.ask(Command::Admission(admission::Command::Handshake(
                Handshake {
                    nonce: "n".into(),
                    ..hello()
                }
            )))
            .is_ok()
        );
    });
}

/// protocol §2: a key of another type in the place of the record is an error, and stays.
#[test]
fn a_record_of_another_kind_is_left_alone() {
    on_servers(|real| {
        for key in ["quorate:boot", "quorate:open"] {
            real.text(&["DEL", key]);
            real.text(&["RPUSH", key, "x"]);
            assert_eq!(
                real.error(Command::Admission(admission::Command::Handshake(hello()))),
                "WRONGTYPE"
            );
            assert_eq!(real.text(&["LLEN", key]), "1");
            real.text(&["DEL", key]);
        }
        // The key `time` is of no value, so it is replaced.
        real.text(&["DEL", "quorate:time"]);
        real.text(&["RPUSH", "quorate:time", "x"]);
        assert!(
            real.ask(Command::Admission(admission::Command::Handshake(hello())))
                .is_ok()
        );
        assert_eq!(real.text(&["TYPE", "quorate:time"]), "string");
    });
}

fn surveyed(used: bool, lock: Option<&str>) -> Answer {
    let lock = lock.map(name);
    Answer::Admission(admission::Reply::Surveyed { used, lock })
}
