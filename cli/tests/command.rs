//! Runs the `quorate` command for the tests: [`run`] waits for its end, and [`Running`] is for tests that act while it
//! runs.
//!
//! This is not a part of `support`, which the library's own tests use too: a path to the command exists only where
//! cargo has built it.

#![allow(unreachable_pub)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Fleet, HANG, Kind};

pub const QUORATE: &str = env!("CARGO_BIN_EXE_quorate");
/// A script for [`Wire::lock`]: it prints "up" and then stays.
pub const STAY: &str = "echo up >&9; exec sleep 60";
/// The limit for things that happen soon. It is far more than they need on a busy machine.
pub const PATIENCE: Duration = HANG;

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The result of a run.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Done {
    #[track_caller]
    pub fn is(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "no {text:?} in {self:#?}");
        self
    }

    #[track_caller]
    pub fn prints(self, text: &str) -> Self {
        assert!(self.out.contains(text), "no {text:?} in {self:#?}");
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    #[track_caller]
    pub fn json_error(&self) -> Value {
        // The command's shell may have printed something before.
        serde_json::from_str(self.err.lines().last().unwrap_or(""))
            .unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// The program with these servers, and without the settings of this process.
pub fn quorate(urls: &[String], args: &[&str]) -> Command {
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

/// Runs `program` with the settings that [`quorate`] gave to `like`.
pub fn in_env_of(like: &Command, mut program: Command) -> Command {
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => program.env(name, value),
            None => program.env_remove(name),
        };
    }
    program
}

/// A running command, which is killed at the end of the test.
pub struct Running {
    pub child: Child,
    pub since: Instant,
    /// `None` when its reader has gone.
    out: Option<BufReader<ChildStdout>>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let since = Instant::now();
        let mut child = command.spawn().expect("it was just built");
        let out = child.stdout.take().map(BufReader::new);
        Self { child, since, out }
    }

    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child");
    }

    /// Waits until it has a handler for this signal. Before that a signal would just kill it.
    #[track_caller]
    pub fn until_caught(&self, signal: Signal) {
        let end = Instant::now() + PATIENCE;
        let status = format!("/proc/{}/status", self.child.id());
        while !has_signal(&status, "SigCgt:", signal) {
            assert!(Instant::now() < end, "it does not catch {signal:?}");
            std::thread::sleep(ms(5));
        }
    }

    /// The next line that it prints, or `None` when it has ended.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let out = self.out.as_mut().expect("somebody reads it");
        let read = out.read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Reads on until a line contains `words`.
    #[track_caller]
    pub fn until(&mut self, words: &str) -> String {
        let mut before = Vec::new();
        loop {
            match self.line() {
                Some(line) if line.contains(words) => return line,
                Some(line) => before.push(line),
                None => panic!("it ended without {words:?}: {before:#?}"),
            }
        }
    }

    /// From now on nobody reads its output.
    pub fn reader_goes(&mut self) {
        self.out = None;
    }

    /// Waits until it ends. Output that was read before is not in [`Done::out`].
    #[track_caller]
    pub fn done(mut self) -> Done {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(ms(2));
        };
        let took = self.since.elapsed();
        // A background process could keep these open, but no command of the tests starts one.
        let (mut out, mut err) = (String::new(), String::new());
        if let Some(mut rest) = self.out.take() {
            rest.read_to_string(&mut out).unwrap();
        }
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
pub fn run(urls: &[String], args: &[&str]) -> Done {
    Running::start(quorate(urls, args)).done()
}

/// Servers that vote.
pub fn fleet(n: usize) -> Fleet {
    let fleet = Fleet::start(n, Kind::Redis);
    run(&fleet.urls(), &["bootstrap", "--force"]).is(0);
    fleet
}

/// The locks that stay behind. A release that is under way gets 2 s, far less than the default ttl of 10 s.
pub fn leftovers(fleet: &Fleet) -> Vec<String> {
    fleet.leftover_locks_after(ms(2000), "quorate")
}

/// Returns true if this process ignores a signal, as a job that a script put in the background may. Its children ignore
/// it too then.
pub fn ignored(signal: Signal) -> bool {
    has_signal("/proc/self/status", "SigIgn:", signal)
}

/// Returns true if a signal is in one of the masks of a process, whose `status` file this is.
fn has_signal(status: &str, mask: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string(status).unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix(mask))
        .unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

/// Runs a shell script on a terminal of its own, with the settings of `like`.
pub fn on_a_terminal(like: &Command, script: &str) -> Running {
    let mut terminal = Command::new("script");
    terminal.args(["-qec", script, "/dev/null"]);
    terminal.env("SHELL", "/bin/sh").stdin(Stdio::piped());
    Running::start(in_env_of(like, terminal))
}

/// A FIFO that processes of a test hold open. Each line that they write comes with its time. The end comes when the
/// last of them is dead.
pub struct Wire {
    pub dir: TempDir,
    lines: Receiver<(Instant, Option<String>)>,
}

impl Wire {
    pub fn new() -> Self {
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
            // This waits for the first writer.
            let reader = BufReader::new(File::open(path).unwrap());
            for line in reader.lines() {
                let _ = sender.send((Instant::now(), line.ok()));
            }
            let _ = sender.send((Instant::now(), None));
        });
        Self { dir, lines }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("wire")
    }

    /// The next line, or `None` when all processes are dead.
    #[track_caller]
    pub fn next(&self) -> (Instant, Option<String>) {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("something on the wire")
    }

    #[track_caller]
    pub fn expect(&self, text: &str) -> Instant {
        let (at, line) = self.next();
        assert_eq!(line.as_deref(), Some(text));
        at
    }

    /// Runs this script under the lock, with the wire as its descriptor 9.
    pub fn lock(&self, urls: &[String], args: &[&str], script: &str) -> Running {
        self.under("lock", urls, args, script)
    }

    /// The same under a slot of a semaphore.
    pub fn semaphore(&self, urls: &[String], args: &[&str], script: &str) -> Running {
        self.under("semaphore", urls, args, script)
    }

    fn under(&self, what: &str, urls: &[String], args: &[&str], script: &str) -> Running {
        let mut command = quorate(urls, &[what]);
        let script = format!("exec 9>'{}'\n{script}", self.path().display());
        command.args(args).args(["--", "sh", "-c", &script]);
        Running::start(command)
    }
}
