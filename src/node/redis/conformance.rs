//! The same cases on memory and on real servers, and random sequences answered alike by all. They
//! keep the Lua and `memory/store.rs` from drifting apart; each test names its rule of the protocol.

mod about_admission;
mod about_mutex;
mod about_server;
mod random;

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
    secret::Secret,
};
use crate::{
    name::Name,
    node::{
        Answer, Command, Fault, Reply,
        admission::{
            self, Admit, BootRecord, Handshake, Identity, Meeting, Mode, Stored, Terms, Vouch,
        },
        memory::store::Store,
        mutex,
        operation::Wire,
        server,
    },
    owner::{Entry, Label},
    rules::Rules,
};

const PREFIX: &str = "quorate";
const MAX_TTL: Duration = Duration::from_secs(20);
const TERMS: Terms = Terms {
    max_ttl: MAX_TTL,
    margin: Duration::from_secs(5),
};
/// Z of these terms.
const Z: u64 = 20_200 + 5_000;
const GUARD: &str = "2 3 word 20000 5000 nonce";
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
    /// SET or DEL; RUN in the text stands for this peer's run id.
    fn put(&mut self, key: Key, text: Option<&str>);
    /// What stands in boot and open, with RUN in the place of this peer's run id.
    fn stands(&mut self) -> [Option<String>; 2];
    /// Makes the current counters begin so long ago.
    fn set_age(&mut self, age: Duration);
    fn set_counter(&mut self, n: &str, counter: u64);

    fn ask(&mut self, command: &Command) -> Answer {
        self.ask_with(command, GUARD)
    }

    /// It must answer.
    fn say(&mut self, command: &Command) -> Reply {
        let answer = self.ask(command);
        answer.unwrap_or_else(|fault| panic!("{}: {command:?}: {fault:?}", self.name()))
    }

    fn meet(&mut self, hello: &Handshake) -> Meeting {
        match self.say(&Command::Admission(admission::Command::Handshake(
            hello.clone(),
        ))) {
            Reply::Admission(admission::Reply::Met(meeting)) => *meeting,
            other => panic!("{}: {other:?}", self.name()),
        }
    }

    /// The handshake is answered by a record: that, and whether `open` stands.
    fn record(&mut self, hello: &Handshake) -> (BootRecord, bool) {
        let meeting = self.meet(hello);
        let record = meeting.stored.record();
        (record.unwrap().clone(), meeting.open)
    }

    /// A bootstrap: from now on it votes.
    fn admit(&mut self) {
        let (record, _) = self.record(&hello());
        assert_eq!(
            self.say(&admit(&record)),
            Reply::Admission(admission::Reply::Admitted(true)),
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

/// A key of the admission.
#[derive(Clone, Copy, Debug)]
enum Key {
    Boot,
    Open,
}

struct Memory(Store);

impl Memory {
    fn new() -> Self {
        Self(Store::new(Identity::master("f".repeat(40)), Rules::ALL))
    }

    fn run_id(&mut self) -> String {
        self.0.server_mut().run_id.clone()
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

    fn put(&mut self, key: Key, text: Option<&str>) {
        let run_id = self.run_id();
        let text = text.map(|text| text.replace("RUN", &run_id));
        match key {
            Key::Boot => self.0.admission_mut().set_boot(text),
            Key::Open => self.0.admission_mut().set_open(text),
        }
    }

    fn stands(&mut self) -> [Option<String>; 2] {
        let run_id = self.run_id();
        let admission = self.0.admission_mut();
        let texts = [admission.boot(), admission.open()];
        texts.map(|text| Some(text?.replace(&run_id, "RUN")))
    }

    fn set_age(&mut self, age: Duration) {
        self.0
            .counters_mut()
            .set_begun(wall_us() - age.as_micros() as u64);
    }

    fn set_counter(&mut self, n: &str, counter: u64) {
        self.0.counters_mut().set(&name(n), counter);
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
    run_id: String,
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
                    assert_eq!(
                        real.ask(&Command::Server(server::Command::LoadScripts)),
                        Ok(Reply::Server(server::Reply::Loaded))
                    );
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
            run_id: String::new(),
        };
        real.raw(&["HELLO", "3"]);
        let info = real.text(&["INFO", "server"]);
        let mut lines = info.lines();
        let run_id = lines.find_map(|line| line.strip_prefix("run_id:"));
        real.run_id = run_id.unwrap().to_owned();
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

    fn get(&mut self, key: &str) -> Option<String> {
        match self.raw(&["GET", key]) {
            OwnedFrame::Null => None,
            OwnedFrame::BlobString { data, .. } => Some(String::from_utf8(data).unwrap()),
            other => panic!("{key}: {other:?}"),
        }
    }

    fn ok(&mut self, words: &[&str]) {
        assert_eq!(self.text(words), "OK", "{words:?}");
    }

    fn answer(&mut self, command: &Command) -> Answer {
        let replies: Vec<_> = (0..command.replies()).map(|_| self.read()).collect();
        decode::answer(command, &replies, &Secret::new(""))
    }

    fn batch(&mut self, commands: Vec<Command>) -> Vec<Answer> {
        let bytes = commands
            .iter()
            .flat_map(|command| self.bytes(command, GUARD));
        let bytes: Vec<u8> = bytes.collect();
        self.stream.write_all(&bytes).unwrap();
        commands
            .iter()
            .map(|command| self.answer(command))
            .collect()
    }

    /// With the guard put in.
    fn bytes(&self, command: &Command, guard: &str) -> Vec<u8> {
        let Wire {
            mut bytes,
            is_guarded,
            ..
        } = encode::wire(command, &self.keys);
        if is_guarded {
            bytes.extend(encode::guard(guard));
        }
        bytes
    }
}

impl Peer for Real {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ask_with(&mut self, command: &Command, guard: &str) -> Answer {
        let bytes = self.bytes(command, guard);
        self.stream.write_all(&bytes).unwrap();
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

    fn put(&mut self, key: Key, text: Option<&str>) {
        let key = match key {
            Key::Boot => "quorate:boot",
            Key::Open => "quorate:open",
        };
        match text {
            Some(text) => self.ok(&["SET", key, &text.replace("RUN", &self.run_id.clone())]),
            None => drop(self.text(&["DEL", key])),
        }
    }

    fn stands(&mut self) -> [Option<String>; 2] {
        let texts = [self.get("quorate:boot"), self.get("quorate:open")];
        texts.map(|text| Some(text?.replace(&self.run_id, "RUN")))
    }

    fn set_age(&mut self, age: Duration) {
        let begun = wall_us() - age.as_micros() as u64;
        self.text(&["HSET", "quorate:c0", "_", &format!("{begun:<65}")]);
    }

    fn set_counter(&mut self, n: &str, counter: u64) {
        let field = format!("@mutex:{n}");
        self.text(&["HSET", "quorate:c0", &field, &counter.to_string()]);
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
        masters: 3,
        list: "word".into(),
        terms: TERMS,
        vouch: Vouch::Stranger,
        used: false,
        known: None,
        witnessed: 0,
        nonce: "nonce".into(),
    }
}

fn admit(record: &BootRecord) -> Command {
    Command::Admission(admission::Command::Admit(admission_of(record)))
}

fn admission_of(record: &BootRecord) -> Admit {
    Admit {
        masters: record.masters,
        list: record.list.clone(),
        run: record.run.clone(),
        id: record.id.clone(),
        terms: record.terms,
        witnessed: Z,
        mode: Mode::New,
    }
}

fn acquire(n: &str, owner: u128, ttl: Duration, floor: u64) -> Command {
    Command::Mutex(mutex::Command::Acquire {
        name: name(n),
        entry: entry(owner),
        ttl,
        floor,
        max_ttl: MAX_TTL,
    })
}

fn raise(n: &str, owner: u128, token: u64) -> Command {
    Command::Mutex(mutex::Command::Raise {
        name: name(n),
        entry: entry(owner),
        token,
        max_ttl: MAX_TTL,
    })
}

fn extend(n: &str, owner: u128, ttl: Duration) -> Command {
    Command::Mutex(mutex::Command::Extend {
        name: name(n),
        entry: entry(owner),
        ttl,
    })
}

fn release(n: &str, owner: u128) -> Command {
    Command::Mutex(mutex::Command::Release {
        name: name(n),
        entry: entry(owner),
    })
}

fn surveyed(used: bool, lock: Option<&str>) -> Reply {
    let lock = lock.map(name);
    Reply::Admission(admission::Reply::Surveyed { used, lock })
}

fn inspect(n: &str) -> Command {
    Command::Mutex(mutex::Command::Inspect { name: name(n) })
}

fn evict(n: &str) -> Command {
    Command::Mutex(mutex::Command::Evict { name: name(n) })
}

/// Remaining time and counter of a refusal, and who is named.
fn held(reply: Reply) -> (Duration, u64, Option<Arc<str>>) {
    match reply {
        Reply::Mutex(mutex::Reply::Held {
            remaining: Some(remaining),
            counter,
            holder,
        }) => (remaining, counter, holder),
        other => panic!("{other:?}"),
    }
}

fn remaining(peer: &mut dyn Peer, n: &str) -> Option<Duration> {
    match peer.say(&inspect(n)) {
        Reply::Mutex(mutex::Reply::Inspected { holder, .. }) => holder.and_then(|(_, left)| left),
        other => panic!("{other:?}"),
    }
}

fn counter(peer: &mut dyn Peer, n: &str) -> u64 {
    match peer.say(&inspect(n)) {
        Reply::Mutex(mutex::Reply::Inspected { counter, .. }) => counter,
        other => panic!("{other:?}"),
    }
}

fn about(left: Duration, wanted: Duration) -> bool {
    left <= wanted && left + secs(2) > wanted
}
