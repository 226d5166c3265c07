//! The `quorate` command on real servers: exit statuses, messages, signals, and that no command
//! runs on without its lock.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Fleet, Kind, Server, ServerOptions};
use tempfile::TempDir;

const QUORATE: &str = env!("CARGO_BIN_EXE_quorate");
/// For what happens soon; far more than it needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

// ---- the tests' tools -----------------------------------------------------------------------

/// What a run of it came to.
#[derive(Debug)]
struct Done {
    code: i32,
    out: String,
    err: String,
    took: Duration,
}

impl Done {
    #[track_caller]
    fn is(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    #[track_caller]
    fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "no {text:?} in {self:#?}");
        self
    }

    #[track_caller]
    fn prints(self, text: &str) -> Self {
        assert!(self.out.contains(text), "no {text:?} in {self:#?}");
        self
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    #[track_caller]
    fn json_error(&self) -> Value {
        // The command's shell may have said something before.
        serde_json::from_str(self.err.lines().last().unwrap_or(""))
            .unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// The program with the servers named, and nothing of this process's own settings.
fn quorate(urls: &[String], args: &[&str]) -> Command {
    let mut command = Command::new(QUORATE);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUORATE_") {
            command.env_remove(name);
        }
    }
    command.env("QUORATE_NODES", urls.join(","));
    command.args(args).stdin(Stdio::null());
    command
}

/// A run that is under way; killed at the end of the test.
struct Running {
    child: Child,
    since: Instant,
}

impl Running {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let since = Instant::now();
        let child = command.spawn().expect("it was just built");
        Self { child, since }
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child");
    }

    /// Until it ends.
    #[track_caller]
    fn done(mut self) -> Done {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(ms(2));
        };
        let took = self.since.elapsed();
        // A background process of the command may keep these open, but none here does.
        let (mut out, mut err) = (String::new(), String::new());
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        let code = status.code().unwrap_or(-1);
        Done {
            code,
            out,
            err,
            took,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn run(urls: &[String], args: &[&str]) -> Done {
    Running::start(quorate(urls, args)).done()
}

/// Servers that vote.
fn fleet(n: usize) -> Fleet {
    let fleet = Fleet::start(n, Kind::Redis);
    run(&fleet.urls(), &["bootstrap", "--force"]).is(0);
    fleet
}

/// A FIFO that processes of a test hold open: what they write comes with its time, and its end
/// when the last of them is dead.
struct Wire {
    dir: TempDir,
    lines: Receiver<(Instant, Option<String>)>,
}

impl Wire {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wire");
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // Waits for the first writer.
            let reader = BufReader::new(File::open(path).unwrap());
            for line in reader.lines() {
                let _ = sender.send((Instant::now(), line.ok()));
            }
            let _ = sender.send((Instant::now(), None));
        });
        Self { dir, lines }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("wire")
    }

    /// The next line, or none when all are dead.
    #[track_caller]
    fn next(&self) -> (Instant, Option<String>) {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("something on the wire")
    }

    #[track_caller]
    fn expect(&self, text: &str) -> Instant {
        let (at, line) = self.next();
        assert_eq!(line.as_deref(), Some(text));
        at
    }

    /// A command under the lock that runs this script with the wire as its descriptor 9.
    fn lock(&self, urls: &[String], args: &[&str], script: &str) -> Running {
        let mut command = quorate(urls, &["lock"]);
        let script = format!("exec 9>'{}'\n{script}", self.path().display());
        command.args(args).args(["--", "sh", "-c", &script]);
        Running::start(command)
    }
}

/// Says "up" and then stays.
const STAY: &str = "echo up >&9; exec sleep 60";

/// A command and a child of it that hear SIGTERM and go on. Each says so, in either order.
const STUBBORN: &str = "
    sh -c 'trap \"echo term >&9\" TERM; echo up >&9; while :; do sleep 0.02; done' &
    trap 'echo term >&9' TERM; echo up >&9; while :; do sleep 0.02; done";

fn leftovers(fleet: &Fleet) -> Vec<String> {
    fleet.leftover_locks_after(ms(2000), "quorate")
}

// ---- running a command ----------------------------------------------------------------------

#[test]
fn the_status_is_the_commands_own() {
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
fn it_waits_as_long_as_it_was_told() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let holder = wire.lock(&urls, &["a", "--label", "web-3"], STAY);
    wire.expect("up");

    let done = run(&urls, &["lock", "a", "--no-wait", "--", "echo", "ran"])
        .is(75)
        .says("quorate: \"a\" is held by web-3");
    assert_eq!(done.out, "");
    assert!(done.took < ms(2000), "{:?}", done.took);
    let done = run(
        &urls,
        &["lock", "a", "--wait", "300ms", "--", "echo", "ran"],
    )
    .is(75)
    .says("held by web-3");
    assert_eq!(done.out, "");
    assert!(
        done.took >= ms(300) && done.took < ms(1500),
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

    // Without a bound it waits until it is its turn.
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
    running
        .done()
        .is(3)
        .says("quorate: the command is done, but too few nodes confirmed");
}

// ---- wrong use, bad nodes -------------------------------------------------------------------

#[test]
fn wrong_use_is_64_and_says_what_is_right() {
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
            &["inspect", "a", "--key-prefix", "ä"],
            "the key prefix",
        ),
        (
            alone,
            &["inspect", "a", "--node", "http://h"],
            "allowed are redis://",
        ),
        (alone, &["inspect", "a", "--max-ttl", "48h"], "max_ttl"),
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
    // One server by two names.
    let new = Server::start(Kind::Redis);
    run(&[new.url(), new.unix_url()], &["lock", "a", "--", "true"])
        .is(64)
        .says("the same server");
}

#[test]
fn without_a_majority_it_is_69_and_every_node_says_why() {
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
fn a_wrong_password_is_told_and_not_shown() {
    let server = ServerOptions::new(Kind::Redis).password("right").start();
    let url = [server.url_with("default", "wr0ng")];
    for args in [&["lock", "a", "--", "true"][..], &["bootstrap"]] {
        let done = run(&url, args).says("password");
        assert!(done.code == 69 || done.code == 64, "{done:#?}");
        assert!(!done.err.contains("wr0ng"), "{done:#?}");
    }
    run(&url, &["nodes"]).is(69).prints("password");
    run(&[server.url()], &["bootstrap", "--force"]).is(0);
    run(&[server.url()], &["lock", "a", "--", "true"]).is(0);
}

#[test]
fn new_servers_are_quarantined_until_bootstrap() {
    let fleet = Fleet::start(3, Kind::Redis);
    let urls = fleet.urls();
    run(&urls, &["lock", "a", "--no-wait", "--", "true"])
        .is(69)
        .says("`quorate bootstrap`");
    run(&urls, &["lock", "a", "--wait", "200ms", "--", "true"])
        .is(69)
        .says("`quorate bootstrap`");
    run(&urls, &["nodes"])
        .is(69)
        .prints("quarantined for")
        .prints("0 of 3 vote");
    run(&urls, &["bootstrap"])
        .is(0)
        .prints("all 3 nodes vote now");
    let again = run(&urls, &["bootstrap", "--json"]).is(0).json();
    assert_eq!(again["changed"], false);
    run(&urls, &["nodes"]).is(0).prints("3 of 3 vote");

    // A server that lost its memory is not new, however much it looks so.
    fleet[0].restart_empty();
    run(&urls, &["bootstrap"])
        .is(64)
        .says("quorate: ")
        .says("votes already");
    let nodes = run(&urls, &["nodes", "--json"]).is(0).json();
    assert_eq!(nodes["nodes"][0]["state"], "quarantined");
    let forced = run(&urls, &["bootstrap", "--force", "--json"]).is(0).json();
    assert_eq!(
        (&forced["changed"], &forced["nodes"][0]["after"]),
        (&true.into(), &"voting".into())
    );

    // A majority would not do, and it says so.
    fleet[1].kill9();
    run(&urls, &["bootstrap", "--force"])
        .is(69)
        .says("bootstrap needs every server");
}

#[test]
fn bootstrap_raises_the_fleets_longest_ttl() {
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
    run(&urls, &longer).is(69).says("bootstrap");
    run(&urls, &["bootstrap", "--max-ttl", "60s"])
        .is(0)
        .prints("60.0 s");
    run(&urls, &longer).is(0);
}

// ---- operators ------------------------------------------------------------------------------

#[test]
fn inspect_and_evict() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    run(&urls, &["inspect", "a"]).is(0).prints("\"a\" is free");
    let wire = Wire::new();
    let holder = wire.lock(&urls, &["a", "--label", "web-3", "--ttl", "1s"], STAY);
    wire.expect("up");

    run(&urls, &["inspect", "a"])
        .is(0)
        .prints("\"a\" is held on 3 of 3 nodes by web-3");
    let seen = run(&urls, &["inspect", "a", "--json"]).is(0).json();
    assert_eq!(
        (&seen["held"], &seen["holder"]["label"]),
        (&true.into(), &"web-3".into())
    );
    let left = seen["holder"]["remaining_ms"].as_u64().unwrap();
    assert!((1..=1000).contains(&left), "{left}");
    for node in seen["nodes"].as_array().unwrap() {
        assert_eq!(
            (&node["state"], &node["holder"]["label"]),
            (&"voting".into(), &"web-3".into())
        );
    }

    run(&urls, &["evict", "a"])
        .is(64)
        .prints("web-3")
        .says("quorate: nothing was done")
        .says("--yes");
    run(&urls, &["inspect", "a"]).is(0).prints("by web-3");
    let evicted = run(&urls, &["evict", "a", "--yes", "--json"]).is(0).json();
    assert_eq!(
        (&evicted["evicted"], &evicted["holder"]["label"]),
        (&true.into(), &"web-3".into())
    );
    run(&urls, &["inspect", "a"]).is(0).prints("\"a\" is free");
    holder.done().is(79).says("lost while the command ran");
    run(&urls, &["evict", "a", "--yes"])
        .is(0)
        .prints("free already");
}

// ---- signals --------------------------------------------------------------------------------

/// Whether this process ignores a signal, as a job that a script put in the background may: then
/// its children do too.
fn ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn signals_reach_the_whole_group_of_the_command() {
    let fleet = fleet(1);
    let wire = Wire::new();
    let names = [
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
    ];
    let traps = |who: &str| {
        let traps = names.map(|(name, _)| format!("trap \"echo {who} {name} >&9\" {name}"));
        format!(
            "{}; echo up >&9; while [ ! -e \"$END\" ]; do sleep 0.01; done",
            traps.join("; ")
        )
    };
    // A background process of a shell without job control ignores INT and QUIT, so the grandchild
    // runs in front, and the child hears of its signals when that has ended.
    let end = wire.dir.path().join("end");
    let script = format!(
        "END='{}'; export END\n( {} ) ; echo over >&9; exit 5",
        end.display(),
        traps("inner")
    );
    let script =
        format!("trap 'echo outer USR1 >&9' USR1\ntrap : INT TERM HUP QUIT USR2\n{script}");
    let running = wire.lock(&fleet.urls(), &["a"], &script);
    wire.expect("up");
    for (name, signal) in names {
        if !ignored(signal) {
            running.signal(signal);
            wire.expect(&format!("inner {name}"));
        }
    }
    File::create(end).unwrap();
    wire.expect("outer USR1");
    wire.expect("over");
    running.done().is(5);
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    let fleet = fleet(1);
    let wire = Wire::new();
    let inner = format!(
        "exec 9>'{}'; trap 'echo usr1 >&9; exit 0' USR1; echo up >&9; while :; do sleep 0.01; done",
        wire.path().display()
    );
    let mut command = quorate(&fleet.urls(), &[]);
    let program = command.get_program().to_owned();
    // As nohup does.
    let mut nohup = Command::new("sh");
    nohup
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(program);
    nohup.args(["lock", "a", "--", "sh", "-c", &inner]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nohup.env(name, value),
            None => nohup.env_remove(name),
        };
    }
    command = nohup;
    command.stdin(Stdio::null());
    let running = Running::start(command);
    wire.expect("up");
    running.signal(Signal::HUP);
    std::thread::sleep(ms(100));
    running.signal(Signal::USR1);
    wire.expect("usr1");
    running.done().is(0);
}

#[test]
fn a_signal_ends_the_wait_and_nothing_is_left() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let holder = wire.lock(&urls, &["a"], STAY);
    wire.expect("up");
    let before = fleet.leftover_locks("quorate").len();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        if ignored(signal) {
            continue;
        }
        let waiter = Running::start(quorate(
            &urls,
            &["lock", "a", "--label", "waiter", "--", "echo", "ran"],
        ));
        std::thread::sleep(ms(300));
        waiter.signal(signal);
        let done = waiter.done().is(code).says("quorate: ended while waiting");
        assert!(done.took < ms(3000), "{:?}", done.took);
        assert_eq!(done.out, "");
    }
    assert_eq!(
        fleet.leftover_locks("quorate").len(),
        before,
        "the holder's and no more"
    );
    holder.signal(Signal::TERM);
    holder.done().is(143);
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

// ---- losing the lock ------------------------------------------------------------------------

#[test]
fn a_command_whose_lock_is_evicted_is_told_and_then_killed() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let ttl = ms(5000);
    let wire = Wire::new();
    let running = wire.lock(&urls, &["a", "--ttl", "5s"], STUBBORN);
    wire.expect("up");
    wire.expect("up");
    run(&urls, &["evict", "a", "--yes"]).is(0);
    let evicted = Instant::now();
    let told = wire.expect("term");
    wire.expect("term");
    let (dead, line) = wire.next();
    assert_eq!(line, None, "child and grandchild are dead");
    // Told at the next renewal, after a third of the ttl.
    assert!(told - evicted < ttl / 2, "{:?}", told - evicted);
    // 80 % of the margin, which is a twentieth of the ttl; and not at once.
    assert!(dead - told > ms(100), "{:?}", dead - told);
    assert!(dead - evicted < ttl * 2 / 3, "{:?}", dead - evicted);
    running
        .done()
        .is(79)
        .says("lost while the command ran")
        .says("killed");
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

#[test]
fn a_command_that_obeys_has_lost_the_lock_all_the_same() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let script = "trap 'echo term >&9; exit 0' TERM; echo up >&9; while :; do sleep 0.01; done";
    let running = wire.lock(&urls, &["a", "--ttl", "5s", "--json"], script);
    wire.expect("up");
    run(&urls, &["evict", "a", "--yes"]).is(0);
    wire.expect("term");
    let error = running.done().is(79).json_error();
    assert_eq!(error["error"], "lost");
}

#[test]
fn without_a_majority_the_command_is_dead_before_the_lock_can_be_anybodys() {
    let fleet = fleet(3);
    let ttl = ms(6000);
    let wire = Wire::new();
    let running = wire.lock(&fleet.urls(), &["a", "--ttl", "6s"], STUBBORN);
    // The lock was asked for before, and is not renewed before a third of the ttl is over.
    let up = wire.expect("up");
    fleet[0].sigstop();
    fleet[1].sigstop();
    wire.expect("up");
    assert!(up.elapsed() < ttl / 4, "too slow to test anything");
    let told = wire.expect("term");
    wire.expect("term");
    let (dead, line) = wire.next();
    assert_eq!(line, None, "child and grandchild are dead");
    let drift = ttl / 100 + ms(2);
    let end = up + ttl - drift;
    assert!(dead < end, "{:?} too late", dead - end);
    assert!(told > end - ttl / 10, "{:?} too early", end - told);
    fleet[0].sigcont();
    fleet[1].sigcont();
    running.done().is(79).says("could not be renewed");
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

#[test]
fn a_quorate_that_was_stopped_beyond_its_lease_kills_at_once() {
    let fleet = fleet(3);
    let wire = Wire::new();
    let running = wire.lock(&fleet.urls(), &["a", "--ttl", "500ms"], STUBBORN);
    wire.expect("up");
    wire.expect("up");
    running.signal(Signal::STOP);
    std::thread::sleep(ms(700));
    running.signal(Signal::CONT);
    let (_, line) = wire.next();
    assert_eq!(line, None, "there is no time left to ask");
    running.done().is(79).says("killed");
}

#[test]
fn the_command_dies_with_quorate() {
    let fleet = fleet(1);
    let wire = Wire::new();
    let running = wire.lock(&fleet.urls(), &["a"], STAY);
    wire.expect("up");
    running.signal(Signal::KILL);
    let killed = Instant::now();
    let (dead, line) = wire.next();
    assert_eq!(line, None);
    assert!(dead - killed < ms(2000), "{:?}", dead - killed);
    drop(running);
}

// ---- terminals, and no servers at all -------------------------------------------------------

#[test]
fn on_a_terminal_the_command_is_in_front_and_the_terminal_comes_back() {
    let fleet = fleet(1);
    // Both read from the terminal: who is not in front is stopped by SIGTTIN, for ever.
    let script = format!(
        "'{QUORATE}' lock a -- sh -c 'read x; echo inner=$x; exit 4'; echo status=$?; read y; echo outer=$y"
    );
    let mut command = quorate(&fleet.urls(), &[]);
    let mut terminal = Command::new("script");
    terminal
        .args(["-qec", &script, "/dev/null"])
        .env("SHELL", "/bin/sh");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    terminal.stdin(Stdio::piped());
    command = terminal;
    let mut running = Running::start(command);
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
    assert!(done.took < Duration::from_secs(15), "{:?}", done.took);
    assert!(!done.out.contains('\x1b'), "no colours where nobody looks");
    assert_eq!(done.err, "");
    let done = done
        .prints("alice  locks \"invoice:42\"")
        .prints("Masters 4 and 5 are dead");
    let done = done
        .prints("master 3: ")
        .prints("All three come back")
        .prints("store  refuses: token ");
    assert!(!done.out.contains("otherwise than it should"));

    let lines = run(&[], &["demo", "--json"]).is(0).out;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(
            line["who"].is_string() && line["says"].is_string(),
            "{line}"
        );
    }
}
