//! `fence::redis` on real servers. A stale command is not executed. The check and the write are one atomic step, no
//! matter how many clients write at once. The mark outlives the data that it guards, and it is lost only as the
//! documentation says.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::patient;
use crate::support::{Kind, Server, ServerOptions};
use proptest::prelude::*;
use quorate::FencingToken;
use quorate::fence::redis::{Error, GUARD, Guard, del, get, get_set, hset, rpush, set, xadd};
use quorate::redis::{
    AsyncCommands, Client, ErrorKind, FromRedisValue, RedisError, ServerErrorKind,
    aio::MultiplexedConnection, cmd, pipe,
};

const KINDS: [Kind; 2] = [Kind::Redis, Kind::Valkey];

fn token(number: u64) -> FencingToken {
    FencingToken::try_from(number).unwrap()
}

async fn connect(server: &Server) -> MultiplexedConnection {
    let client = Client::open(server.url()).unwrap();
    patient(&client).await
}

async fn ask<T: FromRedisValue>(conn: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(conn).await.unwrap()
}

/// Checks that the command was refused, with this token and the newest one that was seen before.
#[track_caller]
fn stale<T: std::fmt::Debug>(outcome: Result<T, Error>, resource: &str, old: u64, newest: u64) {
    match outcome {
        Err(Error::Stale(stale)) => {
            assert_eq!((stale.token, stale.newest), (token(old), token(newest)));
            assert_eq!(
                (stale.resource.as_str(), stale.forgotten),
                (resource, false)
            );
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn failed<T: std::fmt::Debug>(outcome: Result<T, Error>) -> RedisError {
    match outcome {
        Err(Error::Redis(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_command_is_done_or_refused() {
    for kind in KINDS {
        let server = Server::start(kind);
        let conn = &mut connect(&server).await;
        let nothing: Option<String> = get(conn, "a", token(5)).await.unwrap();
        assert_eq!(nothing, None);
        // The read raised the mark, so an older holder can neither write nor read.
        stale(set(conn, "a", "old", token(4)).await, "a", 4, 5);
        stale(get::<Option<String>>(conn, "a", token(4)).await, "a", 4, 5);
        set(conn, "a", "one", token(5)).await.unwrap();
        set(conn, "a", "two", token(5)).await.unwrap();
        let before: String = get_set(conn, "a", "three", token(6)).await.unwrap();
        assert_eq!(before, "two");
        stale(
            get_set::<Option<String>>(conn, "a", "old", token(5)).await,
            "a",
            5,
            6,
        );
        stale(del(conn, "a", token(5)).await, "a", 5, 6);
        assert_eq!(ask::<String>(conn, &["GET", "a"]).await, "three");
        assert!(del(conn, "a", token(7)).await.unwrap());
        assert!(!del(conn, "a", token(7)).await.unwrap());
        // An older holder does not bring back what was deleted.
        stale(set(conn, "a", "old", token(6)).await, "a", 6, 7);
        assert_eq!(ask::<Vec<String>>(conn, &["KEYS", "*"]).await, ["a:fence"]);

        hset(conn, "h", "field", 1, token(5)).await.unwrap();
        hset(conn, "h", "field", 2, token(5)).await.unwrap();
        stale(hset(conn, "h", "field", 3, token(4)).await, "h", 4, 5);
        assert_eq!(ask::<u64>(conn, &["HGET", "h", "field"]).await, 2);

        assert_eq!(rpush(conn, "l", "x", token(5)).await.unwrap(), 1);
        assert_eq!(rpush(conn, "l", &["y", "z"], token(6)).await.unwrap(), 3);
        stale(rpush(conn, "l", "old", token(5)).await, "l", 5, 6);
        assert_eq!(
            ask::<Vec<String>>(conn, &["LRANGE", "l", "0", "-1"]).await,
            ["x", "y", "z"]
        );

        let id = xadd(conn, "s", &[("who", "me")], token(5)).await.unwrap();
        assert!(id.contains('-'), "{id}");
        stale(
            xadd(conn, "s", &[("who", "old")], token(4)).await,
            "s",
            4,
            5,
        );
        assert_eq!(ask::<u64>(conn, &["XLEN", "s"]).await, 1);
    }
}

#[tokio::test]
async fn tokens_are_compared_as_numbers_and_keep_their_digits() {
    let server = Server::start(Kind::Redis);
    let conn = &mut connect(&server).await;
    set(conn, "a", "", token(9)).await.unwrap();
    set(conn, "a", "", token(10)).await.unwrap();
    stale(set(conn, "a", "", token(9)).await, "a", 9, 10);
    let last = (1 << 53) - 1;
    set(conn, "a", "", token(last)).await.unwrap();
    assert_eq!(
        ask::<String>(conn, &["GET", "a:fence"]).await,
        last.to_string()
    );
    stale(
        set(conn, "a", "", token(last - 1)).await,
        "a",
        last - 1,
        last,
    );
    // A mark that a counter or a program wrote with other digits is the same number.
    ask::<()>(conn, &["SET", "b:fence", "0007"]).await;
    set(conn, "b", "", token(7)).await.unwrap();
    set(conn, "c", "", token(0)).await.unwrap();
}

#[tokio::test]
async fn any_bytes_are_keys_and_values() {
    let server = Server::start(Kind::Valkey);
    let conn = &mut connect(&server).await;
    let key: &[u8] = b"\x00\xff \r\n\"'{}";
    let value: Vec<u8> = (0..=255).collect();
    set(conn, key, value.as_slice(), token(5)).await.unwrap();
    assert_eq!(get::<Vec<u8>>(conn, key, token(5)).await.unwrap(), value);
    set(conn, "", "", token(5)).await.unwrap();
    let big = vec![7_u8; 5 << 20];
    set(conn, "big", big.as_slice(), token(5)).await.unwrap();
    assert_eq!(
        get::<Vec<u8>>(conn, "big", token(5)).await.unwrap().len(),
        big.len()
    );
    assert!(matches!(
        set(conn, key, "", token(4)).await,
        Err(Error::Stale(_))
    ));
}

#[tokio::test]
async fn several_commands_are_one_step() {
    for kind in KINDS {
        let server = Server::start(kind);
        let conn = &mut connect(&server).await;
        let account = Guard::new("account");
        let moved = pipe()
            .decr("account", 30)
            .rpush("log", "-30")
            .ttl("account")
            .get("none")
            .clone();
        let replies: (i64, u64, i64, Option<String>) =
            account.run(conn, token(5), &moved).await.unwrap();
        assert_eq!(replies, (-30, 1, -1, None));
        stale(
            account.run::<()>(conn, token(4), &moved).await,
            "account",
            4,
            5,
        );
        assert_eq!(
            ask::<(i64, u64)>(
                conn,
                &[
                    "EVAL",
                    "return {redis.call('GET','account'), redis.call('LLEN','log')}",
                    "0"
                ]
            )
            .await,
            (-30, 1)
        );
        // Without any command only the mark is raised.
        account.run::<()>(conn, token(6), &pipe()).await.unwrap();
        stale(
            account.run::<()>(conn, token(5), &pipe()).await,
            "account",
            5,
            6,
        );
        // A thousand words in one command, and many commands.
        let mut many = pipe();
        for i in 0..500 {
            many.rpush("many", vec![i; 50]);
        }
        let lengths: Vec<u64> = account.run(conn, token(6), &many).await.unwrap();
        assert_eq!((lengths.len(), lengths[499]), (500, 25_000));
    }
}

#[tokio::test]
async fn a_command_that_fails_ends_the_rest_and_says_why() {
    for kind in KINDS {
        let server = Server::start(kind);
        let conn = &mut connect(&server).await;
        rpush(conn, "list", "x", token(5)).await.unwrap();
        let error = failed(
            set(conn, "list", "x", token(5))
                .await
                .and(hset(conn, "list", "f", "v", token(6)).await),
        );
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        let half = pipe().set("a", 1).hset("a", "f", "v").set("b", 1).clone();
        let error = failed(Guard::new("half").run::<()>(conn, token(9), &half).await);
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        let left: (Option<u64>, Option<u64>, Option<u64>) =
            ask(conn, &["MGET", "a", "b", "half:fence"]).await;
        assert_eq!(left, (Some(1), None, Some(9)));
        let error = failed(
            Guard::new("x")
                .run::<()>(conn, token(1), pipe().cmd("NOSUCH"))
                .await,
        );
        assert!(error.to_string().contains("ommand"), "{error}");
    }
}

#[tokio::test]
async fn a_foreign_value_in_place_of_a_mark_admits_no_write() {
    let server = Server::start(Kind::Redis);
    let conn = &mut connect(&server).await;
    ask::<()>(conn, &["SET", "a:fence", "none of ours"]).await;
    let error = failed(set(conn, "a", "x", token(5)).await);
    assert!(
        error.to_string().contains("a:fence holds no fencing token"),
        "{error}"
    );
    ask::<u64>(conn, &["RPUSH", "b:fence", "x"]).await;
    assert!(
        failed(set(conn, "b", "x", token(5)).await)
            .to_string()
            .contains("WRONGTYPE")
    );
    assert_eq!(ask::<u64>(conn, &["EXISTS", "a", "b"]).await, 0);
}

#[tokio::test]
async fn a_server_that_forgot_the_script_gets_it_again() {
    let server = Server::start(Kind::Redis);
    let conn = &mut connect(&server).await;
    for number in 1..5 {
        ask::<()>(conn, &["SCRIPT", "FLUSH"]).await;
        assert_eq!(rpush(conn, "l", "x", token(number)).await.unwrap(), number);
    }
}

#[tokio::test]
async fn a_full_server_does_nothing_rather_than_half() {
    let server = Server::start(Kind::Redis);
    let conn = &mut connect(&server).await;
    set(conn, "a", "x", token(5)).await.unwrap();
    ask::<()>(conn, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let kept = Guard::new("a").keep_mark(Duration::from_secs(9));
    for number in [5, 6] {
        let error = failed(set(conn, "a", "y", token(number)).await);
        assert!(error.to_string().contains("OOM"), "{error}");
        let write = pipe().set("a", "y").clone();
        let error = failed(kept.run::<()>(conn, token(number), &write).await);
        assert!(error.to_string().contains("OOM"), "{error}");
    }
    stale(set(conn, "a", "old", token(4)).await, "a", 4, 5);
    ask::<()>(conn, &["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(
        ask::<(String, u64)>(conn, &["MGET", "a", "a:fence"]).await,
        ("x".into(), 5)
    );
}

#[tokio::test]
async fn a_mark_expires_only_if_asked_to() {
    const KEEP: Duration = Duration::from_millis(3_000);
    let server = Server::start(Kind::Valkey);
    let conn = &mut connect(&server).await;
    let kept = Guard::new("kept").keep_mark(KEEP);
    kept.run::<()>(conn, token(5), pipe().set_ex("kept", 1, 1))
        .await
        .unwrap();
    set(conn, "ever", 1, token(5)).await.unwrap();
    assert_eq!(pttl(conn, "ever:fence").await, -1);
    // Each command that passes renews the mark for the full time. The stale command comes first. It finds the mark only
    // if the command before had renewed it, because the whole loop takes twice as long as an unrenewed mark lives.
    for _ in 0..4 {
        tokio::time::sleep(KEEP / 2).await;
        stale(kept.run::<()>(conn, token(4), &pipe()).await, "kept", 4, 5);
        let before = Instant::now();
        kept.run::<()>(conn, token(5), &pipe()).await.unwrap();
        let left = u64::try_from(pttl(conn, "kept:fence").await).unwrap();
        // An unrenewed mark has half of its time left. The server's clock counts in milliseconds.
        let since = before.elapsed();
        assert!(
            Duration::from_millis(left + 50) + since > KEEP,
            "{left} after {since:?}"
        );
    }
    tokio::time::sleep(KEEP + Duration::from_millis(300)).await;
    // This is the documented loss: a forgotten token is admitted.
    kept.run::<()>(conn, token(4), &pipe()).await.unwrap();
}

async fn pttl(conn: &mut MultiplexedConnection, key: &str) -> i64 {
    ask(conn, &["PTTL", key]).await
}

#[tokio::test]
async fn a_stale_token_does_not_prolong_the_mark() {
    for kind in KINDS {
        let server = Server::start(kind);
        let conn = &mut connect(&server).await;
        let kept = |seconds| Guard::new("a").keep_mark(Duration::from_secs(seconds));
        kept(50).run::<()>(conn, token(5), &pipe()).await.unwrap();
        let mut left = 50_000;
        for longer in [kept(50), kept(5_000), Guard::new("a")] {
            tokio::time::sleep(Duration::from_millis(20)).await;
            stale(longer.run::<()>(conn, token(4), &pipe()).await, "a", 4, 5);
            let now = pttl(conn, "a:fence").await;
            assert!(0 < now && now < left, "{now} after {left}");
            left = now;
        }
    }
}

/// If callers want different times, the longest counts. It does not matter who comes first, or whether the later caller
/// is the same holder or a newer one.
#[tokio::test]
async fn nobody_shortens_a_mark_that_another_keeps() {
    const SHORT: Duration = Duration::from_secs(100);
    const LONG: Duration = Duration::from_secs(1_000);
    for kind in KINDS {
        let server = Server::start(kind);
        let conn = &mut connect(&server).await;
        for later in [5, 6] {
            // `None` means for ever.
            for (first, second, least) in [
                (None, Some(SHORT), None),
                (Some(SHORT), None, None),
                (None, None, None),
                (Some(SHORT), Some(LONG), Some(LONG)),
                (Some(LONG), Some(SHORT), Some(LONG)),
                (Some(LONG), Some(LONG), Some(LONG)),
            ] {
                ask::<()>(conn, &["FLUSHALL"]).await;
                for (keep, number) in [(first, 5), (second, later)] {
                    let guard = Guard::new("a");
                    let guard = keep.into_iter().fold(guard, Guard::keep_mark);
                    guard.run::<()>(conn, token(number), &pipe()).await.unwrap();
                }
                let left = pttl(conn, "a:fence").await;
                match least {
                    None => assert_eq!(left, -1, "{first:?} {second:?}"),
                    Some(least) => {
                        let least = i64::try_from(least.as_millis()).unwrap();
                        let about = least - 20_000..=least;
                        assert!(about.contains(&left), "{first:?} {second:?}: {left}");
                    }
                }
                assert_eq!(ask::<u64>(conn, &["GET", "a:fence"]).await, later);
            }
        }
    }
}

/// Texts that Lua would take for a number, and texts that are not numbers.
const NO_TOKENS: [&str; 17] = [
    "nan",
    "-nan",
    "inf",
    "-inf",
    "-1",
    "-0",
    "1.5",
    "1e300",
    "5e3",
    "0x10",
    " 7",
    "7 ",
    "7\n",
    "",
    "abc",
    "9007199254740992",
    "99999999999999999999999999",
];

#[tokio::test]
async fn an_invalid_token_changes_nothing() {
    for kind in KINDS {
        let server = Server::start(kind);
        let conn = &mut connect(&server).await;
        for mark in [None, Some("7")] {
            ask::<()>(conn, &["FLUSHALL"]).await;
            if let Some(mark) = mark {
                ask::<()>(conn, &["SET", "a:fence", mark]).await;
            }
            for none in NO_TOKENS {
                for (number, keep) in [(none, "0"), (none, "100"), ("9", none)] {
                    let error = cmd("EVAL")
                        .arg(&[GUARD, "2", "a:fence", "a", number, keep])
                        .arg(&["3", "SET", "a", "x"])
                        .query_async::<()>(conn)
                        .await
                        .unwrap_err();
                    let error = error.to_string();
                    let why = ["is no fencing token", "is no time in ms"];
                    assert!(why.iter().any(|why| error.contains(why)), "{none}: {error}");
                }
            }
            let left: (Option<String>, Option<String>) = ask(conn, &["MGET", "a:fence", "a"]).await;
            assert_eq!(left, (mark.map(str::to_owned), None));
        }
    }
}

#[tokio::test]
async fn a_mark_that_is_not_a_token_admits_no_write() {
    for kind in KINDS {
        let server = Server::start(kind);
        let conn = &mut connect(&server).await;
        for none in NO_TOKENS {
            ask::<()>(conn, &["SET", "a:fence", none]).await;
            for keep in [None, Some(Duration::from_secs(9))] {
                let guard = keep.into_iter().fold(Guard::new("a"), Guard::keep_mark);
                for number in [
                    0,
                    7,
                    FencingToken::try_from((1 << 53) - 1).unwrap().as_u64(),
                ] {
                    let write = pipe().set("a", "x").clone();
                    let error = failed(guard.run::<()>(conn, token(number), &write).await);
                    assert!(
                        error.to_string().contains("holds no fencing token"),
                        "{error}"
                    );
                }
            }
            let left: (String, Option<String>) = ask(conn, &["MGET", "a:fence", "a"]).await;
            assert_eq!(left, (none.to_owned(), None));
            assert_eq!(pttl(conn, "a:fence").await, -1);
        }
    }
}

#[tokio::test]
async fn a_command_of_too_many_words_is_not_sent() {
    for kind in KINDS {
        let server = Server::start(kind);
        let conn = &mut connect(&server).await;
        let push = |values: usize| {
            let mut push = pipe();
            push.rpush("l", vec!["x"; values]);
            push
        };
        let guard = Guard::new("l");
        // RPUSH, the list, and its values.
        let length: (usize,) = guard.run(conn, token(5), &push(6_998)).await.unwrap();
        assert_eq!(length, (6_998,));
        let mut both = pipe();
        both.set("other", 1);
        both.rpush("l", vec!["x"; 6_999]);
        let error = failed(guard.run::<()>(conn, token(6), &both).await);
        assert_eq!(error.kind(), ErrorKind::Client);
        assert!(error.to_string().contains("7001 are too many"), "{error}");
        assert_eq!(
            ask::<(u64, Option<u64>)>(conn, &["MGET", "l:fence", "other"]).await,
            (5, None)
        );
    }
}

#[tokio::test]
async fn further_keys_are_declared_to_the_server() {
    let server = Server::start(Kind::Valkey);
    let conn = &mut connect(&server).await;
    let guard = Guard::new("a").key("b").key("c");
    let write = pipe().mset(&[("a", 1), ("b", 2), ("c", 3)]).clone();
    guard.run::<()>(conn, token(5), &write).await.unwrap();
    assert_eq!(
        ask::<Vec<u64>>(conn, &["MGET", "a", "b", "c", "a:fence"]).await,
        [1, 2, 3, 5]
    );
    // A user that may not touch a declared key may not run the script at all.
    let rule = [
        "ACL", "SETUSER", "one", "on", ">pw", "~a", "~a:fence", "~b", "+@all",
    ];
    ask::<()>(conn, &rule).await;
    let client = Client::open(server.url_with("one", "pw")).unwrap();
    let one = &mut patient(&client).await;
    failed(guard.run::<()>(one, token(6), &pipe()).await);
    Guard::new("a")
        .key("b")
        .run::<()>(one, token(7), &pipe())
        .await
        .unwrap();
    assert_eq!(ask::<u64>(conn, &["GET", "a:fence"]).await, 7);
}

#[tokio::test]
async fn the_script_is_there_for_other_clients() {
    let server = Server::start(Kind::Redis);
    let conn = &mut connect(&server).await;
    let eval = |number: &'static str| {
        [
            "EVAL", GUARD, "2", "a:fence", "a", number, "0", "3", "SET", "a", "x", "2", "GET", "a",
        ]
    };
    assert_eq!(
        ask::<(u64, String, String)>(conn, &eval("7")).await,
        (1, "OK".into(), "x".into())
    );
    assert_eq!(ask::<(u64, u64)>(conn, &eval("6")).await, (0, 7));
    // Other digits of the same number are the same token.
    let last = "9007199254740991";
    for number in ["0007", last] {
        let done: (u64, String, String) = ask(conn, &eval(number)).await;
        assert_eq!(done.0, 1, "{number}");
    }
    assert_eq!(ask::<String>(conn, &["GET", "a:fence"]).await, last);
}

/// 64 connections send random tokens at once. The accepted tokens never go back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn accepted_tokens_never_decrease_under_concurrent_writes() {
    for kind in KINDS {
        let server = Server::start(kind);
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let client = Client::open(server.url()).unwrap();
                tokio::spawn(async move {
                    let mut conn = patient(&client).await;
                    let mut refused = 0;
                    for round in 0..100_u64 {
                        let number = round * 50 + rand::random_range(0..200);
                        match rpush(&mut conn, "accepted", number, token(number)).await {
                            Ok(_) => {}
                            Err(Error::Stale(stale)) => {
                                assert!(stale.newest > token(number));
                                refused += 1;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                    refused
                })
            })
            .collect();
        let mut refused = 0;
        for task in tasks {
            refused += task.await.unwrap();
        }
        let accepted: Vec<u64> = connect(&server)
            .await
            .lrange("accepted", 0, -1)
            .await
            .unwrap();
        assert!(accepted.is_sorted(), "it went back");
        assert_eq!(accepted.len() + refused, 6_400);
        assert!(refused > 0 && !accepted.is_empty());
    }
}

/// Any requests in any order get the same answers, and leave the same data, as in a map.
#[test]
fn the_guard_answers_as_a_model_does() {
    let server = Server::start(Kind::Redis);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let asked = prop::collection::vec((0..3_u8, 0..20_u64, 0..4_u8), 1..60);
    proptest!(ProptestConfig::with_cases(64), |(asked in asked)| {
        runtime.block_on(async {
            let conn = &mut connect(&server).await;
            ask::<()>(conn, &["FLUSHALL"]).await;
            let mut marks = HashMap::<u8, u64>::new();
            let mut values = HashMap::<u8, u64>::new();
            for (key, number, what) in asked {
                let name = key.to_string();
                let newest = marks.get(&key).copied().unwrap_or(0);
                let fresh = number >= newest;
                let before = values.get(&key).copied();
                let outcome = match what {
                    0 => get(conn, &name, token(number)).await.map(|read: Option<u64>| assert_eq!(read, before)),
                    1 => del(conn, &name, token(number)).await.map(|there| assert_eq!(there, before.is_some())),
                    2 => set(conn, &name, number, token(number)).await,
                    _ => get_set(conn, &name, number, token(number)).await.map(|read: Option<u64>| assert_eq!(read, before)),
                };
                match outcome {
                    Ok(()) => {
                        assert!(fresh);
                        marks.insert(key, number);
                        match what {
                            0 => None,
                            1 => values.remove(&key),
                            _ => values.insert(key, number),
                        };
                    }
                    outcome => {
                        assert!(!fresh);
                        stale(outcome, &name, number, newest);
                    }
                }
            }
            for key in 0..3 {
                let value: Option<u64> = ask(conn, &["GET", &key.to_string()]).await;
                assert_eq!(value, values.get(&key).copied());
            }
        });
    });
}

#[tokio::test]
async fn the_mark_is_as_durable_as_the_server() {
    // `appendfsync always`: data whose write was answered survives a kill.
    let server = ServerOptions::new(Kind::Redis)
        .appendonly()
        .config("appendfsync always")
        .start();
    let conn = &mut connect(&server).await;
    for number in 1..50 {
        set(conn, "a", number, token(number)).await.unwrap();
    }
    server.kill9();
    server.start_again();
    let conn = &mut connect(&server).await;
    stale(set(conn, "a", "old", token(48)).await, "a", 48, 49);
    assert_eq!(get::<u64>(conn, "a", token(49)).await.unwrap(), 49);

    // Without persistence there is the documented loss, of the data together with the mark.
    let server = Server::start(Kind::Valkey);
    let conn = &mut connect(&server).await;
    set(conn, "a", "new", token(9)).await.unwrap();
    server.restart_empty();
    let conn = &mut connect(&server).await;
    set(conn, "a", "old", token(8)).await.unwrap();

    // After an old snapshot the newest tokens go back in the same way.
    let server = Server::start(Kind::Redis);
    let conn = &mut connect(&server).await;
    set(conn, "a", "saved", token(5)).await.unwrap();
    server.save_snapshot();
    set(conn, "a", "new", token(9)).await.unwrap();
    server.restart_with_snapshot();
    let conn = &mut connect(&server).await;
    stale(set(conn, "a", "old", token(4)).await, "a", 4, 5);
    set(conn, "a", "old", token(8)).await.unwrap();
}

#[tokio::test]
async fn a_flushall_forgets_every_mark() {
    let server = Server::start(Kind::Redis);
    let conn = &mut connect(&server).await;
    set(conn, "a", "new", token(9)).await.unwrap();
    ask::<()>(conn, &["FLUSHALL"]).await;
    // This is the documented loss: an old token passes until the store has seen a newer one again.
    set(conn, "a", "old", token(8)).await.unwrap();
    set(conn, "a", "new", token(10)).await.unwrap();
    stale(set(conn, "a", "old", token(8)).await, "a", 8, 10);
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_not_a_refusal() {
    let server = Server::start(Kind::Redis);
    let mut conn = connect(&server).await;
    set(&mut conn, "a", 1, token(5)).await.unwrap();
    server.kill9();
    let error = failed(set(&mut conn, "a", 2, token(6)).await);
    assert!(
        error.is_io_error() || error.is_connection_dropped(),
        "{error:?}"
    );
    let text = error.to_string();
    let error = Error::from(error);
    assert!(error.stale().is_none());
    // An error that is printed with its sources does not repeat a text.
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        assert!(!text.contains(&inner.to_string()), "{text}: {inner}");
        source = inner.source();
    }
    server.start_again();
}

#[tokio::test]
async fn the_guard_has_only_the_rights_of_its_user() {
    let server = Server::start(Kind::Redis);
    let admin = &mut connect(&server).await;
    ask::<()>(
        admin,
        &[
            "ACL",
            "SETUSER",
            "writer",
            "on",
            ">pw",
            "~a",
            "~a:fence",
            "+eval",
            "+evalsha",
            "+script|load",
            "+get",
            "+pttl",
            "+set",
        ],
    )
    .await;
    let client = Client::open(server.url_with("writer", "pw")).unwrap();
    let conn = &mut patient(&client).await;
    set(conn, "a", 1, token(5)).await.unwrap();
    let error = failed(del(conn, "a", token(5)).await);
    // Redis 7.0 says the first, later ones and Valkey the second.
    let whys = [
        "The user executing the script can't run this command",
        "User writer has no permissions to run the 'del' command",
    ];
    let said = error.to_string();
    assert!(whys.iter().any(|why| said.contains(why)), "{said}");
    let error = failed(set(conn, "b", 1, token(5)).await);
    assert_eq!(error.kind(), ServerErrorKind::NoPerm.into(), "{error}");
    assert_eq!(ask::<u64>(admin, &["EXISTS", "a", "b", "b:fence"]).await, 1);
}
