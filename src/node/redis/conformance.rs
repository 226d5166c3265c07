//! The same cases on memory and on real servers, and random sequences answered alike by all. They
//! keep the Lua and `memory/store.rs` from drifting apart; each test names its rule of the protocol.

mod admission;
mod mutex;
mod random;
mod server;

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Stdio},
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redis_protocol::resp3::{decode::complete::decode, types::OwnedFrame};

use super::{
    decode,
    encode::{self, Keys},
    scripts,
};
use crate::{
    name::Name,
    node::{
        admission::{BootRecord, Handshake, Meeting},
        command::{Answer, Batch, Command, Fault, Reply},
        memory::store::{Identity, Store},
    },
    owner::{Entry, Label},
    rules::Rules,
};

const PREFIX: &str = "quorate";
const MAX_TTL: Duration = Duration::from_secs(20);
const MARGIN: Duration = Duration::from_secs(5);
/// Z of `MAX_TTL` and `MARGIN`.
const Z: u64 = 20_200 + 5_000;
const GUARD: &str = "1 3 20000";
const MAX_TOKEN: u64 = (1 << 53) - 1;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Somebody who answers commands: memory, or a server.
trait Peer {
    fn name(&self) -> &'static str;
    fn ask_with(&mut self, command: &Command, guard: &str) -> Answer;
    fn flush(&mut self);
    fn set_out_of_memory(&mut self, on: bool);
    fn demote(&mut self);
    fn promote(&mut self);
    fn set_boot(&mut self, record: &BootRecord);
    /// Makes the current counters begin so long ago.
    fn set_age(&mut self, age: Duration);

    fn ask(&mut self, command: &Command) -> Answer {
        self.ask_with(command, GUARD)
    }

    /// It must answer.
    fn say(&mut self, command: &Command) -> Reply {
        let answer = self.ask(command);
        answer.unwrap_or_else(|fault| panic!("{}: {command:?}: {fault:?}", self.name()))
    }

    fn meet(&mut self, hello: &Handshake) -> Meeting {
        match self.say(&Command::Handshake(hello.clone())) {
            Reply::Met(meeting) => *meeting,
            other => panic!("{}: {other:?}", self.name()),
        }
    }

    /// A bootstrap: from now on it votes.
    fn admit(&mut self) {
        let record = self.meet(&hello()).record.unwrap();
        assert_eq!(
            self.say(&admit(&record)),
            Reply::Admitted(true),
            "{}",
            self.name()
        );
    }

    /// Its error's first word, where it must give one.
    fn error(&mut self, command: &Command) -> String {
        match self.ask(command) {
            Err(Fault::Error(text)) => text.split(' ').next().unwrap().to_owned(),
            other => panic!("{}: {command:?}: {other:?}", self.name()),
        }
    }
}

struct Memory(Store);

impl Memory {
    fn new() -> Self {
        Self(Store::new(Identity::master("f".repeat(40)), Rules::ALL))
    }
}

impl Peer for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn ask_with(&mut self, command: &Command, guard: &str) -> Answer {
        self.0.apply(command, guard, wall_us())
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn set_out_of_memory(&mut self, on: bool) {
        self.0.set_out_of_memory(on);
    }

    fn demote(&mut self) {
        self.0.server_mut().role = "slave".into();
    }

    fn promote(&mut self) {
        let server = self.0.server_mut();
        server.role = "master".into();
        server.replid2 = "a".repeat(40);
        server.second_offset = "1".into();
    }

    fn set_boot(&mut self, record: &BootRecord) {
        self.0.set_boot(record.clone());
    }

    fn set_age(&mut self, age: Duration) {
        self.0.set_begun(wall_us() - age.as_micros() as u64);
    }
}

/// A server process of our own.
struct Process {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Real {
    name: &'static str,
    process: Arc<Process>,
    stream: TcpStream,
    unread: Vec<u8>,
    keys: Keys,
}

impl Real {
    fn redis() -> Self {
        Self::start("redis-server", "QUORATE_TEST_REDIS")
    }

    fn valkey() -> Self {
        Self::start("valkey-server", "QUORATE_TEST_VALKEY")
    }

    fn start(name: &'static str, variable: &str) -> Self {
        let program = std::env::var_os(variable).map_or_else(
            || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/servers")).join(name),
            PathBuf::from,
        );
        assert!(
            program.exists(),
            "{} is missing: run tests/install-servers.sh",
            program.display()
        );
        'again: for _ in 0..5 {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                .unwrap()
                .local_addr()
                .unwrap()
                .port();
            let dir = tempfile::tempdir().unwrap();
            let child = std::process::Command::new(&program)
                .args([
                    "--bind",
                    "127.0.0.1",
                    "--port",
                    &port.to_string(),
                    "--save",
                    "",
                ])
                .args(["--appendonly", "no", "--dir", dir.path().to_str().unwrap()])
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let mut process = Process {
                child,
                port,
                _dir: dir,
            };
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(10) {
                if process.child.try_wait().unwrap().is_some() {
                    continue 'again; // somebody took the port meanwhile
                }
                if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    let mut real = Self::over(name, Arc::new(process), stream);
                    let own = format!("process_id:{}\r", real.process.child.id());
                    if !real.text(&["INFO", "server"]).contains(&own) {
                        continue 'again;
                    }
                    assert_eq!(real.ask(&Command::LoadScripts), Ok(Reply::Loaded));
                    return real;
                }
                sleep(Duration::from_millis(5));
            }
        }
        panic!("{} did not start", program.display());
    }

    fn over(name: &'static str, process: Arc<Process>, stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut real = Self {
            name,
            process,
            stream,
            unread: Vec::new(),
            keys: Keys::new(PREFIX),
        };
        real.raw(&["HELLO", "3"]);
        real
    }

    /// A second connection to the same server.
    fn another(&self) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.process.port)).unwrap();
        Self::over(self.name, Arc::clone(&self.process), stream)
    }

    fn read(&mut self) -> OwnedFrame {
        loop {
            if let Some((frame, used)) = decode(&self.unread).unwrap() {
                self.unread.drain(..used);
                return frame;
            }
            let mut chunk = [0; 4096];
            let n = self.stream.read(&mut chunk).unwrap();
            assert!(n > 0, "{}: the connection was closed", self.name);
            self.unread.extend_from_slice(&chunk[..n]);
        }
    }

    fn raw(&mut self, words: &[&str]) -> OwnedFrame {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(bytes.as_bytes()).unwrap();
        self.read()
    }

    fn text(&mut self, words: &[&str]) -> String {
        match self.raw(words) {
            OwnedFrame::BlobString { data, .. }
            | OwnedFrame::SimpleString { data, .. }
            | OwnedFrame::VerbatimString { data, .. } => String::from_utf8(data).unwrap(),
            OwnedFrame::Number { data, .. } => data.to_string(),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn ok(&mut self, words: &[&str]) {
        assert_eq!(self.text(words), "OK", "{words:?}");
    }

    fn answer(&mut self, command: &Command) -> Answer {
        let mut last = Err(Fault::Error("no reply".into()));
        for i in 0..encode::answers(command) {
            let next = decode::answer(command, self.read());
            if i == 0 || last.is_ok() {
                last = next;
            }
        }
        last
    }

    fn batch(&mut self, commands: Vec<Command>) -> Vec<Answer> {
        let batch = Batch::new(commands, GUARD.into());
        self.stream
            .write_all(&encode::batch(&batch, &self.keys))
            .unwrap();
        batch
            .commands()
            .iter()
            .map(|command| self.answer(command))
            .collect()
    }
}

impl Peer for Real {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ask_with(&mut self, command: &Command, guard: &str) -> Answer {
        let batch = Batch::one(command.clone(), &guard.into());
        self.stream
            .write_all(&encode::batch(&batch, &self.keys))
            .unwrap();
        self.answer(command)
    }

    fn flush(&mut self) {
        self.ok(&["FLUSHALL"]);
    }

    fn set_out_of_memory(&mut self, on: bool) {
        self.ok(&["CONFIG", "SET", "maxmemory", if on { "1" } else { "0" }]);
    }

    fn demote(&mut self) {
        self.ok(&["REPLICAOF", "127.0.0.1", "1"]); // nobody is there: it waits, as a replica
    }

    fn promote(&mut self) {
        self.ok(&["REPLICAOF", "NO", "ONE"]);
    }

    fn set_boot(&mut self, record: &BootRecord) {
        self.ok(&["SET", "quorate:boot", &record.to_string()]);
    }

    fn set_age(&mut self, age: Duration) {
        let begun = wall_us() - age.as_micros() as u64;
        self.text(&["HSET", "quorate:c0", "_", &format!("{begun:<65}")]);
    }
}

/// Memory and both servers.
fn peers() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(Memory::new()),
        Box::new(Real::redis()),
        Box::new(Real::valkey()),
    ]
}

/// Runs a case on each of them, empty and voting.
fn everywhere(case: impl Fn(&mut dyn Peer)) {
    for mut peer in peers() {
        eprintln!("on {}", peer.name());
        peer.admit();
        case(&mut *peer);
    }
}

/// Runs a case on both servers, empty and voting.
fn on_servers(case: impl Fn(&mut Real)) {
    for mut real in [Real::redis(), Real::valkey()] {
        eprintln!("on {}", real.name());
        real.admit();
        case(&mut real);
    }
}

fn wall_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_micros() as u64
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn entry(owner: u128) -> Entry {
    Entry::new(owner, &Label::new("host:1").unwrap())
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn hello() -> Handshake {
    Handshake {
        fleet: 3,
        max_ttl: MAX_TTL,
        fleet_max_ttl: Duration::ZERO,
        margin: MARGIN,
        known: None,
        witnessed: 0,
        nonce: "nonce".into(),
    }
}

/// A hello of somebody who knows this record.
fn knowing(record: &BootRecord, witnessed: u64) -> Handshake {
    let known = Some((record.run.clone(), record.id.clone()));
    Handshake {
        known,
        witnessed,
        nonce: "another".into(),
        ..hello()
    }
}

fn admit(record: &BootRecord) -> Command {
    Command::Admit {
        run: record.run.clone(),
        id: record.id.clone(),
        max_ttl: record.max_ttl,
        witnessed: Z,
    }
}

fn acquire(n: &str, owner: u128, ttl: Duration, floor: u64) -> Command {
    Command::Acquire {
        name: name(n),
        entry: entry(owner),
        ttl,
        floor,
    }
}

fn raise(n: &str, owner: u128, token: u64) -> Command {
    Command::Raise {
        name: name(n),
        entry: entry(owner),
        token,
    }
}

fn extend(n: &str, owner: u128, ttl: Duration) -> Command {
    Command::Extend {
        name: name(n),
        entry: entry(owner),
        ttl,
    }
}

fn release(n: &str, owner: u128) -> Command {
    Command::Release {
        name: name(n),
        entry: entry(owner),
    }
}

fn inspect(n: &str) -> Command {
    Command::Inspect { name: name(n) }
}

fn evict(n: &str) -> Command {
    Command::Evict { name: name(n) }
}

/// Remaining time and counter of a refusal.
fn held(reply: Reply) -> (Duration, u64) {
    match reply {
        Reply::Held {
            remaining: Some(remaining),
            counter,
        } => (remaining, counter),
        other => panic!("{other:?}"),
    }
}

fn remaining(peer: &mut dyn Peer, n: &str) -> Option<Duration> {
    match peer.say(&inspect(n)) {
        Reply::Inspected { holder, .. } => holder.and_then(|(_, left)| left),
        other => panic!("{other:?}"),
    }
}

fn counter(peer: &mut dyn Peer, n: &str) -> u64 {
    match peer.say(&inspect(n)) {
        Reply::Inspected { counter, .. } => counter,
        other => panic!("{other:?}"),
    }
}

fn about(left: Duration, wanted: Duration) -> bool {
    left <= wanted && left + secs(2) > wanted
}
