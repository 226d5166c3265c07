//! One real Consul agent, a server with a cluster of its own; and, in `cluster`, several with one.

mod cluster;

pub use cluster::Cluster;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::keeper;
use super::port::Port;
use super::tls::Certificates;

/// How long it may take to have a leader: an election, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// May do anything where ACLs are on.
pub const MASTER: &str = "5a0cbd4c-1b3a-4f4e-9d5c-6f2f3a1c7e55";

/// What an agent is started with.
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
    /// ACLs, and everything is denied that no token allows. The test's own way in uses [`MASTER`].
    pub fn acl(mut self) -> Self {
        self.acl = true;
        self
    }

    /// TLS on a port of its own: [`Agent::tls_url`].
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    /// ... where only those may come in that have a certificate.
    pub fn asks_for_certificates(mut self) -> Self {
        self.asks_for_certificates = true;
        self
    }

    /// A unix socket beside the port: [`Agent::socket`].
    pub fn socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// It waits for a second server, which never comes.
    pub fn no_leader(mut self) -> Self {
        self.has_no_leader = true;
        self
    }

    /// More of its configuration.
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// Starts it, and returns when it has a leader and takes writes.
    pub fn start(self) -> Agent {
        for _ in 0..10 {
            let agent = self.clone().not_yet_up();
            agent.write_config();
            match agent.launch() {
                Ok(()) => return agent,
                // As in `server`: someone who knows nothing of our claims was faster.
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

/// A running agent (or one that a test has put down). Dropping it kills the process and deletes its files.
pub struct Agent {
    options: AgentOptions,
    /// HTTP, HTTPS, servers, gossip.
    ports: [Port; 4],
    dir: TempDir,
    process: Mutex<Option<Child>>,
}

/// One key.
#[derive(Clone, Debug)]
pub struct Pair {
    pub key: String,
    pub value: String,
    pub flags: u64,
    pub session: Option<String>,
    pub modify_index: u64,
}

impl Agent {
    pub fn start() -> Agent {
        AgentOptions::default().start()
    }

    pub fn with() -> AgentOptions {
        AgentOptions::default()
    }

    /// host:port
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

    /// The process, which must be up.
    pub fn pid(&self) -> u32 {
        self.process().as_ref().expect("the agent is down").id()
    }

    pub fn is_up(&self) -> bool {
        self.process().is_some()
    }

    /// The real `consul`, with this agent's address: `lock`, and the rest of what people run today.
    pub fn consul(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        // What whoever runs the tests has set for an agent of theirs is not for this one.
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

    // ---- what befalls it ----------------------------------------------------------------------

    /// Ends it as a power cut would; what it has written stays on disk.
    pub fn kill9(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill().expect("our own child");
            process.wait().expect("our own child");
        }
    }

    /// After `kill9`, on the same ports, with its files as they are.
    pub fn start_again(&self) {
        if let Err(why) = self.launch() {
            panic!("{why}");
        }
    }

    /// After `kill9`: a new cluster on the same ports.
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

    // ---- the test's own way in ----------------------------------------------------------------

    /// A request to its HTTP interface: the status and the body.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_ask(method, path, body)
            .unwrap_or_else(|error| panic!("{self}: {method} {path}: {error}"))
    }

    /// The index that comes with an answer: what a blocking query begins at.
    pub fn index(&self, path: &str) -> u64 {
        let (head, _) = self
            .try_exchange("GET", path, "", PATIENCE)
            .unwrap_or_else(|error| panic!("{self}: GET {path}: {error}"));
        let index = head
            .lines()
            .find_map(|line| line.strip_prefix("X-Consul-Index: "));
        index.and_then(|index| index.parse().ok()).expect(&head)
    }

    fn try_ask(&self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        self.try_ask_within(method, path, body, PATIENCE)
    }

    fn try_ask_within(
        &self,
        method: &str,
        path: &str,
        body: &str,
        patience: Duration,
    ) -> std::io::Result<(u16, String)> {
        let (head, body) = self.try_exchange(method, path, body, patience)?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok((status.unwrap_or(0), body))
    }

    /// The head of the answer, and its body.
    fn try_exchange(
        &self,
        method: &str,
        path: &str,
        body: &str,
        patience: Duration,
    ) -> std::io::Result<(String, String)> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(patience))?;
        // To HTTP/1.0 it answers in one piece, and closes.
        let (length, token) = (body.len(), if self.options.acl { MASTER } else { "" });
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nX-Consul-Token: {token}\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok((head.to_owned(), body.to_owned()))
    }

    /// ... that has to succeed, with JSON.
    pub fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, answer) = self.ask(method, path, &body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        serde_json::from_str(&answer).unwrap_or(Value::String(answer))
    }

    /// All keys that begin so.
    pub fn pairs(&self, prefix: &str) -> Vec<Pair> {
        let (status, answer) = self.ask("GET", &format!("/v1/kv/{prefix}?recurse"), "");
        if status == 404 {
            return Vec::new();
        }
        let pairs: Value = serde_json::from_str(&answer).expect("JSON");
        let pairs = pairs.as_array().expect("pairs").iter().map(|pair| Pair {
            key: pair["Key"].as_str().expect("a key").to_owned(),
            value: self.raw(pair["Key"].as_str().expect("a key")),
            flags: pair["Flags"].as_u64().expect("flags"),
            session: pair["Session"].as_str().map(str::to_owned),
            modify_index: pair["ModifyIndex"].as_u64().expect("an index"),
        });
        pairs.collect()
    }

    pub fn keys(&self, prefix: &str) -> Vec<String> {
        self.pairs(prefix)
            .into_iter()
            .map(|pair| pair.key)
            .collect()
    }

    fn raw(&self, key: &str) -> String {
        self.ask("GET", &format!("/v1/kv/{key}?raw"), "").1
    }

    pub fn put(&self, key: &str, flags: u64, value: &str) {
        self.ask("PUT", &format!("/v1/kv/{key}?flags={flags}"), value);
    }

    pub fn delete(&self, key: &str) {
        self.ask("DELETE", &format!("/v1/kv/{key}"), "");
    }

    /// Everything that `/v1/session/list` tells.
    pub fn sessions(&self) -> Vec<Value> {
        let sessions = self.json("GET", "/v1/session/list", &json!(null));
        sessions.as_array().cloned().unwrap_or_default()
    }

    pub fn session_ids(&self) -> Vec<String> {
        let id = |session: &Value| session["ID"].as_str().expect("an id").to_owned();
        self.sessions().iter().map(id).collect()
    }

    /// A session of a stranger.
    pub fn session(&self, of: &Value) -> String {
        let made = self.json("PUT", "/v1/session/create", of);
        made["ID"].as_str().expect("an id").to_owned()
    }

    /// As an operator ends it.
    pub fn destroy(&self, session: &str) {
        self.ask("PUT", &format!("/v1/session/destroy/{session}"), "");
    }

    /// A token with these rules, where ACLs are on.
    pub fn token(&self, rules: &str) -> String {
        static POLICIES: AtomicU32 = AtomicU32::new(0);
        let name = format!("policy-{}", POLICIES.fetch_add(1, Ordering::Relaxed));
        let policy = json!({"Name": name, "Rules": rules});
        self.json("PUT", "/v1/acl/policy", &policy);
        let token = json!({"Policies": [{"Name": name}]});
        let token = self.json("PUT", "/v1/acl/token", &token);
        token["SecretID"].as_str().expect("a token").to_owned()
    }

    // ---- how it comes up ----------------------------------------------------------------------

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

    /// Starts the process and waits until it takes writes; the error tells why it does not.
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
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("target/servers/consul"),
    };
    assert!(
        program.exists(),
        "no {} there: run tests/install-servers.sh (make test does)",
        program.display()
    );
    program
}
