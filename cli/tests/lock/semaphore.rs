//! `quorate semaphore` on real servers. At most as many commands run at once as it has slots, each is told its slot,
//! and none runs on without its slot.

use std::time::Instant;

use crate::command::{self, PATIENCE, Running, STAY, Wire, fleet, ignored, ms, quorate, run};
use crate::support::Stalls;
use rustix::process::Signal;
use serde_json::Value;

/// Waits until this many slots are taken and this many callers wait. Returns what is known of the semaphore then.
fn seen(urls: &[String], taken: u64, waiting: u64) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = run(urls, &["inspect", "pool", "--json"]).is(0).json();
        let everywhere = |node: &Value| {
            let known = &node["semaphore"];
            (&known["taken"], &known["waiting"]) == (&taken.into(), &waiting.into())
        };
        if seen["nodes"].as_array().unwrap().iter().all(everywhere) {
            return seen["semaphore"].clone();
        }
        assert!(Instant::now() < end, "{seen}");
    }
}

// ---- slots ----------------------------------------------------------------------------------

#[test]
fn each_command_knows_its_slot_and_a_token_that_grows() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let script = "echo $QUORATE_NAME:$QUORATE_SLOT:$QUORATE_TOKEN; exit 7";
    let words = [
        "semaphore",
        "my pool",
        "--limit",
        "1",
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut last = 0;
    for _ in 0..3 {
        let done = run(&urls, &words).is(7);
        let mut said = done.out.trim().split(':');
        assert_eq!(said.next(), Some("my pool"));
        assert_eq!(said.next(), Some("0"));
        let token: u64 = said.next().unwrap().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(done.err, "");
    }
    // A lock inside of it has no slot, and does not show the slot of the semaphore as its own.
    let inner = "echo slot=$QUORATE_SLOT";
    let words = ["semaphore", "my pool", "--limit", "1", "--keep-env", "--"];
    let nested = [command::QUORATE, "lock", "a", "--", "sh", "-c", inner];
    let done = run(&urls, &[&words[..], &nested[..]].concat()).is(0);
    assert_eq!(done.out, "slot=\n");
}

#[test]
fn two_commands_run_in_two_slots_and_the_third_queues() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let pool = ["pool", "--limit", "2"];
    let slot = "echo $QUORATE_SLOT >&9; exec sleep 60";
    let first = wire.semaphore(&urls, &pool, slot);
    let one = wire.next().1.unwrap();
    let second = wire.semaphore(&urls, &pool, slot);
    let other = wire.next().1.unwrap();
    let mut both = [one.clone(), other];
    both.sort();
    assert_eq!(both, ["0", "1"]);

    let try_now = ["semaphore", "pool", "--limit", "2", "--no-wait"];
    let done = run(&urls, &[&try_now[..], &["--", "echo", "ran"]].concat())
        .is(75)
        .says("quorate: \"pool\": all 2 slots are taken; without --no-wait this waits for one");
    assert_eq!(done.out, "");
    let error = run(&urls, &[&try_now[..], &["--json", "--", "true"]].concat());
    let error = error.is(75).json_error();
    assert_eq!(
        (&error["error"], &error["name"]),
        (&"held".into(), &"pool".into())
    );
    assert_eq!((&error["limit"], &error["taken"]), (&2.into(), &2.into()));
    let wait = ["semaphore", "pool", "--limit", "2", "--wait", "300ms"];
    let done = run(&urls, &[&wait[..], &["--", "echo", "ran"]].concat())
        .is(75)
        .says("all 2 slots are taken; a longer --wait waits for one");
    // The wait, and the time of the process on a busy machine.
    assert!(
        done.took >= ms(300) && done.took < ms(300 + 1700),
        "{:?}",
        done.took
    );

    // Without a bound it waits for its turn, and with -v it prints what it waits for.
    let words = ["semaphore", "pool", "--limit", "2", "-v", "--", "sh", "-c"];
    let waiter = [&words[..], &["echo slot=$QUORATE_SLOT"]].concat();
    let waiter = Running::start(quorate(&urls, &waiter));
    seen(&urls, 2, 1);
    std::thread::sleep(ms(600));
    first.signal(Signal::TERM);
    first.done().is(143);
    let served = waiter.done().is(0);
    served
        .prints(&format!("slot={one}\n"))
        .says("quorate: waiting for \"pool\", all 2 slots are taken\n");
    second.signal(Signal::TERM);
    second.done().is(143);
    assert_eq!(seen(&urls, 0, 0)["limit"], 2);
}

#[test]
fn a_wrong_limit_is_64() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let pool = |limit: &'static str| ["semaphore", "pool", "--limit", limit, "--", "true"];
    run(&urls, &["semaphore", "pool", "--", "true"])
        .is(64)
        .says("--limit <N>");
    run(&urls, &pool("0"))
        .is(64)
        .says("quorate: a limit of 0 is not allowed: a semaphore has 1 to 65536 slots");
    run(&urls, &pool("65537")).is(64).says("1 to 65536 slots");
    run(&urls, &pool("many"))
        .is(64)
        .says("invalid value 'many'");

    run(&urls, &pool("3")).is(0);
    run(&urls, &pool("4"))
        .is(64)
        .says("quorate: \"pool\" has a limit of 3, and 4 was asked for");
    let error = run(&urls, &[&["--json"], &pool("4")[..]].concat());
    let error = error.is(64).json_error();
    assert_eq!(
        (&error["error"], &error["limit"]),
        (&"limit_conflict".into(), &3.into())
    );
    run(&urls, &pool("3")).is(0);
}

#[test]
fn the_help_says_what_differs_from_a_lock() {
    let help = run(&[], &["semaphore", "--help"]).is(0);
    help.prints("QUORATE_SLOT").prints("quorate lock --help");
}

// ---- signals, and loss of the slot ----------------------------------------------------------

#[test]
fn a_signal_ends_the_wait_and_nothing_is_left() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let holder = wire.semaphore(&urls, &["pool", "--limit", "1"], STAY);
    wire.expect("up");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        if ignored(signal) {
            continue;
        }
        let words = ["semaphore", "pool", "--limit", "1", "--", "echo", "ran"];
        let waiter = Running::start(quorate(&urls, &words));
        seen(&urls, 1, 1);
        waiter.signal(signal);
        let done = waiter
            .done()
            .is(code)
            .says("quorate: ended while waiting for a slot; nothing was run");
        assert_eq!(done.out, "");
        seen(&urls, 1, 0);
    }
    holder.signal(Signal::TERM);
    holder.done().is(143);
    seen(&urls, 0, 0);
}

#[test]
fn the_command_dies_with_quorate_and_its_slot_is_free_after_the_ttl() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let pool = ["pool", "--limit", "1", "--ttl", "6s"];
    let holder = wire.semaphore(&urls, &pool, STAY);
    wire.expect("up");
    holder.signal(Signal::KILL);
    let killed = Instant::now();
    let (dead, line) = wire.next();
    assert_eq!(line, None, "the command is dead");
    // Half of the ttl.
    assert!(dead - killed < ms(6000 / 2), "{:?}", dead - killed);
    run(
        &urls,
        &[
            "semaphore",
            "pool",
            "--limit",
            "1",
            "--no-wait",
            "--",
            "true",
        ],
    )
    .is(75)
    .says("\"pool\": its only slot is taken");
    let next = [
        "semaphore",
        "pool",
        "--limit",
        "1",
        "--wait",
        "15s",
        "--",
        "echo",
        "ran",
    ];
    run(&urls, &next).is(0).prints("ran");
    // A ttl of 6 s from the last renewal, which was at most a third of it earlier.
    assert!(killed.elapsed() > ms(6000 / 2), "{:?}", killed.elapsed());
}

#[test]
fn without_a_majority_the_command_is_dead_before_its_slot_expires() {
    let fleet = fleet(3);
    let ttl = ms(8000);
    let machine = Stalls::watch();
    let wire = Wire::new();
    let words = ["pool", "--limit", "2", "--ttl", "8s", "--json"];
    // The script does not obey SIGTERM.
    let script = "trap 'echo term >&9' TERM; echo up >&9; while :; do sleep 0.02; done";
    let running = wire.semaphore(&fleet.urls(), &words, script);
    // The slot was asked for before that, and it is renewed only after a third of the ttl.
    let up = wire.expect("up");
    fleet[0].sigstop();
    fleet[1].sigstop();
    assert!(up.elapsed() < ttl / 4, "too slow to test anything");
    let told = wire.expect("term");
    let (dead, line) = wire.next();
    assert_eq!(line, None, "the command is dead");
    let end = up + ttl - (ttl / 100 + ms(2));
    let late = dead.saturating_duration_since(end);
    assert!(late <= machine.longest(), "{late:?} too late");
    assert!(told > end - ttl / 10, "{:?} too early", end - told);
    fleet[0].sigcont();
    fleet[1].sigcont();
    let error = running.done().is(79).json_error();
    assert_eq!(
        (&error["error"], &error["name"]),
        (&"lost".into(), &"pool".into())
    );
    let slot = &error["slot"];
    let says =
        format!("slot {slot} of \"pool\" was lost while the command ran: it could not be renewed");
    assert!(
        error["message"].as_str().unwrap().starts_with(&says),
        "{error}"
    );
}

#[test]
fn a_command_that_hangs_loses_its_slot_after_max_hold() {
    let fleet = fleet(1);
    let words = [
        "--limit",
        "1",
        "--ttl",
        "1s",
        "--max-hold",
        "700ms",
        "--",
        "sleep",
        "60",
    ];
    let done = run(
        &fleet.urls(),
        &[&["semaphore", "pool"], &words[..]].concat(),
    )
    .is(79)
    .says("quorate: slot 0 of \"pool\" was held for as long as --max-hold allows");
    // The longest hold, and the time of the process on a busy machine.
    assert!(done.took < ms(700 + 2300), "{:?}", done.took);
    seen(&fleet.urls(), 0, 0);
}

// ---- operators -----------------------------------------------------------------------------

/// Its holder is told, and the next waiter gets the slot.
#[test]
fn a_slot_is_evicted_and_no_other() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let pool = ["pool", "--limit", "2", "--ttl", "8s"];
    let script = "trap 'echo over $QUORATE_SLOT >&9; exit 0' TERM; echo $QUORATE_SLOT >&9; while :; do sleep 0.02; done";
    let mut holders = Vec::new();
    for _ in 0..2 {
        holders.push(wire.semaphore(&urls, &pool, script));
        wire.next().1.unwrap();
    }
    let waits = wire.semaphore(&urls, &pool, STAY);
    seen(&urls, 2, 1);

    let done = run(&urls, &["evict", "pool", "--yes"]).is(64);
    done.says("\"pool\" is a semaphore, and 2 slots are taken: slot 0 by ")
        .says("`quorate evict NAME --slot 0 --yes`");
    let asked = run(&urls, &["evict", "pool", "--slot", "1"]).is(64);
    asked.says("quorate: nothing was done. With --yes these slots of \"pool\" would be freed on all nodes and go to the first waiters: slot 1 (held by ");
    assert_eq!(seen(&urls, 2, 1)["taken"], 2);

    let words = ["evict", "pool", "--slot", "1", "--yes", "--json"];
    let done = run(&urls, &words).is(0).json();
    assert_eq!(
        (&done["evicted"], &done["slots"][0]["slot"]),
        (&true.into(), &1.into())
    );
    assert!(done["slots"][0]["holder"]["label"].is_string(), "{done}");
    let mut said = [wire.next().1.unwrap(), wire.next().1.unwrap()];
    said.sort();
    assert_eq!(
        said,
        ["over 1", "up"],
        "the holder of slot 1 was told, the next one runs"
    );
    assert_eq!(seen(&urls, 2, 0)["taken"], 2, "slot 0 was left alone");

    run(&urls, &["evict", "other", "--slot", "0", "--yes"])
        .is(0)
        .prints("slot 0 of \"other\" was free already");
    drop((holders, waits));
}

#[test]
fn a_resize_applies_to_all_programs_and_errors_suggest_it() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let _holder = wire.semaphore(&urls, &["pool", "--limit", "1"], STAY);
    wire.expect("up");
    // This program already runs, and follows the resize.
    let _waits = wire.semaphore(&urls, &["pool", "--limit", "1"], STAY);
    seen(&urls, 1, 1);
    run(&urls, &["resize", "pool", "--limit", "2"])
        .is(0)
        .prints("\"pool\" has 2 slots now; it had 1\n");
    wire.expect("up");
    run(&urls, &["semaphore", "pool", "--limit", "1", "--", "true"])
        .is(64)
        .says(
            "quorate: \"pool\" has a limit of 2, and 1 was asked for: use --limit 2, or change it for all programs: \
             `quorate resize NAME --limit 1`\n",
        );
    let done = run(&urls, &["resize", "new", "--limit", "7", "--json"])
        .is(0)
        .json();
    assert_eq!((&done["limit"], &done["before"]), (&7.into(), &Value::Null));
    run(&urls, &["resize", "pool", "--limit", "0"])
        .is(64)
        .says("a limit of 0 is not allowed");
    fleet[2].kill9();
    run(&urls, &["resize", "pool", "--limit", "3"])
        .is(69)
        .says("not every server has answered, so the limit may be changed on some of them only");
}
