//! `quorate limit` on real servers. As many commands start as the limit allows, and no more. Commands that wait get
//! their turn. If no server can answer, the result is the one that `--on-outage` asks for.

use std::time::Instant;

use crate::command::{self, Done, Running, fleet, ignored, ms, quorate, run};
use crate::support::{Fleet, Kind};
use rustix::process::Signal;
use serde_json::json;

/// Addresses where nobody listens.
const NOWHERE: [&str; 3] = [
    "redis://127.0.0.1:1",
    "redis://127.0.0.1:2",
    "redis://127.0.0.1:3",
];

/// Runs `quorate limit api` with these words, which are separated by spaces.
#[track_caller]
fn limit(urls: &[String], words: &str) -> Done {
    run(urls, &words_of(words))
}

fn words_of(words: &str) -> Vec<&str> {
    [&["limit", "api"], &words.split(' ').collect::<Vec<_>>()[..]].concat()
}

fn nowhere() -> Vec<String> {
    NOWHERE.map(str::to_owned).into()
}

// ---- room, and no room ----------------------------------------------------------------------

#[test]
fn a_limit_of_four_allows_four_calls_and_denies_the_next() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    for _ in 0..4 {
        let done = limit(&urls, "--rate 4/20s --no-wait").is(0);
        assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""));
    }
    let done = limit(&urls, "--rate 4/20s --no-wait -- echo ran")
        .is(75)
        .says("quorate: \"api\": the limit of 4 in 20 s has no room for 1 more; there is room in ")
        .says(" s, unless others take it; without --no-wait this waits for it\n");
    assert_eq!((done.out.as_str(), done.err.lines().count()), ("", 1));
    let error = limit(&urls, "--rate 4/20s --no-wait --json");
    let error = error.is(75).json_error();
    assert_eq!(
        (&error["error"], &error["name"], &error["allowed"]),
        (&json!("denied"), &json!("api"), &json!(false))
    );
    assert_eq!(
        (&error["remaining"], &error["limit"]),
        (&json!(0), &json!(4))
    );
    let wait = error["wait_ms"].as_u64().unwrap();
    assert!(wait > 5_000 && wait < 25_000, "{wait}");

    // Another name, and another limit, each have units of their own.
    limit(&urls, "--rate 5/20s --no-wait").is(0);
    run(
        &urls,
        &[
            "limit",
            "other",
            "--rate",
            "4/20s",
            "--cost",
            "4",
            "--no-wait",
        ],
    )
    .is(0);
}

#[test]
fn a_wait_that_is_too_short_ends_and_one_that_suffices_does_not() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let began = Instant::now();
    limit(&urls, "--rate 6/4s --cost 6").is(0);
    // It is known at once that this wait is too short.
    let done = limit(&urls, "--rate 6/4s --wait 1s")
        .is(75)
        .says("the limit of 6 in 4 s has no room for 1 more; there is room in ")
        .says("; a longer --wait waits for it");
    // This is less than the wait of 1 s.
    assert!(done.took < ms(900), "{:?}", done.took);
    let done = limit(&urls, "--rate 6/4s --wait 20s --json").is(0);
    // The interval has passed.
    assert!(began.elapsed() > ms(4000), "{:?}", began.elapsed());
    let said = done.json();
    assert_eq!(
        (&said["allowed"], &said["wait_ms"], &said["limit"]),
        (&json!(true), &json!(0), &json!(6))
    );
    assert!(said["remaining"].as_u64().unwrap() <= 5, "{said}");

    // Waits without a bound, and then with one that is longer than needed.
    for _ in 0..3 {
        limit(&urls, "--rate 3/500ms --cost 3").is(0);
    }
}

#[test]
fn the_second_waiter_for_one_unit_is_denied_after_its_wait() {
    let fleet = fleet(1);
    let urls = fleet.urls();
    limit(&urls, "--rate 1/3s").is(0);
    let words = words_of("--rate 1/3s --wait 4s");
    let both = [0, 1].map(|_| Running::start(quorate(&urls, &words)));
    let mut both = both.map(Running::done);
    both.sort_by_key(|done| done.code);
    let [first, second] = both;
    first.is(0);
    let second = second.is(75).says("a longer --wait waits for it");
    // The wait, and the time of the process on a busy machine.
    assert!(
        second.took >= ms(4000) && second.took < ms(4000 + 2000),
        "{second:?}"
    );
}

#[test]
fn with_v_a_waiting_call_says_what_it_waits_for() {
    let fleet = fleet(1);
    let urls = fleet.urls();
    limit(&urls, "--rate 1/6s").is(0);
    limit(&urls, "--rate 1/6s -v -- echo ran")
        .is(0)
        .says("quorate: waiting for \"api\": the limit of 1 in 6 s has no room for 1 more; there is room in ")
        .prints("ran");
}

#[test]
fn several_rates_hold_together() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let both = "--rate 6/20s --rate 4/2s --no-wait";
    limit(&urls, &format!("{both} --cost 5"))
        .is(64)
        .says("quorate: --cost 5 exceeds the limit of 4 in 2 s and 6 in 20 s");
    let said = limit(&urls, &format!("{both} --cost 4 --json"))
        .is(0)
        .json();
    assert_eq!(
        said,
        json!({"name": "api", "allowed": true, "wait_ms": 0, "remaining": 0, "limit": 4})
    );
    limit(&urls, both).is(75).says("4 in 2 s and 6 in 20 s");
    // The order does not matter.
    let began = Instant::now();
    limit(&urls, "--rate 4/2s --rate 6/20s --cost 2 --wait 10s").is(0);
    // This is far less than the 20 s of the rate that still has room.
    assert!(began.elapsed() < ms(8000), "{:?}", began.elapsed());
    let error = limit(&urls, &format!("{both} --json")).is(75).json_error();
    assert!(error["wait_ms"].as_u64().unwrap() > 3000, "{error}");
}

#[test]
fn fewer_units_than_servers() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    limit(&urls, "--rate 2/20s --no-wait").is(0);
    let said = limit(&urls, "--rate 2/20s --no-wait --json").is(0).json();
    assert_eq!((&said["remaining"], &said["limit"]), (&json!(0), &json!(2)));
    limit(&urls, "--rate 2/20s --no-wait")
        .is(75)
        .says("the limit of 2 in 20 s has no room for 1 more");
}

#[test]
fn five_of_twelve_concurrent_checks_are_allowed() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let words = words_of("--rate 5/20s --no-wait -- echo ran");
    let all: Vec<Running> = (0..12)
        .map(|_| Running::start(quorate(&urls, &words)))
        .collect();
    let all: Vec<Done> = all.into_iter().map(Running::done).collect();
    let ran = all.iter().filter(|done| done.out == "ran\n");
    assert_eq!(ran.clone().count(), 5, "{all:#?}");
    assert!(ran.clone().all(|done| done.code == 0), "{all:#?}");
    let denied = all.iter().filter(|done| done.code == 75).count();
    assert_eq!(denied, 7, "{all:#?}");
}

// ---- errors ---------------------------------------------------------------------------------

#[test]
fn a_bad_rate_exits_64_with_a_hint() {
    let urls = nowhere();
    for bad in ["5", "0/s", "many/s", "5/m", "5/50ms", "5/25h"] {
        limit(&urls, &format!("--rate {bad}"))
            .is(64)
            .says(&format!("invalid value '{bad}' for '--rate <N/PERIOD>'"))
            .says("a rate is N/PERIOD, as in 2000/min, 50/s or 3/10m");
    }
    run(&urls, &["limit", "api"])
        .is(64)
        .says("--rate <N/PERIOD>");
    let five = "--rate 1/s --rate 2/min --rate 3/h --rate 4/d --rate 5/10m";
    limit(&urls, five)
        .is(64)
        .says("quorate: the quota has 5 intervals, but at most 4 are allowed");
    limit(&urls, "--rate 5/s --cost 6")
        .is(64)
        .says("quorate: --cost 6 exceeds the limit of 5 in 1 s");
    limit(&urls, "--rate 5/s --cost 0").is(64);
    limit(&urls, "--rate 5/s --wait 1s --no-wait").is(64);
    limit(&urls, "--rate 5/s --on-outage maybe").is(64);
    run(&urls, &["limit", "", "--rate", "5/s"]).is(64);
    let help = run(&[], &["limit", "--help"]).is(0);
    help.prints("QUORATE_NAME").prints("2000/min --rate 50/s");
}

#[test]
fn without_servers_the_on_outage_option_decides() {
    let urls = nowhere();
    for rate in ["--rate 50/s", "--rate 2/s"] {
        let done = limit(&urls, &format!("{rate} -- echo ran"))
            .is(69)
            .says("quorate: \"api\": too few nodes can tell whether there is room")
            .says("quorate:   127.0.0.1:1: ");
        assert_eq!(done.out, "");
        let error = limit(&urls, &format!("{rate} --json")).is(69).json_error();
        assert_eq!(error["error"], "no_quorum", "{error}");

        limit(&urls, &format!("{rate} --on-outage deny --no-wait"))
            .is(75)
            .says("quorate: \"api\": no server can tell whether the limit of ")
            .says(", and --on-outage deny treats that as no room");
        let done = limit(
            &urls,
            &format!("{rate} --on-outage deny --wait 2s -- echo ran"),
        )
        .is(75);
        assert_eq!(done.out, "");
        limit(&urls, &format!("{rate} --on-outage allow -- echo ran"))
            .is(0)
            .prints("ran");
        let said = limit(&urls, &format!("{rate} --on-outage allow --json"));
        let said = said.is(0).json();
        assert_eq!(
            (&said["allowed"], &said["remaining"]),
            (&json!(true), &json!(null))
        );
    }
}

#[test]
fn one_server_that_is_left_gives_its_share() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    fleet[0].kill9();
    fleet[1].kill9();
    limit(&urls, "--rate 18/20s --cost 6 --no-wait").is(0);
    limit(&urls, "--rate 18/20s --no-wait").is(75);
    limit(&urls, "--rate 2/20s --no-wait").is(69);
}

#[test]
fn a_hanging_server_delays_a_call_by_one_node_timeout_at_most() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    fleet[0].sigstop();
    // The shares of two of three servers, and the whole of a small limit.
    for (rate, times) in [("18/20s --cost 3", 4), ("6/20s", 6)] {
        for _ in 0..times {
            let done = limit(&urls, &format!("--rate {rate} --no-wait -- echo ran")).is(0);
            // A node timeout of 500 ms, and the time of the process on a busy machine.
            assert!(done.took < ms(500 + 1000), "{:?}", done.took);
        }
        limit(&urls, &format!("--rate {rate} --no-wait")).is(75);
    }
    fleet[0].sigcont();
}

/// Two of three hang, and one well server can answer for its share.
#[test]
fn one_well_server_answers_before_two_hanging_ones_are_given_up() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    fleet[0].sigstop();
    fleet[1].sigstop();
    // A dial would be given up after this time.
    let words = "--rate 90/20s --cost 3 --no-wait --dial-timeout 20s --connect-timeout 20s";
    for more in ["-- echo ran", "--on-outage allow -- echo ran"] {
        let done = limit(&urls, &format!("{words} {more}")).is(0).prints("ran");
        assert!(done.took < ms(10_000), "{:?}", done.took);
    }
    // A small limit needs a majority.
    limit(&urls, "--rate 3/20s --no-wait --dial-timeout 1s").is(69);
    fleet[0].sigcont();
    fleet[1].sigcont();
}

#[test]
fn servers_that_may_have_forgotten_units_give_none() {
    let fleet = Fleet::start(3, Kind::Redis);
    let done = limit(&fleet.urls(), "--rate 50/s --no-wait")
        .is(69)
        .says("quorate: \"api\": the rate limiter is starting up")
        .says("try again in ")
        .says("`quorate bootstrap --new`");
    assert_eq!(done.err.lines().count(), 1, "{done:#?}");
    // For a limit per hour a server must be watched for longer than an hour. The quarantine is much shorter.
    limit(&fleet.urls(), "--rate 50/h --wait 50s")
        .is(69)
        .says("try again in 1 h 6 min");
}

#[test]
fn a_quarantine_that_ends_within_the_wait_is_waited_for() {
    let fleet = Fleet::start(3, Kind::Redis);
    // A quarantine of 3.01 s.
    let short = "--rate 50/s --max-ttl 2s --restart-margin 990ms";
    limit(&fleet.urls(), &format!("{short} --wait 1s"))
        .is(69)
        .says("the rate limiter is starting up");
    let done = limit(&fleet.urls(), &format!("{short} --wait 20s -v -- echo ran")).is(0);
    assert_eq!(done.out, "ran\n");
    assert!(
        done.err
            .contains("waiting for \"api\": the rate limiter is starting up"),
        "{done:?}"
    );
    // Now all servers vote, and a limit per hour has no share yet.
    run(
        &fleet.urls(),
        &["nodes", "--max-ttl", "2s", "--restart-margin", "990ms"],
    )
    .is(0)
    .prints("it gives units for intervals of up to ");
}

#[test]
fn show_prints_the_remaining_units_and_takes_none() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    for _ in 0..2 {
        let shown = limit(&urls, "--rate 4/20s --show").is(0);
        assert_eq!(shown.out, "4 of 4 are left of the limit of 4 in 20 s\n");
    }
    limit(&urls, "--rate 4/20s --cost 3").is(0);
    let shown = limit(&urls, "--rate 4/20s --show --json").is(0).json();
    assert_eq!(
        (&shown["remaining"], &shown["limit"]),
        (&json!(1), &json!(4))
    );
    limit(&urls, "--rate 4/20s --show --no-wait").is(64);
    limit(&urls, "--rate 4/20s --show -- echo").is(64);
}

// ---- the command ----------------------------------------------------------------------------

#[test]
fn the_command_replaces_the_quorate_process() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let script = "echo $$ $QUORATE_NAME nodes=$QUORATE_NODES; exit 7";
    let words = words_of("--rate 50/s -- sh -c");
    let running = Running::start(quorate(&urls, &[&words[..], &[script]].concat()));
    let pid = running.child.id();
    let done = running.done().is(7);
    assert_eq!(done.out, format!("{pid} api nodes=\n"));
    assert_eq!(done.err, "");

    // The command can ask again itself, and the lock around it stays in its environment.
    let inner = [
        command::QUORATE,
        "limit",
        "b",
        "--rate",
        "9/s",
        "--",
        "sh",
        "-c",
        "echo $QUORATE_NAME:$QUORATE_TOKEN",
    ];
    let words = words_of("--rate 50/s --keep-env --");
    run(&urls, &[&words[..], &inner].concat())
        .is(0)
        .prints("b:\n");
    let outer = ["lock", "a", "--keep-env", "--"];
    let done = run(&urls, &[&outer[..], &inner].concat()).is(0);
    assert!(!done.out.ends_with(":\n"), "{done:#?}");

    limit(&urls, "--rate 50/s -- /no/such/command")
        .is(127)
        .says("quorate: \"/no/such/command\" was not found");
    limit(&urls, "--rate 50/s -- /")
        .is(126)
        .says("cannot be run");
}

#[test]
fn a_signal_reaches_the_command() {
    let fleet = fleet(1);
    let words = words_of("--rate 50/s -- sh -c");
    let script = "trap 'echo term; exit 3' TERM; echo up; while :; do sleep 0.02; done";
    let mut running = Running::start(quorate(&fleet.urls(), &[&words[..], &[script]].concat()));
    running.until("up");
    running.signal(Signal::TERM);
    running.until("term");
    running.done().is(3);
}

#[test]
fn a_signal_ends_the_wait() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    limit(&urls, "--rate 5/30s --cost 5").is(0);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        if ignored(signal) {
            continue;
        }
        let words = words_of("--rate 5/30s -- echo ran");
        let running = Running::start(quorate(&urls, &words));
        running.until_caught(signal);
        std::thread::sleep(ms(1000));
        running.signal(signal);
        let told = Instant::now();
        let done = running
            .done()
            .is(code)
            .says("quorate: ended while waiting for room; nothing was run");
        // The bound is the time that a process takes to end on a busy machine. The wait would last for 30 s.
        assert!(told.elapsed() < ms(10_000), "{:?}", told.elapsed());
        assert_eq!(done.out, "");
    }
}
