//! `quorate torture` on real servers: it records and judges correctly, finds violations when a rule is switched off,
//! and leaves no process, no lock and no file behind.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Fleet, HANG, Kind, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const QUORATE: &str = env!("CARGO_BIN_EXE_quorate");
/// Short quarantines.
const SETTINGS: [&str; 6] = [
    "--max-ttl",
    "2s",
    "--restart-margin",
    "500ms",
    "--node-timeout",
    "300ms",
];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A fleet that votes, a store, and room for a history.
struct Field {
    fleet: Fleet,
    store: Server,
    dir: TempDir,
}

impl Field {
    fn new(n: usize) -> Self {
        let field = Self {
            fleet: Fleet::start(n, Kind::Redis),
            store: Server::start(Kind::Redis),
            dir: tempfile::tempdir().unwrap(),
        };
        assert!(
            field
                .quorate(&["bootstrap", "--force"])
                .status()
                .unwrap()
                .success()
        );
        field
    }

    fn history(&self) -> String {
        self.dir.path().join("history").to_str().unwrap().to_owned()
    }

    fn quorate(&self, args: &[&str]) -> Command {
        let mut command = Command::new(QUORATE);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("QUORATE_") {
                command.env_remove(name);
            }
        }
        command.env("QUORATE_NODES", self.fleet.urls().join(","));
        // With this a test finds its own processes and no others.
        command.env("TMPDIR", self.dir.path());
        command.args(args).args(SETTINGS);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The load with a store, a history, and these further words.
    fn torture(&self, words: &[&str]) -> Running {
        let (store, history) = (self.store.url(), self.history());
        let mut args = vec!["torture", "--store", &store, "--history", &history];
        args.extend(words);
        Running(Some(self.quorate(&args).spawn().unwrap()))
    }

    /// The processes of the load that still exist.
    fn workers(&self) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let words =
            |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let history = self.history();
        pids.filter(|pid| words(pid).contains(&history) && words(pid).contains("__worker"))
            .filter_map(Pid::from_raw)
            .collect()
    }

    /// Waits until both processes of the load take locks. On a loaded machine they start late, and a fault before that
    /// would hit nobody. One of them may have to wait for the other for a long time.
    #[track_caller]
    fn under_way(&self) {
        self.under_way_in(Path::new(&self.history()));
    }

    /// The same for a history in this directory.
    #[track_caller]
    fn under_way_in(&self, history: &Path) {
        let deadline = Instant::now() + HANG;
        let asks = |file: fs::DirEntry| {
            fs::read_to_string(file.path()).is_ok_and(|text| text.contains("\"invoked\""))
        };
        let asking = || {
            let files = fs::read_dir(history).into_iter().flatten();
            files
                .flatten()
                .filter_map(|f| asks(f).then_some(()))
                .count()
        };
        while asking() < 2 {
            assert!(Instant::now() < deadline, "the load does not begin");
            sleep(ms(20));
        }
        sleep(ms(500));
    }

    #[track_caller]
    fn no_worker_within(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while !self.workers().is_empty() {
            assert!(Instant::now() < deadline, "{:?} live on", self.workers());
            sleep(ms(20));
        }
    }
}

/// A running command, which is killed at the end of the test.
struct Running(Option<Child>);

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.0.as_ref().unwrap()), signal).unwrap();
    }

    fn done(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The JSON object that it printed. Checks the exit status.
#[track_caller]
fn json(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{output:#?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:#?}"))
}

#[track_caller]
fn complains(output: &Output, code: i32, text: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(text), "no {text:?} in {said}");
}

fn kinds(judgement: &Value) -> Vec<&str> {
    let findings = judgement["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|finding| finding["kind"].as_str().unwrap())
        .collect()
}

#[test]
fn a_run_with_one_dead_node_finds_only_that_it_is_unseen() {
    let field = Field::new(3);
    let load = field.torture(&["--duration", "6s", "--json"]);
    field.under_way();
    field.fleet[0].kill9();
    let judgement = json(&load.done(), 1);
    // A dead node cannot hold anything against us, but it could not be looked at, and the judgement says so.
    assert_eq!(kinds(&judgement), ["unseen"], "{judgement:#}");
    let text = judgement["findings"][0]["text"].as_str().unwrap();
    assert!(text.contains("could not be inspected"), "{text}");
    assert!(
        judgement["sections"].as_u64().unwrap() > 50,
        "{judgement:#}"
    );
    assert_eq!(
        (&judgement["lost_fenced"], &judgement["left"]),
        (&0.into(), &0.into())
    );
    // Two node timeouts and a rest of 100 ms, as in `kill-two` of docker/torture/scenarios.sh, and 800 ms for the
    // machine.
    assert!(
        judgement["longest_gap_ms"].as_u64().unwrap() < 2 * 300 + 100 + 800,
        "{judgement:#}"
    );
    // Judging the recorded history again gives the same result, as a table.
    let again = field
        .quorate(&["torture", "judge", &field.history()])
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(said.contains("BROKEN: not looked at"), "{said}");
    let first = fs::read_dir(field.history()).unwrap().count();
    assert_eq!(first, 3, "two processes and the look");
}

/// As `--config <(vault ..)`: each process of the load needs the settings, and only the first can read them.
#[test]
fn a_load_has_the_servers_of_a_pipe() {
    let fleet = Fleet::start(1, Kind::Redis);
    crate::command::run(&fleet.urls(), &["bootstrap", "--force"]).is(0);
    let dir = tempfile::tempdir().unwrap();
    let (file, list) = (dir.path().join("a.toml"), dir.path().join("list"));
    std::fs::write(&file, format!("nodes = {:?}", fleet.urls())).unwrap();
    std::fs::write(&list, fleet.urls().join("\n")).unwrap();
    let (file, list) = (file.display(), list.display());
    for line in [
        format!("\"$0\" --config <(cat '{file}') \"$@\""),
        format!("\"$0\" --config /dev/stdin \"$@\" < '{file}'"),
        format!("cat '{file}' | \"$0\" --config /dev/stdin \"$@\""),
        format!("QUORATE_CONFIG=<(cat '{file}') \"$0\" \"$@\""),
        format!("QUORATE_NODES_FILE=<(cat '{list}') \"$0\" \"$@\""),
    ] {
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", &line, QUORATE]);
        bash.args([
            "torture",
            "--duration",
            "300ms",
            "--names",
            "1",
            "--tasks",
            "1",
        ]);
        let like = crate::command::quorate(&[], &[]);
        let mut bash = crate::command::in_env_of(&like, bash);
        bash.env_remove("QUORATE_NODES");
        let done = crate::command::Running::start(bash).done().is(0);
        assert!(done.out.contains("torture"), "{line}: {done:#?}");
    }
}

#[test]
fn a_frozen_holder_is_refused_where_tokens_are_checked() {
    let field = Field::new(3);
    let words = [
        "--duration",
        "9s",
        "--section",
        "200ms",
        "--names",
        "8",
        "--json",
    ];
    let load = field.torture(&words);
    field.under_way();
    let frozen = field.workers()[0];
    kill_process(frozen, Signal::STOP).unwrap();
    sleep(ms(3_500));
    kill_process(frozen, Signal::CONT).unwrap();
    let judgement = json(&load.done(), 0);
    assert!(judgement["refused"].as_u64().unwrap() > 0, "{judgement:#}");
    assert_eq!(judgement["lost_fenced"], 0);
    println!("unfenced, {} updates were lost", judgement["lost_unfenced"]);
}

#[test]
fn with_the_quarantine_off_two_holders_are_found() {
    let field = Field::new(3);
    let restart_all = || {
        field.under_way();
        for server in field.fleet.iter() {
            server.restart_empty();
        }
    };
    // This is longer than the quarantine, 2.52 s, even if the load begins late.
    let words = ["--duration", "8s", "--section", "800ms", "--json"];
    let load = field.torture(&words);
    restart_all();
    assert_eq!(kinds(&json(&load.done(), 0)), [""; 0]);
    fs::remove_dir_all(field.history()).unwrap();

    let load = field.torture(&[words.as_slice(), &["--without-rule", "quarantine"]].concat());
    restart_all();
    let judgement = json(&load.done(), 1);
    assert!(kinds(&judgement).contains(&"exclusion"), "{judgement:#}");
}

#[test]
fn with_the_rollback_off_leftovers_are_found() {
    let field = Field::new(3);
    let words = ["--section", "100ms", "--json"];
    // The load ends while two of three nodes are stopped. They are continued before the look.
    let stopped_at_the_end = |more: &[&str]| {
        let (store, history) = (field.store.url(), field.history());
        let stop = field.dir.path().join("stop");
        let mut args = vec!["torture", "run", "--store", &store, "--history", &history];
        let file = stop.to_str().unwrap().to_owned();
        args.extend(["--stop-file", &file]);
        args.extend(words);
        args.extend(more);
        let load = Running(Some(field.quorate(&args).spawn().unwrap()));
        field.under_way();
        for i in [0, 1] {
            field.fleet[i].sigstop();
        }
        sleep(ms(200));
        fs::write(&stop, "").unwrap();
        assert!(load.done().status.success());
        for i in [0, 1] {
            field.fleet[i].sigcont();
        }
        fs::remove_file(&stop).unwrap();
        let look = ["torture", "look", "--store", &store, "--history", &history];
        assert!(field.quorate(&look).status().unwrap().success());
        let judged = field
            .quorate(&["torture", "judge", "--json", &history])
            .output()
            .unwrap();
        let judgement: Value = serde_json::from_slice(&judged.stdout).unwrap();
        fs::remove_dir_all(&history).unwrap();
        judgement
    };
    let judgement = stopped_at_the_end(&[]);
    assert_eq!(kinds(&judgement), [""; 0], "{judgement:#}");
    let judgement = stopped_at_the_end(&["--without-rule", "release-everywhere"]);
    assert!(kinds(&judgement).contains(&"leftover"), "{judgement:#}");
}

#[test]
fn semaphores_hold_under_load_too() {
    let field = Field::new(5);
    let words = ["--semaphore", "3", "--names", "2", "--duration", "8s"];
    // A label with slashes is not a path of the history.
    let more = ["--section", "50ms", "--json", "--label", "http://a:1/b"];
    let load = field.torture(&[words.as_slice(), &more].concat());
    field.under_way();
    field.fleet[1].kill9();
    field.fleet[4].kill9();
    sleep(ms(1_000));
    field.fleet[1].restart_empty();
    field.fleet[4].restart_empty();
    let judgement = json(&load.done(), 0);
    assert_eq!(kinds(&judgement), [""; 0], "{judgement:#}");
    assert!(
        judgement["sections"].as_u64().unwrap() > 50,
        "{judgement:#}"
    );
    assert_eq!(
        (&judgement["lost_fenced"], &judgement["left"]),
        (&0.into(), &0.into())
    );
    // Two node timeouts and a rest of 100 ms, as in `kill-two` of docker/torture/scenarios.sh, and 800 ms for the
    // machine.
    assert!(
        judgement["longest_gap_ms"].as_u64().unwrap() < 2 * 300 + 100 + 800,
        "{judgement:#}"
    );
    let files = fs::read_dir(field.history()).unwrap().flatten();
    let all: String = files
        .map(|file| fs::read_to_string(file.path()).unwrap())
        .collect();
    assert!(all.contains("\"label\":\"http://a:1/b."), "{all}");
    for slot in 0..3 {
        assert!(all.contains(&format!("\"slot\":{slot}}}")), "slot {slot}");
        assert!(all.contains(&format!("\"name\":\"torture-1/{slot}\"")));
    }
}

#[test]
fn with_the_quarantine_off_too_many_holders_of_a_semaphore_are_found() {
    let field = Field::new(3);
    let words = ["--semaphore", "2", "--names", "2", "--duration", "8s"];
    let more = [
        "--section",
        "800ms",
        "--without-rule",
        "quarantine",
        "--json",
    ];
    let load = field.torture(&[words.as_slice(), &more].concat());
    field.under_way();
    // If few slots are held at that moment, or only for a short time more, one round may show nothing.
    for _ in 0..4 {
        for server in field.fleet.iter() {
            server.restart_empty();
        }
        sleep(ms(1_200));
    }
    let judgement = json(&load.done(), 1);
    let texts: Vec<&str> = judgement["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|finding| finding["text"].as_str())
        .collect();
    let says = |words: &str| texts.iter().any(|text| text.contains(words));
    assert!(kinds(&judgement).contains(&"exclusion"), "{judgement:#}");
    assert!(says("two held it at once"), "in one slot: {texts:#?}");
    assert!(
        says(" held at once, for ") && says("it has 2 slots"),
        "{texts:#?}"
    );
}

/// Two of five masters die and come back empty during the load, and every promise holds. Returns the recorded history.
fn holds_while_two_die(kind: &[&str]) -> String {
    let field = Field::new(5);
    let words = ["--names", "4", "--duration", "8s", "--section", "30ms"];
    let load = field.torture(&[kind, &words, &["--json"]].concat());
    field.under_way();
    field.fleet[1].kill9();
    field.fleet[4].kill9();
    sleep(ms(1_000));
    field.fleet[1].restart_empty();
    field.fleet[4].restart_empty();
    let judgement = json(&load.done(), 0);
    assert_eq!(kinds(&judgement), [""; 0], "{judgement:#}");
    assert!(
        judgement["sections"].as_u64().unwrap() > 50,
        "{judgement:#}"
    );
    assert_eq!(
        (&judgement["lost_fenced"], &judgement["left"]),
        (&0.into(), &0.into())
    );
    println!("{} {}", judgement["locks"], judgement["longest_gap_ms"]);
    // Two node timeouts and a rest of 100 ms, as in `kill-two` of docker/torture/scenarios.sh, and 1.3 s for the host.
    assert!(
        judgement["longest_gap_ms"].as_u64().unwrap() < 2 * 300 + 100 + 1_300,
        "{judgement:#}"
    );
    let files = fs::read_dir(field.history()).unwrap().flatten();
    files
        .map(|file| fs::read_to_string(file.path()).unwrap())
        .collect()
}

#[test]
fn read_write_locks_hold_under_load_too() {
    let all = holds_while_two_die(&["--rwlock", "--readers", "70"]);
    for side in ["reader", "writer"] {
        let asks = format!("\"name\":\"torture-3\",\"side\":\"{side}\"}}");
        assert!(all.contains(&asks), "no {asks}");
    }
    assert!(all.contains("\"readers\":70}"));
}

#[test]
fn several_names_at_once_hold_under_load_too() {
    let all = holds_while_two_die(&["--several"]);
    let asks = |many: usize| {
        let is_one = |line: &&str| line.contains("\"invoked\"");
        let mut asks = all.lines().filter(is_one);
        asks.any(|line| line.matches("torture-").count() == many)
    };
    assert!(asks(1) && asks(2) && asks(3));
    assert!(all.contains("\"several\":true}"));
}

/// All masters die at once and come back empty, again and again, with the quarantine switched off. Returns the kinds of
/// findings.
fn without_the_quarantine(kind: &[&str]) -> Vec<String> {
    let field = Field::new(3);
    let words = ["--names", "8", "--duration", "9s", "--section", "800ms"];
    let more = ["--without-rule", "quarantine", "--json"];
    let load = field.torture(&[kind, &words, &more].concat());
    field.under_way();
    // If few locks are held at that moment, or only for a short time more, one round may show nothing.
    for _ in 0..4 {
        for server in field.fleet.iter() {
            server.restart_empty();
        }
        sleep(ms(1_500));
    }
    let judgement = json(&load.done(), 1);
    assert!(kinds(&judgement).contains(&"exclusion"), "{judgement:#}");
    let findings = judgement["findings"].as_array().unwrap().iter();
    let texts = findings.filter_map(|finding| finding["text"].as_str());
    texts.map(str::to_owned).collect()
}

#[test]
fn with_the_quarantine_off_a_writer_beside_others_is_found() {
    let texts = without_the_quarantine(&["--rwlock", "--readers", "50"]);
    let beside = |text: &String| text.contains("two held it at once") && text.contains(" writing ");
    assert!(texts.iter().any(beside), "{texts:#?}");
}

#[test]
fn with_the_quarantine_off_two_holders_of_a_set_are_found() {
    let texts = without_the_quarantine(&["--several"]);
    let of_a_set = |text: &String| text.contains("\" at once, for ") && text.contains("\" and \"");
    assert!(texts.iter().any(of_a_set), "{texts:#?}");
}

#[test]
fn an_interrupted_run_is_judged_and_leaves_nothing() {
    let field = Field::new(3);
    let store = field.store.url();
    let started = Instant::now();
    let load = Running(Some(
        field
            .quorate(&["torture", "--store", &store, "--section", "5ms"])
            .spawn()
            .unwrap(),
    ));
    // Its history is in a temporary directory of its own.
    let deadline = Instant::now() + HANG;
    let history = loop {
        let mut files = fs::read_dir(field.dir.path()).unwrap().flatten();
        if let Some(dir) = files.find(|dir| {
            dir.file_name()
                .as_encoded_bytes()
                .starts_with(b"quorate-torture-")
        }) {
            break dir.path();
        }
        assert!(Instant::now() < deadline, "the load does not begin");
        sleep(ms(20));
    };
    field.under_way_in(&history);
    load.signal(Signal::INT);
    let output = load.done();
    assert_eq!(output.status.code(), Some(0), "{output:#?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.lines().count() == 2 && said.trim_end().ends_with("all"),
        "{said}"
    );
    assert!(said.contains("  mutexes  "), "what was run: {said}");
    // Otherwise it would run for 30 s.
    assert!(started.elapsed() < ms(12_000), "{:?}", started.elapsed());
    let temporary: Vec<_> = fs::read_dir(field.dir.path()).unwrap().collect();
    assert!(temporary.is_empty(), "{temporary:?}");
    assert_eq!(field.fleet.leftover_locks("quorate"), Vec::<String>::new());
}

#[test]
fn workers_end_when_the_torture_process_is_killed() {
    let field = Field::new(3);
    let load = field.torture(&["--duration", "60s"]);
    // Two processes start. Only a hang takes this long.
    let deadline = Instant::now() + ms(10_000);
    while field.workers().len() < 2 {
        assert!(Instant::now() < deadline);
        sleep(ms(20));
    }
    sleep(ms(500));
    load.signal(Signal::KILL);
    load.done();
    // They would run for 60 s.
    field.no_worker_within(ms(10_000));
    assert_eq!(field.fleet.leftover_locks("quorate"), Vec::<String>::new());
}

#[test]
fn a_process_that_is_killed_spoils_the_run_and_is_named() {
    let field = Field::new(3);
    let load = field.torture(&["--duration", "6s"]);
    field.under_way();
    kill_process(field.workers()[0], Signal::KILL).unwrap();
    complains(&load.done(), 70, "its history is incomplete");
    // This is less than the 6 s for which it would run.
    field.no_worker_within(ms(5_000));
    // The part that it recorded can still be judged after a look. The locks that it held stay for a ttl.
    sleep(ms(2_300));
    let look = ["torture", "look", "--history", &field.history()];
    assert!(field.quorate(&look).status().unwrap().success());
    let judged = field
        .quorate(&["torture", "judge", "--json", &field.history()])
        .output()
        .unwrap();
    let judgement = json(&judged, 0);
    assert!(judgement["sections"].as_u64().unwrap() > 0);
}

#[test]
fn problems_that_would_spoil_a_run_are_reported_before_it() {
    let field = Field::new(3);
    let torture = |words: &[&str]| {
        field
            .quorate(&[&["torture"], words].concat())
            .output()
            .unwrap()
    };
    let dir = field.dir.path().to_str().unwrap();
    let unanswered = torture(&["--store", "redis://:secret@127.0.0.1:1"]);
    let told = String::from_utf8_lossy(&unanswered.stderr);
    assert!(!told.contains("secret"), "{told}");
    complains(&unanswered, 69, "the store 127.0.0.1:1 does not answer");
    complains(&torture(&["--store", "nonsense"]), 64, "--store: ");
    complains(&torture(&["--ttl", "3s"]), 64, "max_ttl");
    complains(&torture(&["--processes", "0"]), 64, "--processes");
    complains(
        &torture(&["--names", "100"]),
        64,
        "are too few for 100 names",
    );
    complains(
        &torture(&["--several", "--names", "1"]),
        64,
        "--several needs --names of at least 2",
    );
    complains(&torture(&["--rwlock", "--several"]), 64, "--several");
    complains(&torture(&["--readers", "10"]), 64, "--rwlock");
    complains(
        &torture(&["--section", "fast"]),
        64,
        "is not a valid duration",
    );
    complains(&torture(&["run"]), 64, "--history DIR");
    complains(&torture(&["judge"]), 64, "<DIR>");
    complains(&torture(&["judge", dir]), 64, "no .jsonl file in");
    complains(&torture(&["judge", "/nowhere"]), 64, "cannot read /nowhere");
    let broken = field.dir.path().join("broken");
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("a.jsonl"), "{\"at\":1}\n").unwrap();
    complains(
        &torture(&["--history", broken.to_str().unwrap()]),
        64,
        "holds a history already",
    );
    complains(
        &torture(&["judge", broken.to_str().unwrap()]),
        64,
        "a.jsonl, line 1:",
    );
    complains(
        &torture(&["--history", "/proc/nowhere"]),
        70,
        "cannot write to /proc/nowhere",
    );
    for i in [0, 1] {
        field.fleet[i].kill9();
    }
    complains(&torture(&["--duration", "1s"]), 69, "no majority");
    assert!(!Path::new("/proc/nowhere").exists());
}
