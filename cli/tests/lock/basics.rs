//! The `quorate` command on real servers. It runs a command and returns its exit status, it reports wrong use and bad
//! nodes, and operators see and end locks with it.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use crate::command::{
    QUORATE, Running, STAY, Wire, fleet, leftovers, ms, on_a_terminal, quorate, run,
};
use crate::support::{Kind, Server, ServerOptions};
use rustix::process::Signal;
use serde_json::Value;

// ---- running a command ----------------------------------------------------------------------

#[test]
fn the_exit_status_is_that_of_the_command() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let sh = |script: &str| run(&urls, &["lock", "a", "--", "sh", "-c", script]);
    let done = sh("echo out; echo err >&2; exit 7").is(7);
    assert_eq!(
        (done.out.as_str(), done.err.as_str()),
        ("out\n", "err\n"),
        "and nothing of ours"
    );
    sh("true").is(0);
    sh("exit 255").is(255);
    sh("kill -TERM $$").is(143);
    sh("kill -KILL $$").is(137);
    run(&urls, &["lock", "a", "--", "no-such-command-here"])
        .is(127)
        .says("quorate: \"no-such-command-here\" was not found");
    run(&urls, &["lock", "a", "--", "/etc/passwd"])
        .is(126)
        .says("quorate: \"/etc/passwd\" cannot be run");
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

#[test]
fn the_command_knows_its_name_and_a_token_that_grows() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let mut last = 0;
    for _ in 0..3 {
        let script = "echo $QUORATE_NAME:$QUORATE_TOKEN";
        let done = run(&urls, &["lock", "invoice 42", "--", "sh", "-c", script]).is(0);
        let (name, token) = done.out.trim().rsplit_once(':').unwrap();
        assert_eq!(name, "invoice 42");
        let token: u64 = token.parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    let seen = run(&urls, &["inspect", "invoice 42", "--json"])
        .is(0)
        .json();
    assert_eq!(seen["newest_token"], last);
    assert_eq!(
        (&seen["held"], &seen["holder"]),
        (&Value::Bool(false), &Value::Null)
    );
}

#[test]
fn lock_waits_as_long_as_its_options_say() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let holder = wire.lock(&urls, &["a", "--label", "web-3"], STAY);
    wire.expect("up");

    let done = run(&urls, &["lock", "a", "--no-wait", "--", "echo", "ran"])
        .is(75)
        .says("quorate: \"a\" is held by web-3");
    assert_eq!(done.out, "");
    // It waits for nothing: a process starts, asks and ends, on a busy machine.
    assert!(done.took < ms(2000), "{:?}", done.took);
    let done = run(
        &urls,
        &["lock", "a", "--wait", "300ms", "--", "echo", "ran"],
    )
    .is(75)
    .says("held by web-3");
    assert_eq!(done.out, "");
    // The wait, and the time of the process itself on a busy machine.
    assert!(
        done.took >= ms(300) && done.took < ms(300 + 1200),
        "{:?}",
        done.took
    );
    let error = run(&urls, &["lock", "a", "--no-wait", "--json", "--", "true"])
        .is(75)
        .json_error();
    assert_eq!(
        (&error["error"], &error["exit"]),
        (&"held".into(), &75.into())
    );

    // Without a bound it waits for its turn.
    let waiter = Running::start(quorate(&urls, &["lock", "a", "--", "echo", "ran"]));
    std::thread::sleep(ms(200));
    holder.signal(Signal::TERM);
    holder.done().is(143);
    waiter.done().is(0).prints("ran");
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

#[test]
fn a_release_that_is_not_confirmed_is_a_warning_only() {
    let fleet = fleet(3);
    let wire = Wire::new();
    let dir = wire.dir.path().join("go");
    let script = format!(
        "echo up >&9; while [ ! -e '{}' ]; do sleep 0.01; done; exit 3",
        dir.display()
    );
    let running = wire.lock(&fleet.urls(), &["a"], &script);
    wire.expect("up");
    fleet[0].kill9();
    fleet[1].kill9();
    File::create(dir).unwrap();
    let done = running
        .done()
        .is(3)
        .says("quorate: the command is done, but too few nodes confirmed");
    for server in fleet.iter() {
        let line = format!("quorate:   127.0.0.1:{}: ", server.port());
        assert!(
            done.err.lines().any(|it| it.starts_with(&line)),
            "{done:#?}"
        );
    }
}

// ---- wrong use, bad nodes -------------------------------------------------------------------

#[test]
fn wrong_usage_exits_64_with_a_hint() {
    let none: &[String] = &[];
    let alone = &["redis://127.0.0.1:1".to_owned()][..];
    for (urls, args, says) in [
        (none, &["lock", "a", "--", "true"][..], "set QUORATE_NODES"),
        (none, &["nonsense"], "unrecognized subcommand 'nonsense'"),
        (alone, &["lock", "a"], "<CMD>"),
        (
            alone,
            &["lock", "a", "--ttl", "3", "--", "true"],
            "as in 700ms, 3s, 10m, 24h",
        ),
        (
            alone,
            &["lock", "a", "--wait", "1.5s", "--", "true"],
            "as in 700ms, 3s, 10m, 24h",
        ),
        (
            alone,
            &["lock", "a", "--wait", "1s", "--no-wait", "--", "true"],
            "cannot be used with",
        ),
        (alone, &["inspect", ""], "the name is empty"),
        (
            alone,
            &["semaphore", "s", "--limit", "-1", "--", "true"],
            "invalid value '-1' for '--limit <N>'",
        ),
        (
            alone,
            &["lock", "a", "--ttl", "-1s", "--", "true"],
            "invalid value '-1s' for '--ttl <DURATION>'",
        ),
        (
            alone,
            &["limit", "a", "--rate", "1/s", "--cost", "-1"],
            "invalid value '-1' for '--cost <N>'",
        ),
        (
            alone,
            &["resize", "s", "--limit", "-1"],
            "invalid value '-1' for '--limit <N>'",
        ),
        (
            alone,
            &["evict", "s", "--slot", "-1"],
            "invalid value '-1' for '--slot <N>'",
        ),
        (
            alone,
            &["nodes", "--max-ttl", "-1s"],
            "invalid value '-1s' for '--max-ttl <DURATION>'",
        ),
        (
            alone,
            &["lock", "a", "--label", "-x", "--", "true"],
            "if it is the value of --label, write --label=-x",
        ),
        (
            alone,
            &["limit", "a", "--rate", "1/s", "./call.sh", "-v"],
            "put `--` before the whole command",
        ),
        (
            alone,
            &["inspect", "a", "--key-prefix", "ä"],
            "the key prefix",
        ),
        (
            alone,
            &["inspect", "a", "--node", "http://h"],
            "allowed are redis://",
        ),
        (alone, &["inspect", "a", "--max-ttl", "48h"], "max_ttl"),
        (alone, &["raise-terms", "--max-ttl", "48h"], "max_ttl"),
        (
            alone,
            &["bootstrap", "--new", "--force"],
            "cannot be used with",
        ),
        (
            alone,
            &[
                "lock",
                "a",
                "--node",
                "redis://h:1",
                "--node",
                "redis://h:1",
                "--",
                "true",
            ],
            "is given twice",
        ),
    ] {
        let done = run(urls, args).is(64).says(says);
        assert!(done.err.starts_with("quorate: "), "{done:#?}");
        assert_eq!(done.out, "");
        let with_json = [&["--json"], args].concat();
        let error = run(urls, &with_json).is(64).json_error();
        assert_eq!(error["exit"], 64);
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    let help = run(none, &["lock", "--help"])
        .is(0)
        .prints("QUORATE_TOKEN")
        .prints("79 ");
    assert_eq!(help.err, "");
    run(none, &["--help"])
        .is(0)
        .prints("Examples:")
        .prints("QUORATE_NODES");
    run(none, &["--version"]).is(0).prints("quorate 0.");
}

#[test]
fn a_bad_lock_is_64() {
    let fleet = fleet(1);
    let urls = fleet.urls();
    run(&urls, &["lock", "", "--", "true"])
        .is(64)
        .says("quorate: the name is empty");
    run(&urls, &["lock", &"x".repeat(513), "--", "true"])
        .is(64)
        .says("513 bytes");
    run(&urls, &["lock", "a", "--ttl", "10ms", "--", "true"])
        .is(64)
        .says("at least 100ms");
    run(&urls, &["lock", "a", "--ttl", "31s", "--", "true"])
        .is(64)
        .says("max_ttl");
    // Two names of one server.
    let new = Server::start(Kind::Redis);
    for args in [&["lock", "a", "--", "true"][..], &["raise-terms"]] {
        run(&[new.url(), new.unix_url()], args)
            .is(64)
            .says("the same server");
    }
}

#[test]
fn without_a_majority_it_exits_69_with_a_reason_per_node() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    fleet[0].kill9();
    fleet[2].kill9();
    let done = run(&urls, &["lock", "a", "--", "echo", "ran"])
        .is(69)
        .says("quorate: no majority");
    assert_eq!(done.out, "");
    for server in fleet.iter() {
        let line = done
            .err
            .lines()
            .find(|line| line.contains(&format!("127.0.0.1:{}: ", server.port())));
        let line = line.unwrap_or_else(|| panic!("{server} is not named: {done:#?}"));
        assert!(line.starts_with("quorate: "), "{line}");
        assert_eq!(line.contains("refused"), !server.is_up(), "{line}");
    }
    let error = run(&urls, &["lock", "a", "--json", "--", "true"])
        .is(69)
        .json_error();
    assert_eq!(error["error"], "no_quorum");
    assert_eq!(error["nodes"].as_array().unwrap().len(), 3);

    let nodes = run(&urls, &["nodes", "--json"]).is(69).json();
    assert_eq!((&nodes["voting"], &nodes["needed"]), (&1.into(), &2.into()));
    let states: Vec<&str> = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["unreachable", "voting", "unreachable"]);
    let seen = run(&urls, &["inspect", "a", "--json"]).is(69).json();
    assert_eq!(
        (&seen["held"], &seen["answered"]),
        (&Value::Null, &1.into())
    );
    run(&urls, &["evict", "a", "--yes"])
        .is(69)
        .says("no majority");
}

#[test]
fn with_no_wait_it_exits_69_as_soon_as_no_majority_is_left() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    fleet[0].kill9();
    fleet[1].kill9();
    // It would wait for this long for a majority.
    let words = ["--no-wait", "--connect-timeout", "30s", "--", "true"];
    for taken in [
        &["lock", "a"][..],
        &["lock", "a", "b"],
        &["lock", "a", "--read"],
        &["semaphore", "s", "--limit", "2"],
    ] {
        let done = run(&urls, &[taken, &words].concat())
            .is(69)
            .says("no majority: 1 of 3 nodes vote")
            .says("refused");
        assert!(done.took < ms(15_000), "{:?}", done.took);
    }
    // Two that refuse are enough to know it, whatever the third does.
    fleet[2].sigstop();
    let done = run(&urls, &[&["lock", "a"], &words[..]].concat()).is(69);
    assert!(done.took < ms(15_000), "{:?}", done.took);
    fleet[2].sigcont();
}

#[test]
fn a_wrong_password_is_reported_and_not_shown() {
    let server = ServerOptions::new(Kind::Redis).password("right").start();
    let url = [server.url_with("default", "wr0ng")];
    for args in [
        &["lock", "a", "--", "true"][..],
        &["raise-terms"],
        &["bootstrap", "--new"],
    ] {
        let done = run(&url, args).is(69).says("password");
        assert!(!done.err.contains("wr0ng"), "{done:#?}");
    }
    run(&url, &["nodes"]).is(69).prints("password");
    run(&[server.url()], &["bootstrap", "--force"]).is(0);
    let bare = run(&[server.url()], &["bootstrap"]).is(0);
    assert!(bare.err.contains("`quorate raise-terms`"), "{bare:#?}");
    run(&[server.url()], &["lock", "a", "--", "true"]).is(0);
}

// ---- operators ------------------------------------------------------------------------------

/// Each server has another password, which contains parts of the holder's entry.
#[test]
fn inspect_sees_the_holder_if_passwords_share_text_with_its_entry() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let passwords = ["acme-x7Kq9", "zeta-web3-1", "host-pass-9"];
    let mut with_login = Vec::new();
    for (i, password) in passwords.iter().enumerate() {
        let secret = format!(">{password}");
        fleet[i].cmd(&["ACL", "SETUSER", "app", "on", &secret, "~*", "&*", "+@all"]);
        with_login.push(urls[i].replace("redis://", &format!("redis://app:{password}@")));
    }
    let label = ["a", "--label", "web3.acme.host"];
    let wire = Wire::new();
    let running = wire.lock(&urls, &label, "echo up >&9; exec sleep 60");
    wire.expect("up");
    let seen = run(&with_login, &["inspect", "a", "--json"]).is(0).json();
    drop(running);
    assert_eq!(seen["held"], true, "{seen}");
}

#[test]
fn inspect_and_evict() {
    const LABEL: &str = "https://10.0.0.7:8080/a?b=1&c=%20d";
    let fleet = fleet(3);
    let urls = fleet.urls();
    run(&urls, &["inspect", "a"]).is(0).prints("\"a\" is free");
    let wire = Wire::new();
    let holder = wire.lock(&urls, &["a", "--label", LABEL, "--ttl", "1s"], STAY);
    wire.expect("up");

    run(&urls, &["inspect", "a"])
        .is(0)
        .prints(&format!("\"a\" is held on 3 of 3 nodes by {LABEL}"));
    let seen = run(&urls, &["inspect", "a", "--json"]).is(0).json();
    assert_eq!(
        (&seen["held"], &seen["holder"]["label"]),
        (&true.into(), &LABEL.into())
    );
    let text = |field: &str| seen["holder"][field].as_str().unwrap();
    assert_eq!(text("owner").replace('-', "") + "@" + LABEL, text("entry"));
    assert_eq!(text("owner").len(), 36, "a uuid, with its hyphens");
    let left = seen["holder"]["remaining_ms"].as_u64().unwrap();
    assert!((1..=1000).contains(&left), "{left}");
    for node in seen["nodes"].as_array().unwrap() {
        assert_eq!(
            (&node["state"], &node["holder"]["label"]),
            (&"voting".into(), &LABEL.into())
        );
    }

    run(&urls, &["evict", "a"])
        .is(64)
        .prints(LABEL)
        .says("quorate: nothing was done")
        .says("--yes");
    run(&urls, &["inspect", "a"])
        .is(0)
        .prints(&format!("by {LABEL}"));
    let evicted = run(&urls, &["evict", "a", "--yes", "--json"]).is(0).json();
    assert_eq!(
        (&evicted["evicted"], &evicted["holder"]["label"]),
        (&true.into(), &LABEL.into())
    );
    run(&urls, &["inspect", "a"]).is(0).prints("\"a\" is free");
    holder.done().is(79).says("lost while the command ran");
    run(&urls, &["evict", "a", "--yes"])
        .is(0)
        .prints("free already");
}

// ---- terminals, and no servers at all -------------------------------------------------------

#[test]
fn on_a_terminal_the_command_is_in_front_and_the_terminal_comes_back() {
    let fleet = fleet(1);
    // Both read from the terminal. A process that is not in the foreground would be stopped by SIGTTIN for ever.
    let script = format!(
        "'{QUORATE}' lock a -- sh -c 'read x; echo inner=$x; exit 4'; echo status=$?; read y; echo outer=$y"
    );
    let mut running = on_a_terminal(&quorate(&fleet.urls(), &[]), &script);
    let mut typed = running.child.stdin.take().unwrap();
    typed.write_all(b"one\ntwo\n").unwrap();
    let done = running.done().is(0);
    drop(typed);
    done.prints("inner=one")
        .prints("status=4")
        .prints("outer=two");
}

#[test]
fn the_demo_needs_no_server_and_tells_the_story() {
    let done = run(&[], &["demo"]).is(0);
    // The demo waits for leases of 1 s. It takes about a second, and a hang takes much longer than this limit.
    assert!(done.took < Duration::from_secs(15), "{:?}", done.took);
    assert!(!done.out.contains('\x1b'), "no colours where nobody looks");
    assert_eq!(done.err, "");
    let done = done
        .prints("alice  locks \"invoice:42\"")
        .prints("All masters have the same queue: bob, carol.")
        .prints("alice  comes last, with token ")
        .prints("Masters 4 and 5 are dead");
    let done = done
        .prints("master 3: ")
        .prints("All three come back")
        .prints("store  refuses: token ");
    assert!(!done.out.contains("did not go as planned"));

    let lines = run(&[], &["demo", "--json"]).is(0).out;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(
            line["who"].is_string() && line["says"].is_string(),
            "{line}"
        );
    }
}
