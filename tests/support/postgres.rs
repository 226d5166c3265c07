//! One real Postgres, with a cluster of its own.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::port::Port;
use super::{installed, keeper};

/// The time that it may take to start, or that killed processes may take to vanish. The start after a crash repairs the
/// data, on a busy disk.
const PATIENCE: Duration = Duration::from_secs(20);

/// A Postgres on a port of 127.0.0.1, running or stopped by a test. Dropping it kills it and deletes its files. It
/// accepts every client that connects as `postgres`.
pub struct Postgres {
    port: Port,
    dir: TempDir,
    durable: bool,
    /// `None` while it is down.
    process: Mutex<Option<Child>>,
}

impl Postgres {
    /// Starts it without syncing to disk, which is quick.
    pub fn start() -> Postgres {
        Postgres::start_with(false)
    }

    /// Starts it so that committed data is on disk: `kill9` and `start_again` lose nothing.
    pub fn start_durable() -> Postgres {
        Postgres::start_with(true)
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port())
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn is_up(&self) -> bool {
        self.process().is_some()
    }

    /// The processes of a running server, its first one first.
    pub fn pids(&self) -> Vec<u32> {
        let first = self.process().as_ref().expect("the server is down").id();
        let mut pids = vec![first];
        pids.extend(children(first));
        pids
    }

    /// Ends all its processes as a power cut would. (The disk's own cache is not lost.) Does nothing if it is down.
    pub fn kill9(&self) {
        let Some(mut process) = self.process().take() else {
            return;
        };
        // While it is stopped it starts no more processes, so they can be counted.
        let first = Pid::from_child(&process);
        kill_process(first, Signal::STOP).expect("our own child");
        let children = children(process.id());
        process.kill().expect("our own child");
        process.wait().expect("our own child");
        for &pid in &children {
            // They end by themselves when the first process does, so they may be gone already.
            if is_postgres(pid) {
                let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        // A process that is left would keep the shared memory, and a new server could not start.
        let deadline = Instant::now() + PATIENCE;
        while children.iter().any(|&pid| is_postgres(pid)) {
            assert!(
                Instant::now() < deadline,
                "{self} is killed and still there"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts it after `kill9`, on the same port, with its files as they are.
    pub fn start_again(&self) {
        assert!(!self.is_up(), "{self} is up");
        if let Err(why) = self.launch() {
            panic!("{why}");
        }
    }
}

// How it starts.
impl Postgres {
    fn start_with(durable: bool) -> Postgres {
        let template = template();
        for _ in 0..10 {
            let server = Postgres {
                port: Port::claim(),
                dir: tempdir(),
                durable,
                process: Mutex::new(None),
            };
            copy(&template, &server.data());
            match server.launch() {
                Ok(()) => return server,
                // As in `server`: a program that does not know of our claims was faster.
                Err(why) if why.contains("Address already in use") => continue,
                Err(why) => panic!("{why}"),
            }
        }
        panic!("ten ports in a row were taken by others");
    }

    /// Starts the process and waits until it answers. The error says why it does not.
    fn launch(&self) -> Result<(), String> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("our own directory");
        let mut command = keeper::command(&program("postgres"));
        as_servers_user(&mut command);
        command.arg("-D").arg(self.data());
        let port = self.port();
        let sockets = self.dir().display();
        for setting in [
            format!("port={port}"),
            format!("unix_socket_directories={sockets}"),
            "listen_addresses=127.0.0.1".into(),
            "shared_buffers=16MB".into(),
            "max_connections=100".into(),
            format!("fsync={}", self.durable),
            format!("full_page_writes={}", self.durable),
        ] {
            command.arg("-c").arg(setting);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        let process = keeper::spawn(command);
        let pid = process.id();
        *self.process() = Some(process);

        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready(pid) {
            let ended = match self.process().as_mut().map(Child::try_wait) {
                Some(Ok(None)) => None,
                ended => Some(ended),
            };
            if ended.is_some() || Instant::now() > deadline {
                self.kill9();
                let tail = self.log_tail();
                return Err(match ended {
                    Some(status) => format!("{self} ended at its start ({status:?}):\n{tail}"),
                    None => format!("{self} does not get ready:\n{tail}"),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Returns true if its pid file says so. pg_ctl looks there too. After a kill the file is at first that of the old
    /// process.
    fn is_ready(&self, pid: u32) -> bool {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = file.lines();
        lines.next() == Some(&pid.to_string())
            && lines.nth(6).is_some_and(|status| status.trim() == "ready")
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn log(&self) -> PathBuf {
        self.dir().join("server.log")
    }

    fn data(&self) -> PathBuf {
        self.dir().join("data")
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        // A test that panicked elsewhere must still be able to clean up.
        self.process
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill9();
    }
}

impl std::fmt::Display for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Postgres on 127.0.0.1:{}", self.port())
    }
}

// ---- programs, users and files -----------------------------------------------------------------

fn program(name: &str) -> PathBuf {
    let directory = match std::env::var_os("QUORATE_TEST_POSTGRES") {
        Some(path) => PathBuf::from(path),
        None => installed("postgresql-bin"),
    };
    let program = directory.join(name);
    assert!(
        program.exists(),
        "no {} there: run tests/install-servers.sh (make test does)",
        program.display()
    );
    program
}

/// A new, empty cluster, to be copied. Making one takes longer than most tests, so it is made once for each version,
/// and kept.
fn template() -> PathBuf {
    let version = run(Command::new(program("postgres")).arg("--version"));
    // It is also made once for each user, because it must belong to that user.
    let name = format!(
        "{version} {}",
        servers_user().map_or(geteuid().as_raw(), |(uid, _)| uid)
    );
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let template = installed(&name);
    let shelf = template.parent().expect("in a folder");
    if !template.exists() {
        let made = tempdir();
        let mut initdb = Command::new(program("initdb"));
        as_servers_user(&mut initdb);
        initdb
            .current_dir("/") // which every user may read
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync", "--no-instructions"])
            .args(["--wal-segsize=1", "-D"])
            .arg(made.path().join("data"));
        run(&mut initdb);
        // The cluster is made next to its place and then renamed, so nobody sees half of it. If two are made at the
        // same time, the first one is used.
        fs::create_dir_all(shelf).expect("our own directory");
        let beside = tempfile::tempdir_in(shelf).expect("our own directory");
        copy(&made.path().join("data"), &beside.path().join("data"));
        if let Err(error) = fs::rename(beside.path().join("data"), &template) {
            assert!(template.exists(), "{}: {error}", template.display());
        }
    }
    template
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").args([from, to]));
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn tempdir() -> TempDir {
    let dir = tempfile::Builder::new()
        .prefix("quorate-test-")
        .tempdir()
        .expect("a temporary directory");
    if let Some((uid, gid)) = servers_user() {
        chown(dir.path(), Some(uid), Some(gid)).expect("root may");
    }
    dir
}

fn as_servers_user(command: &mut Command) {
    if let Some((uid, gid)) = servers_user() {
        command.uid(uid).gid(gid);
    }
}

/// The user that runs Postgres, which does not run as root. Tests that run as root use `postgres` or, if there is no
/// such user, `nobody`.
fn servers_user() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("users");
    let user = ["postgres", "nobody"].into_iter().find_map(|name| {
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let id = fields
                .next()
                .filter(|user| *user == name)
                .and(fields.nth(1))?;
            Some((id.parse().ok()?, fields.next()?.parse().ok()?))
        })
    });
    Some(user.expect("a user `postgres` or `nobody`, for a server that does not run as root"))
}

fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name, in parentheses, may hold anything. The state and the parent follow it.
        let parent_of_pid = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split(' ').nth(2));
        if parent_of_pid == Some(&parent.to_string()) {
            found.push(pid);
        }
    }
    found
}

/// Returns true if the process is alive and is still a Postgres. It may be a zombie, which a container without an init
/// process may keep, or the pid may belong to another process by now.
fn is_postgres(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains("postgres")
}
