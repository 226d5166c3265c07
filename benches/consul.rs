//! `cargo bench --bench consul --all-features`: locks and semaphores in Consul, compared with the bare requests and
//! with `consul lock`. There is one agent on this machine, so the network costs nothing, but the agent's disk does.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures::future::join_all;
use quorate::{Lease, consul::Consul};
use serde_json::{Value, json};
use support::{Agent, Proxy};

const ROUNDS: usize = 300;
const CLIENTS: usize = 16;
const HELD: Duration = Duration::from_millis(1);
const LOAD: Duration = Duration::from_secs(5);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let agent = Agent::start();
    runtime.block_on(alone(&agent));
    processes(&agent);
    strangers(&agent);
    runtime.block_on(one_waits(&agent));
    for round_trip in [Duration::ZERO, Duration::from_millis(10)] {
        for limit in [None, Some(3)] {
            runtime.block_on(together(&agent, round_trip, limit));
        }
    }
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// The quantile `part` of these times.
fn part(times: &mut [Duration], part: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * part) as usize]
}

async fn take(consul: &Consul, limit: Option<u32>, name: &str) -> Lease {
    match limit {
        None => consul.mutex(name).lock().await.unwrap(),
        Some(limit) => consul.semaphore(name, limit).acquire().await.unwrap(),
    }
}

// ---- without contention ----------------------------------------------------------------------

/// Pairs of times, measured one after the other: to take it, and to release it.
#[derive(Default)]
struct Pairs {
    take: Vec<Duration>,
    give: Vec<Duration>,
}

impl Pairs {
    async fn add<T>(&mut self, take: impl Future<Output = T>, give: impl AsyncFnOnce(T)) {
        let start = Instant::now();
        let taken = take.await;
        self.take.push(start.elapsed());
        let start = Instant::now();
        give(taken).await;
        self.give.push(start.elapsed());
    }

    fn p50(&mut self) -> (f64, f64) {
        (ms(part(&mut self.take, 0.5)), ms(part(&mut self.give, 0.5)))
    }
}

/// The same requests alone, on one connection that stays open.
struct Bare {
    client: http::Connection,
    session: String,
    index: u64,
}

mod http {
    //! One connection to an agent, which stays open. It has only as much HTTP as this bench needs.

    use tokio::{
        io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
        net::TcpStream,
    };

    pub(super) struct Connection(BufReader<TcpStream>);

    impl Connection {
        pub(super) async fn new(address: &str) -> Self {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            Self(BufReader::new(stream))
        }

        pub(super) async fn ask(&mut self, method: &str, path: &str, body: &str) -> String {
            let length = body.len();
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            self.0
                .get_mut()
                .write_all(request.as_bytes())
                .await
                .unwrap();
            let mut length = 0;
            loop {
                let mut line = String::new();
                self.0.read_line(&mut line).await.unwrap();
                if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).await.unwrap();
            String::from_utf8(body).unwrap()
        }
    }
}

impl Bare {
    async fn new(agent: &Agent) -> Self {
        let session = json!({"TTL": "60s", "Behavior": "delete", "NodeChecks": []});
        Self {
            client: http::Connection::new(&agent.address()).await,
            session: agent.session(&session),
            index: 0,
        }
    }

    async fn transact(&mut self, steps: Value) -> Value {
        let answer = self.client.ask("PUT", "/v1/txn", &steps.to_string()).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer["Errors"].is_null(), "{answer}");
        answer
    }

    async fn lock(&mut self) {
        self.client.ask("GET", "/v1/kv/bare/?recurse", "").await;
        let session = &self.session;
        let steps = json!([
            {"KV": {"Verb": "check-not-exists", "Key": "bare/.lock"}},
            {"KV": {"Verb": "lock", "Key": "bare/.lock", "Session": session, "Value": ""}}
        ]);
        self.transact(steps).await;
    }

    async fn unlock(&mut self) {
        let steps = json!([
            {"KV": {"Verb": "check-session", "Key": "bare/.lock", "Session": self.session}},
            {"KV": {"Verb": "delete", "Key": "bare/.lock"}}
        ]);
        self.transact(steps).await;
    }

    async fn acquire(&mut self) {
        self.client.ask("GET", "/v1/kv/pool/?recurse", "").await;
        let session = &self.session;
        let steps = json!([
            {"KV": {"Verb": "lock", "Key": format!("pool/{session}"), "Session": session, "Value": ""}},
            {"KV": {"Verb": "cas", "Key": "pool/.lock", "Index": 0, "Value": "e30="}}
        ]);
        let answer = self.transact(steps).await;
        self.index = answer["Results"][1]["KV"]["ModifyIndex"].as_u64().unwrap();
    }

    async fn release(&mut self) {
        let steps = json!([
            {"KV": {"Verb": "delete", "Key": format!("pool/{}", self.session)}},
            {"KV": {"Verb": "delete-cas", "Key": "pool/.lock", "Index": self.index}}
        ]);
        self.transact(steps).await;
    }
}

async fn alone(agent: &Agent) {
    let consul = Consul::connect(agent.url()).await.unwrap();
    let mut bare = Bare::new(agent).await;
    let (mut lock, mut pool) = (Pairs::default(), Pairs::default());
    let (mut bare_lock, mut bare_pool) = (Pairs::default(), Pairs::default());
    for _ in 0..ROUNDS {
        let release = async |lease: Lease| lease.release().await.unwrap();
        lock.add(take(&consul, None, "m"), release).await;
        pool.add(take(&consul, Some(3), "s"), release).await;
        let start = Instant::now();
        bare.lock().await;
        bare_lock.take.push(start.elapsed());
        let start = Instant::now();
        bare.unlock().await;
        bare_lock.give.push(start.elapsed());
        let start = Instant::now();
        bare.acquire().await;
        bare_pool.take.push(start.elapsed());
        let start = Instant::now();
        bare.release().await;
        bare_pool.give.push(start.elapsed());
    }
    println!("one task, {ROUNDS} rounds, medians: ms to take it, ms to give it back");
    for (what, mut ours, mut bare) in [
        ("lock", lock, bare_lock),
        ("semaphore of 3", pool, bare_pool),
    ] {
        let (ours, bare) = (ours.p50(), bare.p50());
        println!(
            "{what:<16} {:.2} {:.2} | the same requests, bare: {:.2} {:.2} | {:.2} × {:.2} ×",
            ours.0,
            ours.1,
            bare.0,
            bare.1,
            ours.0 / bare.0,
            ours.1 / bare.1
        );
    }
    consul.shutdown().await;
    agent.destroy(&bare.session);
}

/// The times that a shell script sees: a process takes it, runs `true` and ends.
fn processes(agent: &Agent) {
    let this = std::env::current_exe().unwrap();
    let quorate = this.ancestors().nth(2).unwrap().join("quorate");
    assert!(
        quorate.exists(),
        "run `cargo build --release -p quorate-cli` first, as `make bench` does"
    );
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..15 {
        let mut command = Command::new(&quorate);
        command.args(["lock", "process", "--consul", &agent.url(), "--", "true"]);
        ours.push(timed(command));
        theirs.push(timed(agent.consul(&["lock", "process", "true"])));
    }
    println!(
        "a process that runs `true` under a lock: {:.0} ms; `consul lock`: {:.0} ms",
        ms(part(&mut ours, 0.5)),
        ms(part(&mut theirs, 0.5))
    );
}

fn timed(mut command: Command) -> Duration {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    start.elapsed()
}

// ---- many wait ------------------------------------------------------------------------------

/// One client waits, 10 ms away, and gets it each time. Measures the time from the call that releases it to the lease.
async fn one_waits(agent: &Agent) {
    let round_trip = Duration::from_millis(10);
    let proxy = Proxy::to_consul(agent);
    proxy.delay(round_trip / 2);
    let (near, far) = (
        Consul::connect(agent.url()).await.unwrap(),
        Consul::connect(proxy.url()).await.unwrap(),
    );
    // The time of a request through the proxy that Consul answers at once.
    let mut asked = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        far.ready().await.unwrap();
        asked.push(start.elapsed());
    }
    let trip = part(&mut asked, 0.5);
    for limit in [None, Some(1)] {
        let mut over = Vec::new();
        for _ in 0..30 {
            let held = take(&near, limit, "one").await;
            let waiter = far.clone();
            let waits = tokio::spawn(async move { take(&waiter, limit, "one").await });
            // Wait until it waits at Consul.
            tokio::time::sleep(round_trip * 8).await;
            let start = Instant::now();
            held.release().await.unwrap();
            let lease = waits.await.unwrap();
            over.push(start.elapsed());
            lease.release().await.unwrap();
        }
        let (p50, p99) = (part(&mut over, 0.5), part(&mut over, 0.99));
        let trips = |d: Duration| d.as_secs_f64() / trip.as_secs_f64();
        println!(
            "handed over by {} to one that waits: p50 {:.2} (≤ 2{}), p99 {:.2} round trips of {:.1} ms",
            limit.map_or("a lock", |_| "a semaphore"),
            trips(p50),
            if trips(p50) <= 2.0 { "" } else { ", missed" },
            trips(p99),
            ms(trip)
        );
    }
    near.shutdown().await;
    far.shutdown().await;
}

/// Processes of `consul lock`, one after the other in each of several shells.
fn strangers(agent: &Agent) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let end = Instant::now() + LOAD;
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while Instant::now() < end {
                    let mut command = agent.consul(&["lock", "strangers"]);
                    command.arg(format!("echo >>{}", log.path().display()));
                    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
                }
            });
        }
    });
    let sections = std::fs::read(log.path()).unwrap().len();
    println!(
        "{CLIENTS} loops of `consul lock` processes: {:.0} sections/s",
        sections as f64 / LOAD.as_secs_f64()
    );
}

async fn together(agent: &Agent, round_trip: Duration, limit: Option<u32>) {
    let proxy = Proxy::to_consul(agent);
    proxy.delay(round_trip / 2);
    let end = Instant::now() + LOAD;
    let tasks = join_all((0..CLIENTS).map(|_| Consul::connect(proxy.url()))).await;
    let tasks = tasks.into_iter().map(|consul| {
        tokio::spawn(async move {
            let consul = consul.unwrap();
            let mut held = Vec::new();
            while Instant::now() < end {
                let lease = take(&consul, limit, "many").await;
                let from = Instant::now();
                tokio::time::sleep(HELD).await;
                let until = Instant::now();
                lease.release().await.unwrap();
                held.push((from, until));
            }
            consul.shutdown().await;
            held
        })
    });
    let all: Vec<Vec<(Instant, Instant)>> = join_all(tasks)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let counts: Vec<f64> = all.iter().map(|held| held.len() as f64).collect();
    let (sum, squares) = counts
        .iter()
        .fold((0.0, 0.0), |(sum, squares), n| (sum + n, squares + n * n));
    let jain = sum * sum / (counts.len() as f64 * squares);
    let mut held: Vec<(Instant, Instant)> = all.into_iter().flatten().collect();
    held.sort_unstable();
    // From the end of a section to the beginning of the section that followed it. For a lock this is the next one.
    let slots = limit.unwrap_or(1) as usize;
    let mut over: Vec<Duration> = held
        .windows(slots + 1)
        .map(|some| {
            let first = some[..slots].iter().map(|one| one.1).min().unwrap();
            some[slots].0.saturating_duration_since(first)
        })
        .collect();
    let seconds = LOAD.as_secs_f64();
    let (p50, p99) = (part(&mut over, 0.5), part(&mut over, 0.99));
    let in_trips = match round_trip.is_zero() {
        true => String::new(),
        false => format!(" = {:.2} RTT", p50.as_secs_f64() / round_trip.as_secs_f64()),
    };
    let what = limit.map_or_else(
        || "one lock".to_owned(),
        |limit| format!("a semaphore of {limit}"),
    );
    println!(
        "{CLIENTS} clients on {what}, {HELD:?} held, RTT {round_trip:?}: {:.0} sections/s, handed over in p50 {:.1} ms{in_trips}, \
         p99 {:.1} ms, Jain {jain:.4}",
        held.len() as f64 / seconds,
        ms(p50),
        ms(p99)
    );
}
