//! One real Consul agent, a server with a cluster of its own. `asking` has the test's own way to ask it, and `cluster`
//! has several agents in one cluster.

mod asking;
mod cluster;

pub use asking::Pair;
pub use cluster::Cluster;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::port::Port;
use super::tls::Certificates;
use super::{installed, keeper};

/// The time that it may take to have a leader: an election, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// A token with all rights, where ACLs are on.
pub const MASTER: &str = "5a0cbd4c-1b3a-4f4e-9d5c-6f2f3a1c7e55";

/// The options of an agent.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    acl: bool,
    tls: Option<Certificates>,
    asks_for_certificates: bool,
    socket: bool,
    has_no_leader: bool,
    config: Value,
}

impl AgentOptions {
    /// Turns on ACLs, which deny everything that no token allows. The test's own requests use [`MASTER`].
    pub fn acl(mut self) -> Self {
        self.acl = true;
        self
    }

    /// Adds TLS on a port of its own: [`Agent::tls_url`].
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    /// Accepts only TLS clients that have a certificate.
    pub fn asks_for_certificates(mut self) -> Self {
        self.asks_for_certificates = true;
        self
    }

    /// Adds a unix socket beside the port: [`Agent::socket`].
    pub fn socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// The agent waits for a second server, which never comes.
    pub fn no_leader(mut self) -> Self {
        self.has_no_leader = true;
        self
    }

    /// Adds to its configuration.
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// Starts the agent, and returns when it has a leader and accepts writes.
    pub fn start(self) -> Agent {
        for _ in 0..10 {
            let agent = self.clone().not_yet_up();
            agent.write_config();
            match agent.launch() {
                Ok(()) => return agent,
                // As in `server`: a program that does not know of our claims was faster.
                Err(why) if why.contains("address already in use") => continue,
                Err(why) => panic!("{why}"),
            }
        }
        panic!("ten sets of ports in a row were taken by others");
    }

    fn not_yet_up(self) -> Agent {
        Agent {
            options: self,
            ports: [(); 4].map(|()| Port::claim()),
            dir: tempfile::Builder::new()
                .prefix("quorate-test-")
                .tempdir()
                .expect("a temporary directory"),
            process: Mutex::new(None),
        }
    }
}

/// An agent, running or stopped by a test. Dropping it kills the process and deletes its files.
pub struct Agent {
    options: AgentOptions,
    /// The ports for HTTP, HTTPS, servers and gossip.
    ports: [Port; 4],
    dir: TempDir,
    process: Mutex<Option<Child>>,
}

impl Agent {
    pub fn start() -> Agent {
        AgentOptions::default().start()
    }

    pub fn with() -> AgentOptions {
        AgentOptions::default()
    }

    /// The address as host:port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0].number())
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub fn port(&self) -> u16 {
        self.ports[0].number()
    }

    pub fn tls_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[1].number())
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("http.sock")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The id of the process, which must be running.
    pub fn pid(&self) -> u32 {
        self.process().as_ref().expect("the agent is down").id()
    }

    pub fn is_up(&self) -> bool {
        self.process().is_some()
    }

    /// The real `consul` with this agent's address, for `lock` and the other commands that people use.
    pub fn consul(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        // Variables that the user has set for another agent must not reach this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CONSUL_") {
                command.env_remove(name);
            }
        }
        command.args(words).env("CONSUL_HTTP_ADDR", self.url());
        if self.options.acl {
            command.env("CONSUL_HTTP_TOKEN", MASTER);
        }
        command
    }

    // ---- faults --------------------------------------------------------------------------------

    /// Ends the process as a power cut would. Its written data stays on disk.
    pub fn kill9(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill().expect("our own child");
            process.wait().expect("our own child");
        }
    }

    /// Starts it after `kill9`, on the same ports, with its files as they are.
    pub fn start_again(&self) {
        if let Err(why) = self.launch() {
            panic!("{why}");
        }
    }

    /// Starts a new cluster on the same ports, after `kill9`.
    pub fn start_empty(&self) {
        std::fs::remove_dir_all(self.dir.path().join("data")).expect("our own directory");
        self.start_again();
    }

    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.process().as_ref().expect("the agent is down"));
        kill_process(pid, signal).expect("our own child");
    }

    // ---- start ---------------------------------------------------------------------------------

    fn write_config(&self) {
        let [http, https, server, gossip] = self.ports.each_ref().map(Port::number);
        let mut config = json!({
            "server": true, "bootstrap_expect": 1 + u8::from(self.options.has_no_leader), "node_name": "test", "bind_addr": "127.0.0.1",
            "data_dir": self.dir.path().join("data"),
            "addresses": {"http": "127.0.0.1", "https": "127.0.0.1"},
            "ports": {"http": http, "https": -1, "dns": -1, "grpc": -1, "serf_wan": -1,
                      "serf_lan": gossip, "server": server},
            "performance": {"raft_multiplier": 1},
            "disable_update_check": true, "leave_on_terminate": false, "log_level": "warn",
        });
        let options = &self.options;
        if options.acl {
            config["acl"] =
                json!({"enabled": true, "default_policy": "deny", "tokens": {"master": MASTER}});
        }
        if let Some(tls) = &options.tls {
            config["ports"]["https"] = https.into();
            config["cert_file"] = json!(tls.cert);
            config["key_file"] = json!(tls.key);
            config["ca_file"] = json!(tls.ca);
            config["verify_incoming_https"] = options.asks_for_certificates.into();
        }
        if options.socket {
            let both = format!("127.0.0.1 unix://{}", self.socket().display());
            config["addresses"]["http"] = both.into();
        }
        if let Some(more) = options.config.as_object() {
            for (word, value) in more {
                config[word] = value.clone();
            }
        }
        std::fs::write(self.config(), config.to_string()).expect("our own directory");
    }

    /// Starts the process and waits until it accepts writes. The error says why it does not.
    fn launch(&self) -> Result<(), String> {
        self.spawn();
        self.until_it_takes_writes()
    }

    fn spawn(&self) {
        assert!(self.process().is_none(), "{self} is up");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("our own directory");
        let mut command = keeper::command(&program());
        command
            .args(["agent", "-config-file"])
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        *self.process() = Some(keeper::spawn(command));
    }

    fn until_it_takes_writes(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !self.takes_writes() {
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
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn takes_writes(&self) -> bool {
        if self.options.has_no_leader {
            return self.try_ask("GET", "/v1/status/leader", "").is_ok();
        }
        // A session needs a leader, and the agent's own node in the catalogue.
        let made = self.try_ask(
            "PUT",
            "/v1/session/create",
            r#"{"TTL":"10s","NodeChecks":[]}"#,
        );
        let Ok((200, made)) = made else {
            return false;
        };
        let made: Value = serde_json::from_str(&made).unwrap_or_default();
        self.destroy(made["ID"].as_str().unwrap_or_default());
        true
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("agent.log")
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("agent.json")
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        // A test that panicked elsewhere must still be able to clean up.
        self.process
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill9();
    }
}

impl std::fmt::Display for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Consul on {}", self.address())
    }
}

fn program() -> PathBuf {
    let program = match std::env::var_os("QUORATE_TEST_CONSUL") {
        Some(path) => PathBuf::from(path),
        None => installed("consul"),
    };
    assert!(
        program.exists(),
        "no {} there: run tests/install-servers.sh (make test does)",
        program.display()
    );
    program
}
