use std::collections::BTreeSet;

use sha1_smol::Sha1;

use super::*;
use crate::node::kinds::scripts;

fn tried(how: impl Fn(&Right) -> bool) -> BTreeSet<&'static str> {
    let rights = TRIED.iter().filter(|right| how(right));
    rights.map(|right| right.name).collect()
}

/// The commands that the scripts run.
fn in_scripts() -> BTreeSet<&'static str> {
    let mut commands = BTreeSet::new();
    for script in scripts::all() {
        let calls = script.source().split("call('").skip(1);
        commands.extend(calls.map(|call| call.split('\'').next().unwrap()));
        // A call by another name, such as the handshake's `set`, is not a call of a new command.
        assert!(!script.source().contains("call(\""));
    }
    commands
}

#[test]
fn every_command_that_scripts_need_is_tried_and_no_other() {
    let mut needed = in_scripts();
    // If it is withheld, waiters ask from time to time.
    assert!(needed.remove("SPUBLISH"));
    needed.extend(["SCRIPT LOAD", "EVAL", "EVALSHA"]);
    assert_eq!(tried(|right| right.without.is_none()), needed);
}

#[test]
fn the_documented_acl_matches_the_rights_that_are_tried() {
    let text = include_str!("../../../docs/operations.md");
    let line = text.split("-@all").nth(1).unwrap();
    let line = line.split("```").next().unwrap().split_whitespace();
    let documented: BTreeSet<String> = line.map(str::to_owned).collect();
    let mut grants: BTreeSet<String> = TRIED.iter().map(Right::grant).collect();
    // The greeting itself.
    grants.extend(["+hello".into(), SUBSCRIBE.grant()]);
    assert_eq!(documented, grants);
}

#[test]
fn evalsha_names_the_script_of_eval() {
    let words = |name| {
        let right = TRIED.iter().find(|right| right.name == name).unwrap();
        right.words.split(' ').collect::<Vec<_>>()
    };
    let sha = Sha1::from(words("EVAL")[1]).digest().to_string();
    assert_eq!(words("EVALSHA")[1], sha);
}

#[test]
fn a_try_names_the_keys_of_its_prefix() {
    let keys = Keys::new("jobs");
    let eval = TRIED.iter().find(|right| right.name == "EVAL").unwrap();
    let words = eval.words(&keys);
    let words: Vec<_> = words.into_iter().map(String::from_utf8_lossy).collect();
    let text = "EVAL return 27 jobs:@mutex: jobs:boot jobs:open jobs:time jobs:c0 jobs:c1 \
                jobs:@mutex-evicted: jobs:waiting jobs:@mutex-line: jobs:@mutex-waiters: \
                jobs:@semaphore: jobs:@semaphore-ends: jobs:@semaphore-line: \
                jobs:@many: jobs:@many-ends: jobs:@many-line: \
                jobs:@units: jobs:@units-ends: jobs:@units-line: jobs:@rate: \
                jobs:@rwlock: jobs:@rwlock-window: jobs:@rwlock-readers: \
                jobs:@rwlock-writers: jobs:@rwlock-refused: jobs:@rwlock-wakes: \
                jobs:@rwlock-evicted:";
    assert_eq!(words.join(" "), text);
    let words_of = |name: &str| {
        let right = TRIED.iter().find(|right| right.name == name).unwrap();
        let words = right.words(&keys);
        let words: Vec<_> = words.into_iter().map(String::from_utf8_lossy).collect();
        words.join(" ")
    };
    assert_eq!(words_of("ZADD"), "ZADD jobs:@mutex-line: XX 1 x");
    assert_eq!(words_of("HDEL"), "HDEL jobs:@mutex-waiters: x");
    assert_eq!(words_of("SPUBLISH"), "SPUBLISH jobs:wake: x");
}

#[test]
fn errors_that_report_a_missing_right_are_recognised() {
    let command = Some(Denial::Command);
    let key = Some(Denial::Key);
    let channel = Some(Denial::Channel);
    for (error, what) in [
        // The words of Redis 7.0, and of later versions and Valkey, for commands and for scripts.
        (
            "NOPERM this user has no permissions to run the 'hmget' command",
            command,
        ),
        (
            "NOPERM User u has no permissions to run the 'hmget' command",
            command,
        ),
        (
            "ERR The user executing the script can't run this command or subcommand script: 3c",
            command,
        ),
        (
            "ERR ACL failure in script: User u has no permissions to run the 'hmget' command",
            command,
        ),
        ("NOPERM in other words", command),
        (
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            key,
        ),
        ("NOPERM No permissions to access a key", key),
        (
            "ERR The user executing the script can't access at least one of the keys mentioned in",
            key,
        ),
        (
            "ERR ACL failure in script: No permissions to access a key",
            key,
        ),
        (
            "NOPERM this user has no permissions to access one of the channels used as arguments",
            channel,
        ),
        ("NOPERM No permissions to access a channel", channel),
        (
            "ERR The user executing the script can't publish to the channel mentioned in the command",
            channel,
        ),
        (
            "ERR ACL failure in script: No permissions to access a channel script: on @user_script",
            channel,
        ),
        // A user may have any name.
        (
            "NOPERM User channel has no permissions to run the 'publish' command",
            command,
        ),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            None,
        ),
        (
            "READONLY You can't write against a read only replica.",
            None,
        ),
        (
            "ERR unknown command 'HMGET', with args beginning with: 'x'",
            None,
        ),
        ("ERR no such key", None),
    ] {
        assert_eq!(denial(error), what, "{error}");
    }
}

#[test]
fn all_missing_rights_are_reported_at_once() {
    let right = |name: &str| TRIED.iter().find(|right| right.name == name).unwrap();
    let missing = |errors: &[(&str, &str)]| {
        let mut missing = Missing::default();
        for (name, error) in errors {
            missing.add(right(name), error);
        }
        (
            missing.refusal("user \"me\"", &Keys::new("q")),
            missing.note(&Keys::new("q")),
        )
    };
    let (no, key) = ("NOPERM no", "NOPERM No permissions to access a key");
    let unknown = "ERR Unknown command 'X'";
    for (errors, refusal) in [
        (
            &[("HMGET", no)][..],
            "its ACL withholds HMGET from user \"me\": grant it with ACL SETUSER (+hmget)",
        ),
        (
            &[
                ("SCRIPT LOAD", no),
                ("GET", no),
                ("SET", key),
                ("DEL", key),
                ("EXISTS", no),
            ],
            "its ACL withholds SCRIPT LOAD, GET and keys of quorate from user \"me\": \
             grant them with ACL SETUSER (+script|load +get ~q:*)",
        ),
        (
            &[("GET", unknown)],
            "it does not know GET: quorate needs it under its own name",
        ),
        (
            &[("TIME", no), ("GET", unknown), ("SET", unknown)],
            "its ACL withholds TIME from user \"me\": grant it with ACL SETUSER (+time); \
             it does not know GET and SET: quorate needs each under its own name",
        ),
    ] {
        assert_eq!(missing(errors).0.as_deref(), Some(refusal));
    }
    assert_eq!(
        missing(&[
            ("SET", "OOM full"),
            ("DEL", "READONLY"),
            ("HSET", "ERR wrong")
        ]),
        (None, None)
    );
    let (refusal, note) = missing(&[("EXISTS", no), ("CLIENT KILL", unknown)]);
    assert_eq!(refusal, None);
    let note = note.unwrap();
    assert!(
        note.starts_with("its ACL withholds EXISTS: bootstrap"),
        "{note}"
    );
    assert!(
        note.contains("; it does not know CLIENT KILL: after a lost"),
        "{note}"
    );
    let channel = "NOPERM No permissions to access a channel";
    let (refusal, note) = missing(&[("SPUBLISH", channel)]);
    assert_eq!(refusal, None);
    let why = "its ACL withholds channels of quorate (&q:wake:*): waiters";
    assert!(note.as_ref().unwrap().starts_with(why), "{note:?}");
}
