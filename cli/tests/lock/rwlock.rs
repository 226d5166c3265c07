//! `quorate lock` with `--read`, with `--write` and with several names, on real servers. Readers run side by side, and
//! a writer runs alone. Sets that overlap run one after the other. No command runs on without its lock.

use std::time::Instant;

use crate::command::{PATIENCE, Running, STAY, Wire, fleet, leftovers, ms, quorate, run};
use rustix::process::Signal;
use serde_json::Value;

/// Waits until every node has this many readers and this many waiting writers. Returns what is known of the read-write
/// lock then.
fn seen(urls: &[String], reading: u64, waiting: u64) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = run(urls, &["inspect", "prices", "--json"]).is(0).json();
        let everywhere = |node: &Value| {
            let known = &node["rwlock"];
            (&known["reading"], &known["waiting"]) == (&reading.into(), &waiting.into())
        };
        if seen["nodes"].as_array().unwrap().iter().all(everywhere) {
            return seen["rwlock"].clone();
        }
        assert!(Instant::now() < end, "{seen}");
    }
}

/// `quorate lock prices` with these words, and the command that it runs.
fn prices<'w>(words: &[&'w str], command: &[&'w str]) -> Vec<&'w str> {
    [&["lock", "prices"], words, &["--"], command].concat()
}

// ---- readers and a writer -------------------------------------------------------------------

#[test]
fn two_read_side_by_side_and_a_writer_is_alone() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let read = ["prices", "--read", "--label", "ann"];
    let readers = [0, 1].map(|_| {
        let reader = wire.lock(&urls, &read, STAY);
        wire.expect("up");
        reader
    });
    seen(&urls, 2, 0);

    let done = run(&urls, &prices(&["--write", "--no-wait"], &["echo", "ran"]))
        .is(75)
        .says("quorate: \"prices\" is held for reading by ann and one more; without --no-wait this waits for it");
    assert_eq!(done.out, "");
    let error = run(
        &urls,
        &prices(&["--write", "--no-wait", "--json"], &["true"]),
    );
    let error = error.is(75).json_error();
    assert_eq!(
        (&error["error"], &error["name"]),
        (&"held".into(), &"prices".into())
    );
    assert_eq!(error["holder"]["label"], "ann");
    let done = run(&urls, &prices(&["--write", "--wait", "300ms"], &["true"]))
        .is(75)
        .says("; a longer --wait waits for it");
    // The wait, and the time of the process on a busy machine.
    assert!(
        done.took >= ms(300) && done.took < ms(300 + 2700),
        "{:?}",
        done.took
    );
    // The writer that gave up keeps nobody out any more. The mutex of the same name is another lock.
    run(&urls, &prices(&["--read", "--no-wait"], &["true"])).is(0);
    run(&urls, &prices(&["--no-wait"], &["true"])).is(0);

    // A waiting writer keeps new readers out, and gets the lock when the last reader leaves.
    let words = prices(
        &["--write", "-v", "--label", "eve"],
        &["sh", "-c", "echo wrote; exit 7"],
    );
    let writer = Running::start(quorate(&urls, &words));
    seen(&urls, 2, 1);
    run(&urls, &prices(&["--read", "--no-wait"], &["true"]))
        .is(75)
        .says("quorate: \"prices\" is kept for the waiting writer eve; without --no-wait");
    std::thread::sleep(ms(600));
    for reader in readers {
        reader.signal(Signal::TERM);
        reader.done().is(143);
    }
    writer
        .done()
        .is(7)
        .prints("wrote\n")
        .says("quorate: waiting for \"prices\", held for reading by ann and one more\n");
    seen(&urls, 0, 0);

    let wire = Wire::new();
    let writer = wire.lock(&urls, &["prices", "--write", "--label", "eve"], STAY);
    wire.expect("up");
    for side in ["--read", "--write"] {
        run(&urls, &prices(&[side, "--no-wait"], &["true"]))
            .is(75)
            .says("quorate: \"prices\" is held for writing by eve, for ");
    }
    writer.signal(Signal::TERM);
    writer.done().is(143);
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

#[test]
fn a_writers_token_grows_and_a_readers_is_an_epoch() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let token = |side: &str| {
        let script = "echo $QUORATE_NAME:$QUORATE_TOKEN";
        let done = run(&urls, &prices(&[side], &["sh", "-c", script])).is(0);
        assert_eq!(done.err, "");
        let token = done.out.trim().strip_prefix("prices:").unwrap();
        token.parse::<u64>().unwrap()
    };
    let mut last = 0;
    for _ in 0..3 {
        let (wrote, read) = (token("--write"), token("--read"));
        assert!(wrote > last, "{wrote} after {last}");
        assert!(read >= wrote, "{read} after {wrote}");
        last = read;
    }
}

#[test]
fn a_readers_command_dies_with_quorate_and_its_lock_ends_with_its_ttl() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let reader = wire.lock(&urls, &["prices", "--read", "--ttl", "6s"], STAY);
    wire.expect("up");
    reader.signal(Signal::KILL);
    let killed = Instant::now();
    let (dead, line) = wire.next();
    assert_eq!(line, None, "the command is dead");
    // Half of the ttl: a renewal may have been sent just before.
    assert!(dead - killed < ms(6000 / 2), "{:?}", dead - killed);
    let denied = run(&urls, &prices(&["--write", "--no-wait"], &["true"])).is(75);
    run(
        &urls,
        &prices(&["--write", "--wait", "15s"], &["echo", "ran"]),
    )
    .is(0)
    .prints("ran");
    // A ttl of 6 s from the last renewal, which was at most a third of it earlier. Then a process asks, and ends.
    let took = killed.elapsed();
    assert!(took > ms(6000 / 2), "{took:?}");
    assert!(took < ms(6000 + 1000) + denied.took * 3, "{took:?}");
}

#[test]
fn a_signal_ends_the_wait_and_readers_come_in_again() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let reader = wire.lock(&urls, &["prices", "--read"], STAY);
    wire.expect("up");
    let waits = Running::start(quorate(&urls, &prices(&["--write"], &["echo", "ran"])));
    seen(&urls, 1, 1);
    waits.signal(Signal::TERM);
    let done = waits
        .done()
        .is(143)
        .says("quorate: ended while waiting for the lock; nothing was run");
    assert_eq!(done.out, "");
    run(&urls, &prices(&["--read", "--wait", "1s"], &["true"])).is(0);
    reader.signal(Signal::TERM);
    reader.done().is(143);
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

#[test]
fn the_command_ends_after_an_eviction_or_max_hold() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let reader = wire.lock(&urls, &["prices", "--read", "--ttl", "1s"], STAY);
    wire.expect("up");
    run(&urls, &["evict", "prices", "--yes"])
        .is(0)
        .prints("\"prices\" is free now; it was held for reading by ")
        .prints(". The holder learns of it at its next renewal and may read until then\n");
    reader
        .done()
        .is(79)
        .says("quorate: the read lock \"prices\" was lost while the command ran: ");
    let hangs = ["--write", "--ttl", "1s", "--max-hold", "700ms"];
    run(&urls, &prices(&hangs, &["sleep", "60"]))
        .is(79)
        .says("quorate: the write lock \"prices\" was held for as long as --max-hold allows");
    seen(&urls, 0, 0);
}

// ---- several names --------------------------------------------------------------------------

#[test]
fn all_names_or_none_in_any_order() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let script = "echo \"$QUORATE_NAME\" >&9; echo $QUORATE_TOKEN >&9; exec sleep 60";
    let both = wire.lock(&urls, &["b", "a", "b", "--label", "ann"], script);
    wire.expect("a, b");
    let token: u64 = wire.next().1.unwrap().parse().unwrap();
    let seen = run(&urls, &["inspect", "b", "--json"]).is(0).json();
    assert_eq!(seen["holder"]["label"], "ann");
    assert!(seen["newest_token"].as_u64() >= Some(token), "{seen}");

    let overlap = ["lock", "c", "b", "--no-wait"];
    let done = run(&urls, &[&overlap[..], &["--", "echo", "ran"]].concat())
        .is(75)
        .says("quorate: \"b, c\" cannot be taken: \"b\" is held by ann, for ")
        .says("; without --no-wait this waits for them");
    assert_eq!(done.out, "");
    let error = run(&urls, &[&overlap[..], &["--json", "--", "true"]].concat());
    let error = error.is(75).json_error();
    assert_eq!(
        (&error["error"], &error["name"]),
        (&"held".into(), &"b, c".into())
    );
    assert_eq!(
        (&error["which"], &error["holder"]["label"]),
        (&"b".into(), &"ann".into())
    );
    run(&urls, &["lock", "a", "--no-wait", "--", "true"])
        .is(75)
        .says("\"a\" is held by ann");
    // A name that was not granted is not held.
    run(&urls, &["lock", "c", "--no-wait", "--", "true"]).is(0);
    run(&urls, &["lock", "c", "d", "--no-wait", "--", "true"]).is(0);

    let waits = [
        "lock",
        "c",
        "b",
        "-v",
        "--",
        "sh",
        "-c",
        "echo $QUORATE_TOKEN; exit 3",
    ];
    let waits = Running::start(quorate(&urls, &waits));
    std::thread::sleep(ms(1000));
    both.signal(Signal::TERM);
    both.done().is(143);
    let done = waits
        .done()
        .is(3)
        .says("quorate: waiting for \"b, c\", \"b\" is held by ann\n");
    assert!(done.out.trim().parse::<u64>().unwrap() > token, "{done:#?}");
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

#[test]
fn sets_that_overlap_run_one_after_the_other() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let dir = tempfile::tempdir().unwrap();
    let busy = dir.path().join("busy");
    // The script makes a directory. Two scripts at once would fail.
    let script = format!(
        "mkdir '{0}' || exit 9; sleep 0.05; rmdir '{0}' || exit 9",
        busy.display()
    );
    let sets = [["a", "b"], ["b", "a"], ["b", "c"], ["c", "b"], ["b", "d"]];
    let all = sets.iter().cycle().take(15).map(|[one, other]| {
        let words = ["lock", one, other, "--", "sh", "-c", &script];
        Running::start(quorate(&urls, &words))
    });
    for running in all.collect::<Vec<_>>() {
        running.done().is(0);
    }
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

#[test]
fn one_evicted_name_ends_the_command_of_the_set() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let both = wire.lock(&urls, &["a", "b", "--ttl", "1s", "--json"], STAY);
    wire.expect("up");
    run(&urls, &["evict", "b", "--yes"]).is(0);
    let error = both.done().is(79).json_error();
    assert_eq!(
        (&error["error"], &error["name"]),
        (&"lost".into(), &"a, b".into())
    );
    let says = "the lock on \"a, b\" was lost while the command ran: ";
    assert!(
        error["message"].as_str().unwrap().starts_with(says),
        "{error}"
    );
    run(&urls, &["lock", "b", "a", "--wait", "5s", "--", "true"]).is(0);
}

// ---- wrong use ------------------------------------------------------------------------------

#[cfg(feature = "consul")]
#[test]
fn wrong_usage_exits_64_with_a_hint() {
    let urls = ["redis://127.0.0.1:1".to_owned()];
    let consul = ["--consul", "http://127.0.0.1:1", "--", "true"];
    let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (words, says) in [
        (
            vec!["a", "--read", "--write", "--", "true"],
            "'--read' cannot be used with '--write'",
        ),
        (
            vec!["a", "b", "--read", "--", "true"],
            "--read takes one name",
        ),
        (
            [&["a", "--write"], &consul[..]].concat(),
            "--write cannot be used with --consul: ",
        ),
        (
            [&["a", "b"], &consul[..]].concat(),
            "--consul takes one name: ",
        ),
        (
            [&many[..], &["--", "true"]].concat(),
            "65 names are too many",
        ),
        (vec!["a", "", "--", "true"], "the name is empty"),
        (vec!["--", "true"], "<NAME>..."),
        (
            vec!["nightly", "./report.sh"],
            "put `--` before the whole command",
        ),
        (
            vec!["nightly", "rsync", "-a", "x"],
            "put `--` before the whole command",
        ),
        (
            vec!["nightly", "rsync", "--", "-a", "x"],
            "`-a` is not a command: ",
        ),
    ] {
        let words = [&["lock"], &words[..]].concat();
        let done = run(&urls, &words).is(64).says(says);
        assert!(done.err.starts_with("quorate: "), "{done:#?}");
        assert_eq!(done.out, "");
        let error = run(&urls, &[&["--json"], &words[..]].concat());
        let error = error.is(64).json_error();
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    // A word in the wrong place that may be a password is not repeated.
    let done = run(&urls, &["lock", "a", "b", "--", "-redis://me:pw@h"]).is(64);
    assert!(!done.err.contains("pw"), "{done:#?}");
    // A semaphore has one name, and it is not a read-write lock.
    run(
        &urls,
        &["semaphore", "a", "b", "--limit", "1", "--", "true"],
    )
    .is(64);
    run(
        &urls,
        &["semaphore", "a", "--read", "--limit", "1", "--", "true"],
    )
    .is(64);
    run(&[], &["lock", "--help"])
        .is(0)
        .prints("Usage: quorate lock [OPTIONS] <NAME>... -- <CMD>...")
        .prints("IT MUST NOT BE USED TO WRITE");
}
