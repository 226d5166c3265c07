//! `quorate lock` passes signals on to its command, and no command runs on without its lock.

use std::ffi::OsStr;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::command::{
    PATIENCE, QUORATE, Running, STAY, Wire, fleet, ignored, in_env_of, leftovers, ms, quorate, run,
};
use crate::support::Stalls;
use rustix::process::{Signal, getgid, getuid};
use tempfile::TempDir;

/// A command and its child, which both get SIGTERM and go on. Each prints that it got the signal, in either order.
const STUBBORN: &str = "
    sh -c 'trap \"echo term >&9\" TERM; echo up >&9; while :; do sleep 0.02; done' &
    trap 'echo term >&9' TERM; echo up >&9; while :; do sleep 0.02; done";

// ---- signals --------------------------------------------------------------------------------

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
    // A background process of a shell without job control ignores INT and QUIT. So the grandchild runs in the
    // foreground, and the child handles its signals when the grandchild has ended.
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
    // nohup does the same.
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh", QUORATE]);
    nohup.args(["lock", "a", "--", "sh", "-c", &inner]);
    nohup.stdin(Stdio::null());
    let running = Running::start(in_env_of(&quorate(&fleet.urls(), &[]), nohup));
    wire.expect("up");
    running.signal(Signal::HUP);
    std::thread::sleep(ms(100));
    running.signal(Signal::USR1);
    wire.expect("usr1");
    running.done().is(0);
}

/// Waits until every node has one waiter for "a".
/// Returns true if the command of `words` ignores SIGPIPE when its caller did.
fn pipe_is_ignored(urls: &[String], caller: &str, words: &[&str]) -> bool {
    let all = [words, &["--", "cat", "/proc/self/status"]].concat();
    let like = quorate(urls, &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{caller}; exec \"$@\"")]);
    shell.args(["sh", QUORATE]).args(all);
    let done = Running::start(in_env_of(&like, shell)).done().is(0);
    let mut lines = done.out.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    mask & (1 << (Signal::PIPE.as_raw() - 1)) != 0
}

/// systemd ignores it for its services.
#[test]
fn sigpipe_is_for_the_command_as_it_was_for_quorate() {
    let fleet = fleet(1);
    let urls = fleet.urls();
    let words = [
        &["lock", "a"][..],
        &["lock", "a", "--read"],
        &["semaphore", "s", "--limit", "1"],
        &["limit", "r", "--rate", "100/s"],
        &["lock", "a", "--keep-env", "--", QUORATE, "lock", "b"],
    ];
    for words in words {
        assert!(pipe_is_ignored(&urls, "trap '' PIPE", words), "{words:?}");
        assert!(!pipe_is_ignored(&urls, ":", words), "{words:?}");
    }
    // The other way to start a command keeps its environment and its errors.
    for (caller, command) in [
        ("trap '' PIPE", "no-such-command"),
        (":", "no-such-command"),
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{caller}; exec \"$@\""), "sh", QUORATE]);
        shell.args(["limit", "r", "--rate", "100/s", "--", command]);
        let like = quorate(&urls, &[]);
        Running::start(in_env_of(&like, shell))
            .done()
            .is(127)
            .says("\"no-such-command\" was not found");
    }
    let mut shell = Command::new("sh");
    let script = "trap '' PIPE; exec \"$@\"";
    shell.args(["-c", script, "sh", QUORATE, "limit", "r", "--rate", "100/s"]);
    let like = quorate(&urls, &[]);
    let done = Running::start(in_env_of(&like, {
        shell.args(["--", "env"]);
        shell
    }))
    .done()
    .is(0)
    .prints("QUORATE_NAME=r");
    assert!(!done.out.contains("QUORATE_NODES="), "{done:#?}");
}

fn until_one_waits(urls: &[String]) {
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = run(urls, &["inspect", "a", "--json"]).is(0).json();
        let nodes = seen["nodes"].as_array().unwrap();
        if nodes.iter().all(|node| node["waiting"] == 1) {
            return;
        }
        assert!(Instant::now() < end, "{seen}");
    }
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
        until_one_waits(&urls);
        waiter.signal(signal);
        let told = Instant::now();
        let done = waiter.done().is(code).says("quorate: ended while waiting");
        // The time that a process takes to end on a busy machine. The wait would have no end.
        assert!(told.elapsed() < ms(2700), "{:?}", told.elapsed());
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

/// Counts the children of a process, zombies too.
fn children(parent: u32) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let stats = processes.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
    let is_child = |stat: &String| {
        // The name, which may hold anything, is followed by the state and the parent.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        rest.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    stats.filter(is_child).count()
}

/// As process 1 of a container, this process becomes the parent of everything that the command's children leave behind.
/// As a subreaper it does too, and that needs no rights.
#[test]
fn orphans_of_the_command_do_not_stay_zombies() {
    // prctl(PR_SET_CHILD_SUBREAPER). The setting survives the exec.
    let prctl = if cfg!(target_arch = "x86_64") {
        157
    } else {
        167
    };
    let reaps = format!("syscall({prctl}, 36, 1, 0, 0, 0) == 0 or die $!; exec @ARGV");
    let fleet = fleet(1);
    let wire = Wire::new();
    let script = format!(
        "exec 9>'{}'; for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.01 &) ; done; sleep 0.3; echo up >&9; exec sleep 60",
        wire.path().display()
    );
    let mut reaper = Command::new("perl");
    reaper.args([
        "-e", &reaps, QUORATE, "lock", "a", "--", "sh", "-c", &script,
    ]);
    reaper.stdin(Stdio::null());
    let running = Running::start(in_env_of(&quorate(&fleet.urls(), &[]), reaper));
    wire.expect("up");
    let end = Instant::now() + PATIENCE;
    while children(running.child.id()) != 1 {
        let zombies = children(running.child.id());
        assert!(
            Instant::now() < end,
            "{zombies} children, not only the command"
        );
        std::thread::sleep(ms(10));
    }
    running.signal(Signal::TERM);
    running.done().is(143);
}

// ---- losing the lock ------------------------------------------------------------------------

#[test]
fn a_command_whose_lock_is_evicted_is_told_and_then_killed() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let ttl = ms(10_000);
    let wire = Wire::new();
    let running = wire.lock(&urls, &["a", "--ttl", "10s"], STUBBORN);
    wire.expect("up");
    wire.expect("up");
    run(&urls, &["evict", "a", "--yes"]).is(0);
    let evicted = Instant::now();
    let told = wire.expect("term");
    wire.expect("term");
    let (dead, line) = wire.next();
    assert_eq!(line, None, "child and grandchild are dead");
    // The loss is announced at the next renewal, after a third of the ttl.
    assert!(told - evicted < ttl / 2, "{:?}", told - evicted);
    // 80 % of the notice, which is a twentieth of the ttl. So the kill does not come at once.
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
fn a_command_that_ends_cleanly_after_an_eviction_exits_79() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let script = "trap 'echo term >&9; exit 0' TERM; echo up >&9; while :; do sleep 0.01; done";
    let running = wire.lock(&urls, &["a", "--ttl", "10s", "--json"], script);
    wire.expect("up");
    run(&urls, &["evict", "a", "--yes"]).is(0);
    wire.expect("term");
    let error = running.done().is(79).json_error();
    assert_eq!(error["error"], "lost");
}

#[test]
fn without_a_majority_the_command_is_dead_before_its_lock_expires() {
    let fleet = fleet(3);
    let ttl = ms(8000);
    let machine = Stalls::watch();
    let wire = Wire::new();
    let running = wire.lock(&fleet.urls(), &["a", "--ttl", "8s"], STUBBORN);
    // The lock was asked for before that, and it is renewed only after a third of the ttl.
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
    let late = dead.saturating_duration_since(end);
    assert!(late <= machine.longest(), "{late:?} too late");
    assert!(told > end - ttl / 10, "{:?} too early", end - told);
    fleet[0].sigcont();
    fleet[1].sigcont();
    running.done().is(79).says("could not be renewed");
    // It waits for a majority to confirm the release. A server that comes back later keeps the lock for its ttl.
    assert!(leftovers(&fleet).len() <= 1, "{:?}", leftovers(&fleet));
    assert_eq!(
        fleet.leftover_locks_after(ttl, "quorate"),
        Vec::<String>::new()
    );
}

#[test]
fn a_quorate_that_was_stopped_beyond_its_lease_kills_at_once() {
    let fleet = fleet(3);
    let wire = Wire::new();
    let running = wire.lock(&fleet.urls(), &["a", "--ttl", "3s"], STUBBORN);
    wire.expect("up");
    wire.expect("up");
    running.signal(Signal::STOP);
    std::thread::sleep(ms(3300));
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
    // The kernel ends it at once. This is far below the ttl of 10 s.
    assert!(dead - killed < ms(2000), "{:?}", dead - killed);
    drop(running);
}

// ---- commands that cannot be ended, and what they leave behind ------------------------------

/// The group of this test's processes. No user or other program has it, because neither `adduser` nor systemd assigns
/// this number.
const GROUP: u32 = 61_000;

/// Runs a script that only root may run.
#[track_caller]
fn as_root(script: &str) {
    let mut command = match getuid().is_root() {
        true => Command::new("sh"),
        false => {
            let mut sudo = Command::new("sudo");
            sudo.args(["-n", "sh"]);
            sudo
        }
    };
    let done = command.args(["-c", script]).status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "this test makes a process that may not be signalled, which needs root, or a `sudo -n` that works; this failed: \
         {script}"
    );
}

/// A program that runs other programs as root, as sudo does, for this test alone. Nobody else may run it or enter its
/// folder. Both are removed when this is dropped. If the test is killed before that, the leftovers are of no use to
/// anybody.
struct BecomeRoot {
    program: PathBuf,
    _dir: TempDir,
}

impl BecomeRoot {
    #[track_caller]
    fn install() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("become-root");
        let (folder, file) = (dir.path().display(), program.display());
        let group = match getuid().is_root() {
            true => GROUP,
            // The folder belongs to this user alone, who can become root anyway.
            false => getgid().as_raw(),
        };
        // The program cannot be used before it is out of reach of others.
        as_root(&format!(
            "install -o root -g {group} -m 4710 \"$(command -v setpriv)\" '{file}'"
        ));
        if getuid().is_root() {
            as_root(&format!(
                "! getent group {GROUP} && chgrp {GROUP} '{folder}' && chmod 710 '{folder}'"
            ));
        }
        let this = Self { program, _dir: dir };
        let id = ["--reuid", "0", "--", "id", "-u"];
        let who = this.user(&this.program).args(id).output();
        assert!(
            who.as_ref().is_ok_and(|it| it.stdout == b"0\n"),
            "this test needs set-user-ID programs to work in {}: no `nosuid` mount, and no no-new-privileges for this \
             process (a container's setting): {who:?}",
            std::env::temp_dir().display()
        );
        this
    }

    /// `program`, run by a user who is not root and may start the program above.
    fn user(&self, program: impl AsRef<OsStr>) -> Command {
        if !getuid().is_root() {
            return Command::new(program);
        }
        let group = GROUP.to_string();
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            &group,
            "--clear-groups",
            "--",
        ]);
        command.arg(program);
        command
    }
}

#[test]
fn a_command_that_may_not_be_signalled_is_said_to_run_on() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let root = BecomeRoot::install();
    let script = format!(
        "exec 9>'{}' > /dev/null 2>&1; echo $$ >&9; exec sleep 60",
        wire.path().display()
    );
    let mut command = root.user(QUORATE);
    command.args(["lock", "a", "--ttl", "2s", "--"]);
    command.arg(&root.program).stdin(Stdio::null());
    command.args(["--reuid", "0", "--", "sh", "-c", &script]);
    let running = Running::start(in_env_of(&quorate(&urls, &[]), command));
    let group = wire.next().1.expect("its number");

    for signal in [Signal::TERM, Signal::USR1, Signal::USR2] {
        running.signal(signal);
    }
    run(&urls, &["evict", "a", "--yes"]).is(0);
    let done = running
        .done()
        .is(79)
        .says(&format!(
            "could not be ended: it may not be signalled (does it run as another user, as under sudo?) and may \
             still run, process group {group}"
        ));
    assert!(!done.err.contains("then killed"), "{done:#?}");
    let told = done
        .err
        .matches("was not passed on: it may not be signalled");
    assert_eq!(told.count(), 1, "{done:#?}");

    as_root(&format!("kill -KILL {group}"));
    assert_eq!(wire.next().1, None, "it did run on");
}

/// A command that ends at once with status 3. It leaves a process behind that prints "usr1" when it gets the signal,
/// and one that ends when there is a file `end` beside the wire.
const LEAVES: &str = "
    sh -c 'trap \"echo usr1 >&9\" USR1; trap \"echo term >&9\" TERM; echo up >&9
           while [ ! -e \"$END\" ]; do sleep 0.02; done' > /dev/null 2>&1 &
    exit 3";

#[test]
fn processes_left_behind_by_the_command_run_on_without_the_lock() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let end = wire.path().with_file_name("end");
    let script = format!("export END='{}'; {LEAVES}", end.display());
    let running = wire.lock(&urls, &["a"], &script);
    wire.expect("up");
    running.done().is(3);
    let seen = run(&urls, &["inspect", "a", "--json"]).is(0).json();
    assert_eq!(seen["held"], false);
    File::create(end).unwrap();
    assert_eq!(wire.next().1, None, "it was not ended");
}

#[test]
fn with_whole_group_processes_left_behind_keep_the_lock() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let end = wire.path().with_file_name("end");
    let script = format!("export END='{}'; {LEAVES}", end.display());
    let ttl = ms(1000);
    let args = ["a", "--ttl", "1s", "--whole-group"];
    let running = wire.lock(&urls, &args, &script);
    wire.expect("up");
    // This is long enough to need renewals.
    std::thread::sleep(ttl * 3 / 2);
    let seen = run(&urls, &["inspect", "a", "--json"]).is(0).json();
    assert_eq!(seen["held"], true);
    running.signal(Signal::USR1);
    wire.expect("usr1");
    File::create(&end).unwrap();
    running.done().is(3);
    assert_eq!(wire.next().1, None);
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
    std::fs::remove_file(end).unwrap();

    // The process that is left behind is ended when the lock is lost.
    let wire = Wire::new();
    // It has 80 % of a twentieth of the ttl between the two signals.
    let args = ["a", "--ttl", "8s", "--whole-group"];
    let running = wire.lock(&urls, &args, LEAVES);
    wire.expect("up");
    run(&urls, &["evict", "a", "--yes"]).is(0);
    wire.expect("term");
    assert_eq!(wire.next().1, None);
    running.done().is(79).says("then killed");
}
