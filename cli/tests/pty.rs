//! A user at a terminal: a shell with job control on a terminal of its own, with typed keys and the output that is
//! shown.

#![allow(unreachable_pub)]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use pty_process::blocking::{Command as OnTerminal, Pty, open};
use tempfile::TempDir;

use crate::command::{PATIENCE, in_env_of};

/// The shell's prompt. No other program prints it.
const PROMPT: &str = "READY> ";

pub const CTRL_C: &str = "\x03";
pub const CTRL_Z: &str = "\x1a";

/// A terminal with a folder of its own, and a program that runs there. Running programs get a hangup when this is
/// dropped.
pub struct Terminal {
    pty: Arc<Pty>,
    program: Child,
    dir: TempDir,
    chunks: Receiver<Vec<u8>>,
    /// Everything that was shown, and how much of it was already searched.
    shown: String,
    seen: usize,
}

impl Terminal {
    /// Starts a shell at its prompt. It finds the programs of `path`, and has the environment of `like`.
    pub fn shell(like: &Command, path: &Path) -> Terminal {
        let mut shell = Command::new("bash");
        // The line editor is off, because it would change the terminal's modes and show more than what is typed.
        shell.args(["--norc", "--noprofile", "--noediting", "-i"]);
        shell.env("PS1", PROMPT).env("PS2", "");
        let old = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{old}", path.display()));
        let mut terminal = Terminal::of(in_env_of(like, shell));
        terminal.expect(PROMPT);
        terminal
    }

    /// Starts this program, which leads the session, so no shell is there.
    pub fn of(mut program: Command) -> Terminal {
        let dir = tempfile::tempdir().expect("a folder");
        program.current_dir(dir.path()).env("TERM", "dumb");
        let (pty, pts) = open().expect("a terminal");
        let program = OnTerminal::from(program).spawn(pts).expect("bash");
        let pty = Arc::new(pty);
        let (sender, chunks) = channel();
        let reader = Arc::clone(&pty);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is the end: nobody has the other side open any more.
            while let Ok(n @ 1..) = (&*reader).read(&mut bytes) {
                if sender.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            pty,
            program,
            dir,
            chunks,
            shown: String::new(),
            seen: 0,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file in the terminal's folder.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("our own folder");
    }

    /// The content of a file so far. Empty if the file does not exist yet.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Types keys as they are.
    pub fn keys(&self, keys: &str) {
        (&*self.pty)
            .write_all(keys.as_bytes())
            .expect("our own terminal");
    }

    /// Types a line for the shell, or for the program that reads from the terminal.
    pub fn line(&self, line: &str) {
        self.keys(&format!("{line}\n"));
    }

    /// Waits until this is shown, after the part that was already searched.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.chunks.recv_timeout(left) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout) => self.miss(&format!("{text:?} is not shown")),
                Err(RecvTimeoutError::Disconnected) => {
                    self.miss(&format!("all is over, and {text:?} was not shown"))
                }
            }
        }
    }

    /// Waits until the shell is ready for a command.
    #[track_caller]
    pub fn expect_prompt(&mut self) {
        self.expect(PROMPT);
    }

    /// Waits until the shell says that the foreground job was stopped, and is ready for a command.
    #[track_caller]
    pub fn expect_stopped(&mut self) {
        self.expect("Stopped");
        self.expect_prompt();
    }

    /// Checks the exit status of the program that ended last.
    #[track_caller]
    pub fn expect_status(&mut self, status: i32) {
        self.expect_prompt();
        self.line("echo \"status <${PIPESTATUS[0]}>\"");
        self.expect(&format!("status <{status}>"));
        self.expect_prompt();
    }

    /// Types this line again and again, until the shell answers with this.
    #[track_caller]
    pub fn ask_until(&mut self, line: &str, answer: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let from = self.seen;
            self.line(line);
            self.expect_prompt();
            if self.shown[from..self.seen].contains(answer) {
                return;
            }
            if Instant::now() > deadline {
                self.miss(&format!("{line:?} never answers {answer:?}"));
            }
        }
    }

    /// Waits until the condition holds.
    #[track_caller]
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            if Instant::now() > deadline {
                self.miss(&format!("in vain: {what}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The process that wrote its number to this file.
    #[track_caller]
    pub fn pid(&self, file: &str) -> Process {
        let mut pid = None;
        self.until(&format!("a number in {file}"), || {
            let text = self.read(file);
            pid = text.strip_suffix('\n').and_then(|pid| pid.parse().ok());
            pid.is_some()
        });
        Process(pid.expect("it was just there"))
    }

    #[track_caller]
    fn miss(&self, what: &str) -> ! {
        let processes = Command::new("ps")
            .args(["-o", "pid,ppid,pgid,tpgid,stat,args", "-s"])
            .arg(self.program.id().to_string())
            .output();
        let processes = processes.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
        panic!(
            "{what}; shown:\n{}\n--- looked for after {:?}; processes:\n{}",
            self.shown,
            &self.shown[self.seen..],
            processes.unwrap_or_default()
        );
    }

    /// Waits until the program has ended.
    #[track_caller]
    pub fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.program.try_wait().expect("our own child") {
                return status.code();
            }
            if Instant::now() > deadline {
                self.miss("it does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A shell passes a hangup on to its jobs, which may be stopped or in the background.
        if let Ok(None) = self.program.try_wait() {
            Process(self.program.id()).signal("HUP");
            let deadline = Instant::now() + Duration::from_secs(2);
            while matches!(self.program.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = self.program.kill();
            let _ = self.program.wait();
        }
    }
}

/// A process that a test examines.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

impl Process {
    /// Its state, parent, group, session and terminal, and the terminal's foreground group, as the kernel reports them.
    fn stat(self) -> Option<[String; 6]> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        // The name is in brackets and may contain anything.
        let mut words = stat[stat.rfind(')')? + 1..]
            .split_whitespace()
            .map(str::to_owned);
        let mut next = || words.next();
        Some([next()?, next()?, next()?, next()?, next()?, next()?])
    }

    pub fn parent(self) -> Process {
        let [_, parent, ..] = self.stat().expect("it runs");
        Process(parent.parse().expect("a number"))
    }

    pub fn is_stopped(self) -> bool {
        self.stat().is_some_and(|[state, ..]| state == "T")
    }

    /// Returns true if the terminal's keys go to its process group.
    pub fn is_in_foreground(self) -> bool {
        self.stat()
            .is_some_and(|[_, _, group, _, _, foreground]| group == foreground)
    }

    /// Returns true if it has ended. Its parent may not have waited for it yet.
    pub fn is_gone(self) -> bool {
        self.stat()
            .is_none_or(|[state, ..]| state == "Z" || state == "X")
    }

    pub fn signal(self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.0);
        let done = Command::new("sh").args(["-c", &kill]).status();
        assert!(done.expect("sh").success(), "{kill}");
    }
}
