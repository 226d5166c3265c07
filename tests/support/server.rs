//! One real server process, with all the faults that it can have.

mod options;

pub use options::{Kind, ServerOptions};

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use redis::FromRedisValue;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::keeper;
use super::port::Port;

/// The time that a server may take to answer, to stop or to catch up with its master. This is far more than it needs.
const PATIENCE: Duration = super::HANG;

/// A server, running or stopped by a test. Dropping it kills the process and deletes its files.
///
/// All methods take `&self`, so that a test can stop servers while others talk to them. `conn`, `cmd` and `keys` are
/// the test's own access, through a unix socket beside the port. They see the server as it is, no matter what is in
/// front of the port.
pub struct Server {
    options: ServerOptions,
    port: Port,
    cluster_port: Option<Port>,
    dir: TempDir,
    /// By how many seconds its wall clock is wrong, if it has a clock of its own.
    clock_off: AtomicI64,
    /// `None` while it is down.
    process: Mutex<Option<Child>>,
}

// Addresses.
impl Server {
    pub fn start(kind: Kind) -> Server {
        ServerOptions::new(kind).start()
    }

    pub fn kind(&self) -> Kind {
        self.options.kind
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL for the default user, with its password if it has one.
    pub fn url(&self) -> String {
        self.url_through(self.port())
    }

    /// The URL for another user, or with another password.
    pub fn url_with(&self, user: &str, password: &str) -> String {
        format!(
            "{}://{user}:{password}@127.0.0.1:{}",
            self.scheme(),
            self.port()
        )
    }

    /// The unix socket, which every server of the tests has beside its port.
    pub fn unix_url(&self) -> String {
        let path = self.socket().display().to_string();
        match &self.options.password {
            Some(password) => format!("unix://{path}?pass={password}"),
            None => format!("unix://{path}"),
        }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The id of the process, which must be running.
    pub fn pid(&self) -> u32 {
        let process = self.process();
        process.as_ref().expect("the server is down").id()
    }

    pub fn is_up(&self) -> bool {
        self.process().is_some()
    }

    /// The same URL with another port, for a program between a client and this server.
    pub(super) fn url_through(&self, port: u16) -> String {
        let scheme = self.scheme();
        match &self.options.password {
            Some(password) => format!("{scheme}://:{password}@127.0.0.1:{port}"),
            None => format!("{scheme}://127.0.0.1:{port}"),
        }
    }

    fn scheme(&self) -> &'static str {
        if self.options.tls.is_some() {
            "rediss"
        } else {
            "redis"
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("server.sock")
    }
}

// Requests.
impl Server {
    /// A fresh connection as the default user. It gives up when the server is silent for 20 s (SIGSTOP), so that no test
    /// hangs.
    pub fn conn(&self) -> redis::Connection {
        self.try_conn()
            .unwrap_or_else(|error| panic!("{self}: {error}"))
    }

    /// Sends one command on a connection of its own. An error reply ends the test.
    pub fn cmd(&self, words: &[&str]) -> redis::Value {
        self.try_cmd(words)
            .unwrap_or_else(|error| panic!("{self}: {words:?}: {error}"))
    }

    /// Sends one command that may be refused.
    pub fn try_cmd(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.try_conn()?)
    }

    /// All keys, sorted, each with its remaining time in ms (-1 means for ever).
    pub fn keys(&self) -> Vec<(String, i64)> {
        let mut conn = self.conn();
        let names: Vec<Vec<u8>> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut conn)
            .unwrap_or_else(|error| panic!("{self}: KEYS: {error}"));
        let mut keys = Vec::new();
        for name in names {
            let pttl: i64 = redis::cmd("PTTL")
                .arg(&name)
                .query(&mut conn)
                .unwrap_or_else(|error| panic!("{self}: PTTL: {error}"));
            // -2 means that it expired since it was listed.
            if pttl != -2 {
                keys.push((String::from_utf8_lossy(&name).into_owned(), pttl));
            }
        }
        keys.sort();
        keys
    }

    /// The members of a sorted set, from this score on.
    pub fn scored(&self, key: &str, from: u64) -> Vec<String> {
        let all = self.cmd(&["ZRANGEBYSCORE", key, &from.to_string(), "+inf"]);
        Vec::from_redis_value(all).expect("a list")
    }

    /// Its TIME, in ms.
    pub fn wall_ms(&self) -> u64 {
        let (s, us) = <(u64, u64)>::from_redis_value(self.cmd(&["TIME"])).expect("TIME");
        s * 1000 + us / 1000
    }

    /// One field of INFO, such as `run_id` or `master_link_status`.
    pub fn info(&self, field: &str) -> Option<String> {
        let info: String = FromRedisValue::from_redis_value(self.cmd(&["INFO"])).expect("text");
        info.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .map(str::to_owned)
    }

    fn try_conn(&self) -> redis::RedisResult<redis::Connection> {
        let conn = redis::Client::open(self.unix_url())?.get_connection_with_timeout(PATIENCE)?;
        conn.set_read_timeout(Some(PATIENCE))?;
        Ok(conn)
    }
}

// Faults.
impl Server {
    /// Ends it as a power cut would. Does nothing if it is down.
    pub fn kill9(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill().expect("our own child");
            process.wait().expect("our own child");
        }
    }

    /// Ends it as an operator would, by SIGTERM.
    pub fn shutdown(&self) {
        let Some(mut process) = self.process().take() else {
            return;
        };
        signal(&process, Signal::TERM);
        signal(&process, Signal::CONT); // a stopped process would not notice the first signal
        let deadline = Instant::now() + PATIENCE;
        while process.try_wait().expect("our own child").is_none() {
            if Instant::now() > deadline {
                let _ = process.kill();
                let _ = process.wait();
                panic!("{self} does not end by SIGTERM:\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts it after `kill9` or `shutdown`, on the same port, with its old files.
    pub fn start_again(&self) {
        assert!(!self.is_up(), "{self} is up");
        if let Err(why) = self.launch() {
            panic!("{why}");
        }
    }

    /// Kills it and starts it without any memory, on the same port.
    pub fn restart_empty(&self) {
        self.kill9();
        self.forget();
        self.start_again();
    }

    /// Saves its present memory for `restart_with_snapshot`.
    pub fn save_snapshot(&self) {
        self.cmd(&["SAVE"]);
        fs::copy(self.dump(), self.snapshot()).expect("SAVE has written dump.rdb");
    }

    /// Kills it and starts it with the memory of `save_snapshot`, on the same port. It forgets everything that it
    /// answered since then.
    pub fn restart_with_snapshot(&self) {
        assert!(
            !self.options.appendonly,
            "with appendonly a server does not read dump.rdb"
        );
        self.kill9();
        fs::copy(self.snapshot(), self.dump()).expect("save_snapshot() comes first");
        self.start_again();
    }

    /// Stops the whole process. Its connections stay open.
    pub fn sigstop(&self) {
        self.signal(Signal::STOP);
    }

    pub fn sigcont(&self) {
        self.signal(Signal::CONT);
    }

    /// Makes it a replica of `master`, and returns when it has the master's data instead of its own.
    pub fn replicaof(&self, master: &Server) {
        assert!(master.options.tls.is_none(), "not made for TLS");
        if let Some(password) = &master.options.password {
            self.cmd(&["CONFIG", "SET", "masterauth", password]);
        }
        self.cmd(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        let deadline = Instant::now() + PATIENCE;
        while self.info("master_link_status").as_deref() != Some("up") {
            assert!(
                Instant::now() < deadline,
                "{self} does not become a replica of {master}:\n{}",
                self.log_tail()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn replicaof_no_one(&self) {
        self.cmd(&["REPLICAOF", "NO", "ONE"]);
    }

    fn signal(&self, what: Signal) {
        let process = self.process();
        signal(process.as_ref().expect("the server is down"), what);
    }
}

// Its clock.
impl Server {
    /// Steps the wall clock of a server with a clock of its own. From now on it is wrong by this many seconds.
    pub fn set_clock(&self, seconds: i64) {
        assert!(self.options.own_clock, "it has the clock of this machine");
        self.clock_off.store(seconds, Relaxed);
        self.write_clock(seconds);
    }
}

fn libfaketime() -> PathBuf {
    let libraries = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    libraries
        .map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"))
        .find(|path| path.exists())
        .expect("no libfaketime: run tests/install-servers.sh (make test does)")
}

// How it starts.
impl Server {
    /// Starts the process and waits until it answers. The error says why it does not.
    fn launch(&self) -> Result<(), String> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("our own directory");
        let mut command = keeper::command(&self.options.kind.binary());
        command
            .arg(self.dir.path().join("server.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        if self.options.own_clock {
            self.write_clock(self.clock_off.load(Relaxed));
            command
                .env("LD_PRELOAD", libfaketime())
                .env("FAKETIME_TIMESTAMP_FILE", self.clock_file())
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let process = keeper::spawn(command);
        *self.process() = Some(process);

        let deadline = Instant::now() + PATIENCE;
        loop {
            // Only this process can answer on the socket in our own directory. It opens the socket after its port, and
            // ends if it cannot have the port. So an answer here means that the port is open too.
            let answer = self.try_cmd(&["PING"]);
            let Err(error) = answer else { return Ok(()) };
            let ended = match self.process().as_mut().map(Child::try_wait) {
                Some(Ok(None)) => None,
                ended => Some(ended),
            };
            if ended.is_some() || Instant::now() > deadline {
                self.kill9();
                let tail = self.log_tail();
                return Err(match ended {
                    Some(status) => format!("{self} ended at its start ({status:?}):\n{tail}"),
                    None => format!("{self} does not answer PING ({error}):\n{tail}"),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn write_clock(&self, seconds: i64) {
        // The file is renamed into its place, so that the server never reads half of it.
        let new = self.dir.path().join("clock.new");
        fs::write(&new, format!("{seconds:+}\n")).expect("our own directory");
        fs::rename(&new, self.clock_file()).expect("our own directory");
    }

    fn clock_file(&self) -> PathBuf {
        self.dir.path().join("clock")
    }

    fn forget(&self) {
        let _ = fs::remove_file(self.dump());
        let _ = fs::remove_dir_all(self.dir.path().join("appendonlydir"));
        let _ = fs::remove_file(self.dir.path().join("nodes.conf"));
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    fn dump(&self) -> PathBuf {
        self.dir.path().join("dump.rdb")
    }

    fn snapshot(&self) -> PathBuf {
        self.dir.path().join("snapshot.rdb")
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        // A test that panicked elsewhere must still be able to clean up.
        self.process
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} on 127.0.0.1:{}", self.options.kind, self.port())
    }
}

/// The child has not been waited for yet, so its pid cannot belong to another process.
fn signal(process: &Child, what: Signal) {
    kill_process(Pid::from_child(process), what).expect("our own child");
}
