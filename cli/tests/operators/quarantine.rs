//! The `quorate` command during a quarantine: `raise-terms` waits for its end, `bootstrap` is told that the servers are
//! new, short commands end it together, `nodes --wait` waits, and `watch` witnesses it as a service does.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::{
    Done, PATIENCE, QUORATE, Running, fleet, ignored, ms, on_a_terminal, quorate, run,
};
use crate::support::{Fleet, Kind, Server};
use rustix::process::Signal;
use serde_json::Value;

/// A quarantine of 2.01 s.
const SHORT: [&str; 4] = ["--max-ttl", "1s", "--restart-margin", "1s"];
const Z: Duration = ms(2010);
const IF_NEW: &str = "if these servers have never held a lock, `quorate bootstrap --new` admits them within about 7 s";

/// The words of the record on this server.
fn record(server: &Server) -> Vec<String> {
    let text: Option<String> =
        redis::from_redis_value(server.cmd(&["GET", "quorate:boot"])).unwrap();
    text.unwrap_or_default()
        .split(' ')
        .map(str::to_owned)
        .collect()
}

/// The last word of the record: for how many ms this memory was witnessed.
fn witnessed(server: &Server) -> u64 {
    record(server).get(9).map_or(0, |w| w.parse().unwrap())
}

fn all_witnessed(fleet: &Fleet) -> Vec<u64> {
    fleet.iter().map(witnessed).collect()
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come: {what}");
        std::thread::sleep(ms(5));
    }
}

// ---- a look ---------------------------------------------------------------------------------

#[test]
fn looking_at_new_servers_one_by_one_does_not_prevent_bootstrap() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let urls = fleet.urls();
        for one in urls.chunks(1) {
            run(one, &["nodes"]).is(69).prints("quarantined for");
        }
        run(&urls, &["bootstrap", "--new"])
            .is(0)
            .prints("all 3 nodes vote now");
        let _ = run(&urls, &["raise-terms"]).is(0);
        let _ = run(&urls, &["lock", "a", "--", "true"]).is(0);
    }
}

// ---- bootstrap, raise-terms -----------------------------------------------------------------

fn raise_terms<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["raise-terms"], args].concat()
}

#[test]
fn new_servers_are_quarantined_until_bootstrap_new() {
    let fleet = Fleet::start(3, Kind::Redis);
    let urls = fleet.urls();
    run(&urls, &["lock", "a", "--no-wait", "--", "true"])
        .is(69)
        .says(IF_NEW);
    run(&urls, &["-v", "lock", "a", "--wait", "200ms", "--", "true"])
        .is(69)
        .says("waiting for a quarantine to end")
        .says(IF_NEW);
    run(&urls, &["nodes"])
        .is(69)
        .prints("quarantined for")
        .prints("0 of 3 vote")
        .prints(IF_NEW);
    run(&urls, &["bootstrap", "--new"])
        .is(0)
        .prints("all 3 nodes vote now");
    for again in [
        &["raise-terms", "--json"][..],
        &["bootstrap", "--new", "--json"],
    ] {
        let done = run(&urls, again).is(0);
        assert_eq!(done.json()["changed"], false);
        assert_eq!(done.err, "");
    }
    run(&urls, &["nodes"]).is(0).prints("3 of 3 vote");

    // A server that lost its memory is not new, even if it looks new.
    fleet[0].restart_empty();
    run(&urls, &["bootstrap", "--new"])
        .is(69)
        .says("quorate: ")
        .says("votes already");
    let error = run(&urls, &["bootstrap", "--new", "--json"])
        .is(69)
        .json_error();
    assert_eq!(
        (&error["error"], &error["exit"]),
        (&"refused".into(), &69.into())
    );
    let nodes = run(&urls, &["nodes", "--json"]).is(0).json();
    assert_eq!(nodes["nodes"][0]["state"], "quarantined");
    let forced = run(&urls, &["bootstrap", "--force", "--json"]).is(0).json();
    assert_eq!(
        (&forced["changed"], &forced["nodes"][0]["after"]),
        (&true.into(), &"voting".into())
    );

    // A majority is not enough, and the error says so.
    fleet[1].kill9();
    run(&urls, &["bootstrap", "--force"])
        .is(69)
        .says("bootstrap needs every server");
}

/// The state after somebody deleted the records to end a quarantine.
#[test]
fn servers_that_have_given_out_a_lock_are_not_admitted_as_new() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    run(&urls, &["lock", "invoice:42", "--", "true"]).is(0);
    for server in fleet.iter() {
        server.cmd(&["DEL", "quorate:boot", "quorate:open"]);
    }
    for server in [&fleet[0], &fleet[2]] {
        server.cmd(&["DEL", "quorate:c0"]);
    }
    let which = format!(
        "127.0.0.1:{} holds counters, so it has given out locks (\"invoice:42\" is one of them), and \
         these masters are not new: they vote by themselves in ",
        fleet[1].port()
    );
    run(&urls, &["bootstrap", "--new"]).is(69).says(&which);
    let error = run(&urls, &["bootstrap", "--new", "--json"])
        .is(69)
        .json_error();
    assert_eq!(error["error"], "refused");
    assert!(
        error["message"].as_str().unwrap().contains(&which),
        "{error}"
    );
}

#[test]
fn raise_terms_raises_the_fleets_longest_ttl() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let longer = [
        "lock",
        "a",
        "--max-ttl",
        "60s",
        "--ttl",
        "45s",
        "--",
        "true",
    ];
    run(&urls, &longer)
        .is(69)
        .says("`quorate raise-terms --max-ttl`");
    run(&urls, &["raise-terms", "--max-ttl", "60s"])
        .is(0)
        .prints("60.0 s");
    run(&urls, &longer).is(0);
}

#[test]
fn bootstrap_is_not_suggested_while_a_server_votes() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    fleet[0].restart_empty();
    fleet[2].restart_empty();
    for args in [
        &["lock", "a", "--no-wait", "--", "true"][..],
        &["lock", "a", "--wait", "200ms", "--", "true"],
        &["nodes"],
    ] {
        let done = run(&urls, args).is(69);
        let said = format!("{}{}", done.out, done.err);
        assert!(said.contains("the quarantine ends by itself"), "{done:#?}");
        assert!(!said.contains("bootstrap"), "{done:#?}");
    }
}

#[test]
fn raise_terms_waits_for_the_quarantine_and_admits_nothing() {
    let fleet = Fleet::start(3, Kind::Redis);
    let urls = fleet.urls();
    let start = Instant::now();
    let running: Vec<Running> = (0..3)
        .map(|_| Running::start(quorate(&urls, &raise_terms(&SHORT))))
        .collect();
    for running in running {
        let done = running
            .done()
            .is(0)
            .says("waiting for the quarantine: 0 of 3 vote, ")
            .says(" s left; ")
            .says(IF_NEW)
            .prints("all 3 nodes vote now");
        assert_eq!(done.err.lines().count(), 1, "{done:#?}");
        assert!(done.out.lines().nth(1).unwrap().contains("  quarantined  "));
        assert!(start.elapsed() >= Z, "{:?}", start.elapsed());
    }
    // `--new` and `--force` write a history. No history was written here.
    assert!(all_witnessed(&fleet).iter().all(|w| *w < 60_000));
    let again = run(&urls, &raise_terms(&SHORT))
        .is(0)
        .prints("nothing to do");
    assert_eq!(again.err, "");
}

/// The state after a power cut, if some client has met the servers before.
#[test]
fn bootstrap_is_not_suggested_for_servers_that_were_used() {
    let fleet = Fleet::start(3, Kind::Valkey);
    let urls = fleet.urls();
    let nodes = [&["nodes"], &SHORT[..]].concat();
    run(&urls, &nodes).is(69).prints(IF_NEW);
    let mut words = record(&fleet[1]);
    assert_eq!(words[8], "0");
    words[8] = "1".into();
    fleet[1].cmd(&["SET", "quorate:boot", &words.join(" ")]);

    let done = run(&urls, &nodes).is(69);
    assert!(!done.out.contains("bootstrap"), "{done:#?}");
    done.prints("the quarantine ends by itself: enough will vote in");
    let done = run(&urls, &raise_terms(&SHORT)).is(0);
    assert!(!done.err.contains("bootstrap"), "{done:#?}");
    done.says("waiting for the quarantine: 0 of 3 vote, ");
}

#[test]
fn raise_terms_waits_again_for_servers_emptied_while_it_waits() {
    let fleet = Fleet::start(3, Kind::Valkey);
    let urls = fleet.urls();
    let longer = raise_terms(&["--max-ttl", "4s", "--restart-margin", "1s"]);
    let waiting = Running::start(quorate(&urls, &longer));
    until("it is watched", || {
        all_witnessed(&fleet).iter().all(|w| *w >= 900)
    });
    fleet[0].restart_empty();
    fleet[1].restart_empty();
    let before_the_last = Instant::now();
    fleet[2].restart_empty();
    waiting.done().is(0).prints("all 3 nodes vote now");
    let took = before_the_last.elapsed();
    // 1.01 · 4 s, and a margin of 1 s.
    assert!(took >= ms(4040 + 1000), "{took:?}");
}

#[test]
fn raise_terms_does_not_wait_for_a_dead_minority() {
    let fleet = Fleet::start(3, Kind::Redis);
    let urls = fleet.urls();
    fleet[1].kill9();
    let dead = format!("127.0.0.1:{} (unreachable)", fleet[1].port());
    for _ in 0..2 {
        let done = run(&urls, &raise_terms(&SHORT)).is(0);
        done.prints("2 of 3 nodes vote").prints(&dead);
    }
    let seen = run(
        &urls,
        &raise_terms(&["--json", "--max-ttl", "1s", "--restart-margin", "1s"]),
    );
    let seen = seen.is(0).json();
    assert_eq!(
        (&seen["changed"], &seen["nodes"][1]["after"]),
        (&false.into(), &"unreachable".into())
    );
}

#[test]
fn raise_terms_of_a_dead_majority_ends_and_every_node_says_why() {
    let fleet = Fleet::start(3, Kind::Redis);
    let urls = fleet.urls();
    fleet[0].kill9();
    fleet[2].kill9();
    let done = run(&urls, &raise_terms(&[])).is(69).says("no majority");
    // The default connect timeout has passed.
    assert!(done.took >= ms(5000), "{:?}", done.took);
    let done = done.says(&format!("127.0.0.1:{}: quarantined for", fleet[1].port()));
    for server in [&fleet[0], &fleet[2]] {
        assert!(
            done.err
                .contains(&format!("127.0.0.1:{}: unreachable", server.port()))
        );
    }
    let error = run(&urls, &raise_terms(&["--json"])).is(69).json_error();
    assert_eq!(error["error"], "no_quorum");
    assert_eq!(error["nodes"].as_array().unwrap().len(), 3);
}

#[test]
fn raise_terms_succeeds_once_the_last_server_votes() {
    let fleet = Fleet::start(3, Kind::Redis);
    let urls = fleet.urls();
    run(&urls, &[&["bootstrap", "--force"], &SHORT[..]].concat()).is(0);
    fleet[0].restart_empty();
    let greater = raise_terms(&["--max-ttl", "3s", "--restart-margin", "1s"]);
    // Several commands that want the same do not disturb each other.
    let start = Instant::now();
    let running: Vec<Running> = (0..3)
        .map(|_| Running::start(quorate(&urls, &greater)))
        .collect();
    for running in running {
        running.done().is(0).prints("3.0 s");
        assert!(start.elapsed() >= Z, "{:?}", start.elapsed());
    }
    for server in fleet.iter() {
        assert_eq!(record(server)[3], "3000");
    }

    fleet[2].kill9();
    let longer = raise_terms(&["--max-ttl", "4s", "--restart-margin", "1s"]);
    let done = run(&urls, &longer)
        .is(69)
        .says("needs every server")
        .says(&format!("127.0.0.1:{}: unreachable", fleet[2].port()));
    assert!(!done.err.contains("max_ttl is"), "{done:#?}");
    assert_eq!(record(&fleet[0])[3], "3000");
}

#[test]
fn a_signal_ends_bootstrap_and_raise_terms_at_once() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        if ignored(signal) {
            continue;
        }
        for args in [&["raise-terms"][..], &["bootstrap", "--new"]] {
            let fleet = Fleet::start(3, Kind::Redis);
            let waiting = Running::start(quorate(&fleet.urls(), args));
            until("it waits", || all_witnessed(&fleet).iter().any(|w| *w > 0));
            waiting.signal(signal);
            let told = Instant::now();
            let done = waiting.done().is(code).says("it can be run again");
            // The bound is the time that a process takes to end on a busy machine. The quarantine lasts for 35 s.
            assert!(told.elapsed() < ms(10_000), "{:?}", told.elapsed());
            assert_eq!(done.out, "");
            assert!(all_witnessed(&fleet).iter().all(|w| *w < 10_000));
        }
    }
}

#[test]
fn on_a_terminal_raise_terms_counts_seconds_then_clears_the_line() {
    let fleet = Fleet::start(3, Kind::Redis);
    let script = format!("'{QUORATE}' raise-terms --max-ttl 3s --restart-margin 1s");
    let done = on_a_terminal(&quorate(&fleet.urls(), &[]), &script)
        .done()
        .is(0);
    let (waits, table) = done.out.split_once("NODE").expect("the table");
    let counted = (1..=5).filter(|s| waits.contains(&format!("0 of 3 vote, {s} s left")));
    assert!(counted.count() >= 2, "{waits:?}");
    assert_eq!(waits.matches(IF_NEW).count(), 1, "{waits:?}");
    assert!(waits.ends_with("\x1b[2K"), "cleared: {waits:?}");
    assert!(table.contains("all 3 nodes vote now"), "{table:?}");
}

// ---- short commands, and commands that wait ---------------------------------------------------

/// Clients of servers with a quarantine of 1.01 · `max_ttl` + 100 ms.
struct Clients {
    fleet: Fleet,
    max_ttl: &'static str,
}

impl Clients {
    /// Three servers that all vote.
    fn admitted(max_ttl: &'static str) -> Self {
        let fleet = Fleet::start(3, Kind::Redis);
        let clients = Self { fleet, max_ttl };
        clients.run(&["bootstrap", "--force"]).is(0);
        clients
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = quorate(&self.fleet.urls(), args);
        command.env("QUORATE_MAX_TTL", self.max_ttl);
        command.env("QUORATE_RESTART_MARGIN", "100ms");
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Done {
        self.start(args).done()
    }

    /// Starts a command that goes on running.
    fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    /// Runs commands that are by themselves far too short for the quarantine of this server. w grows with each run,
    /// until the server votes.
    #[track_caller]
    fn end_quarantine(&self, server: &Server, z: u64, args: &[&str], status: i32) {
        let (mut runs, mut w) = (0, 0);
        while w < z {
            let ran = self.run(args);
            let voted = ran.code == 0 && witnessed(server) >= z;
            assert!(ran.code == status || voted, "{ran:?}");
            let now = witnessed(server);
            assert!(now >= w, "{w} ms, then {now} ms");
            (runs, w) = (runs + 1, now);
            assert!(runs < 40, "{w} of {z} ms after {runs} runs");
        }
        assert!(server.keys().iter().any(|(key, _)| key == "quorate:open"));
    }
}

/// Each of these commands ends before the handshake that comes every second. So only the time that each one writes at
/// its end counts.
#[test]
fn commands_of_less_than_a_second_end_a_quarantine_together() {
    let clients = Clients::admitted("1s");
    clients.fleet[0].restart_empty();
    let lock = ["lock", "x", "--", "sleep", "0.4"];
    clients.end_quarantine(&clients.fleet[0], 1_110, &lock, 0);
    clients.run(&["nodes"]).is(0).prints("3 of 3 vote");
}

#[test]
fn the_nodes_command_counts_towards_a_quarantine_too() {
    let clients = Clients::admitted("1s");
    clients.fleet[0].restart_empty();
    clients.fleet[1].restart_empty();
    let wait = ["nodes", "--wait", "all", "--timeout", "300ms"];
    clients.end_quarantine(&clients.fleet[0], 1_110, &wait, 69);
}

#[test]
fn a_watch_that_is_told_to_end_writes_its_count() {
    let clients = Clients::admitted("10s");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        clients.fleet[2].restart_empty();
        let mut watch = clients.start(&["watch", "--json"]);
        let seen = watch.until("quarantined");
        let seen: Value = serde_json::from_str(&seen).unwrap();
        assert_eq!((&seen["voting"], &seen["needed"]), (&2.into(), &2.into()));
        let left = seen["remaining_ms"].as_u64().unwrap();
        assert!((5_000..=10_200).contains(&left), "{seen}");
        assert!(
            seen["at_ms"].as_u64().unwrap() > 1_700_000_000_000,
            "{seen}"
        );
        std::thread::sleep(ms(600));
        watch.signal(signal);
        assert_eq!(watch.done().is(0).err, "");
        // It has watched since before it printed that. Rounding loses another ms at every handshake.
        let w = witnessed(&clients.fleet[2]);
        assert!(w >= 590, "{w} ms");
    }
}

#[test]
fn a_watch_says_what_changes_and_ends_with_its_reader() {
    let clients = Clients::admitted("300ms");
    let urls = clients.fleet.urls();
    let name = |i: usize| urls[i].trim_start_matches("redis://").to_owned();
    let mut watch = clients.start(&["watch"]);
    let mut first: Vec<String> = (0..4).map(|_| watch.line().unwrap()).collect();
    let verdict = first.pop().unwrap();
    assert!(verdict.contains("locks can be taken"), "{verdict}");
    first.sort();
    let mut all: Vec<String> = (0..3).map(|i| format!("{}: voting", name(i))).collect();
    all.sort();
    assert_eq!(first, all);

    clients.fleet[0].kill9();
    watch.until(&format!("{}: unreachable: ", name(0)));
    clients.fleet[1].kill9();
    watch.until(&format!("{}: unreachable: ", name(1)));
    watch.until("no lock can be taken");
    clients.fleet[0].start_again();
    watch.until(&format!("{}: quarantined for ", name(0)));
    watch.until(&format!("{}: voting", name(0)));
    watch.until("locks can be taken");

    // It notices this even if it has nothing to print.
    watch.reader_goes();
    assert_eq!(watch.done().is(0).err, "");
}

#[test]
fn a_watch_goes_on_without_servers_and_not_with_wrong_settings() {
    let clients = Clients::admitted("1s");
    clients.fleet.iter().for_each(Server::kill9);
    let mut watch = clients.start(&["watch"]);
    watch.until("unreachable: ");
    watch.until("no lock can be taken");
    watch.signal(Signal::TERM);
    watch.done().is(0);

    clients
        .run(&["watch", "--max-ttl", "1ms"])
        .is(64)
        .says("max_ttl");
}

#[test]
fn nodes_wait_returns_once_enough_servers_vote() {
    let clients = Clients::admitted("1s");
    for server in &clients.fleet[..2] {
        server.restart_empty();
    }
    clients
        .run(&["nodes", "--wait", "majority", "--timeout", "10ms"])
        .is(69)
        .says("too few servers vote");
    clients.run(&["nodes", "--wait", "majority"]).is(0);
    let all = ["nodes", "--wait", "all", "--timeout", "1m", "--json"];
    assert_eq!(clients.run(&all).is(0).json()["voting"], 3);

    clients.fleet[0].kill9();
    let waiting = clients.start(&["nodes", "--wait", "all"]);
    waiting.until_caught(Signal::TERM);
    std::thread::sleep(ms(300));
    waiting.signal(Signal::TERM);
    waiting.done().is(143).says("waiting for the servers");

    clients.run(&["nodes", "--timeout", "1s"]).is(64);
}
