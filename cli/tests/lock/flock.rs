//! `quorate lock` for users of flock(1). If the lock is held, it can be silent and exit with a status of the user's
//! choice. Names may begin with a dash. Also `inspect` of a rate limit, and the round trips that `nodes` shows.

use std::time::Duration;

use crate::command::{Running, STAY, Wire, fleet, ms, quorate, run};
use crate::support::{Fleet, Kind, Proxy, Stalls};
use serde_json::Value;

#[test]
fn a_conflict_is_silent_and_has_the_status_that_is_asked_for() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let _lock = wire.lock(&urls, &["a"], STAY);
    wire.expect("up");
    let _slot = wire.semaphore(&urls, &["pool", "--limit", "1"], STAY);
    wire.expect("up");
    let both = [vec!["lock", "a"], vec!["semaphore", "pool", "--limit", "1"]];
    for what in both {
        let tries = |options: &[&str]| {
            run(
                &urls,
                &[&what[..], options, &["--", "echo", "ran"]].concat(),
            )
        };
        tries(&["--no-wait"]).is(75).says("quorate: ");
        let done = tries(&["--no-wait", "--quiet"]).is(75);
        assert_eq!((&*done.out, &*done.err), ("", ""));
        let done = tries(&["--wait", "700ms", "-q", "-E", "0", "-v", "--json"]).is(0);
        assert!(
            !done.err.contains("held") && done.out.is_empty(),
            "{done:?}"
        );
        tries(&["--no-wait", "--conflict-status", "130"])
            .is(130)
            .says("quorate: ");
        let done = tries(&["--no-wait", "--conflict-status", "3", "--json"]).is(3);
        assert_eq!(done.json_error()["exit"], 3);
        tries(&["--no-wait", "--conflict-status", "256"]).is(64);
    }
    // Every other error is printed.
    let nowhere = ["redis://127.0.0.1:1".to_owned()];
    run(&nowhere, &["lock", "a", "-q", "-E", "0", "--", "true"])
        .is(69)
        .says("quorate: ");
}

#[test]
fn a_name_may_begin_with_a_dash() {
    let fleet = fleet(1);
    let urls = fleet.urls();
    let name = "echo $QUORATE_NAME";
    for words in [
        &["lock", "--name=-x"][..],
        &["lock", "--name", "-x"],
        &["semaphore", "--name=-x", "--limit", "1"],
        &["limit", "--name=-x", "--rate", "100/s"],
    ] {
        let done = run(&urls, &[words, &["--", "sh", "-c", name]].concat()).is(0);
        assert_eq!(done.out, "-x\n");
    }
    for command in ["lock", "semaphore", "limit"] {
        run(&urls, &[command, "-xyz", "--", "true"])
            .is(64)
            .says("if it is a name, write --name=-xyz");
    }
    for command in ["limit", "inspect", "evict", "resize"] {
        let done = run(&urls, &[command, "-xyz"]).is(64);
        let done = done.says("if it is a name, write --name=-xyz");
        assert!(!done.err.contains("use '-- -"), "{done:#?}");
    }
    run(&urls, &["resize", "--name=-x", "--limit", "2"]).is(0);
    run(&urls, &["inspect", "--name=-x"]).is(0).prints("\"-x\"");
    run(&urls, &["evict", "--name", "-x"])
        .is(64)
        .says("\"-x\" is held by nobody");
    run(&urls, &["inspect", "--", "-x"]).is(0).prints("\"-x\"");
    run(&urls, &["evict", "--yes", "--", "-x"])
        .is(0)
        .prints("\"-x\" was free already");
}

#[test]
fn inspect_shows_a_rate_limit_and_takes_no_unit() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    run(&urls, &["limit", "api", "--rate", "4/20s"]).is(0);
    run(&urls, &["inspect", "api"])
        .is(0)
        .prints("\"api\" is free")
        .prints("To see what is left of a rate limit, add its --rate.");
    for _ in 0..2 {
        run(&urls, &["inspect", "api", "--rate", "4/20s"])
            .is(0)
            .prints("\"api\": 3 are left of the limit of 4 in 20 s\n");
    }
    let seen = run(&urls, &["inspect", "api", "--rate", "4/20s", "--json"])
        .is(0)
        .json();
    assert_eq!((&seen["remaining"], &seen["limit"]), (&3.into(), &4.into()));
    run(&urls, &["limit", "api", "--rate", "4/20s", "--cost", "3"]).is(0);
    run(&urls, &["inspect", "api", "--rate", "4/20s"])
        .is(0)
        .prints("\"api\": nothing is left of the limit of 4 in 20 s; there is room for one in ");
    // A lock that is held needs no such hint.
    let wire = Wire::new();
    let _lock = wire.lock(&urls, &["api"], STAY);
    wire.expect("up");
    let done = run(&urls, &["inspect", "api"]).is(0);
    assert!(!done.out.contains("--rate"), "{done:?}");
}

/// A link of 90 ms is not shown as 270 ms: the output is the measured round trip, not a bound for nearly all answers.
#[test]
fn the_round_trip_that_is_shown_is_that_of_the_link() {
    let fleet = Fleet::start(3, Kind::Redis);
    let far: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    for link in &far {
        link.delay(ms(45));
    }
    let urls: Vec<String> = far.iter().map(|link| link.url().to_owned()).collect();
    let words = ["nodes", "--json", "--fleet", "tests"];
    let machine = Stalls::watch();
    let seen = Running::start(quorate(&urls, &words)).done().json();
    for node in seen["nodes"].as_array().unwrap() {
        let trip = node["round_trip_ms"].as_u64().map(Duration::from_millis);
        // A sample begins when the writes are done. If the thread is suspended between a write and that instant, the
        // sample is that much shorter than the link.
        let least = ms(90).saturating_sub(machine.longest());
        assert!((least..ms(170)).contains(&trip.unwrap()), "{node}");
        assert_ne!(node["round_trip_ms"], Value::Null);
    }
}
