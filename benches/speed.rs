//! Latency and throughput beside a floor, interleaved in one run, on five real servers.
//!
//! The floor is what the `redis` crate can do without any safety: SET NX PX sent to all nodes at
//! once with TCP_NODELAY, returning at the majority; released by compare-and-delete, awaited to the
//! majority. Ratios of medians over the rounds are what counts: this is one machine that also runs
//! the servers.

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
    future::Future,
    time::{Duration, Instant},
};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use quorate::{Error, Quorum};
use redis::aio::MultiplexedConnection;
use support::{Fleet, Kind};

const NODES: usize = 5;
const MAJORITY: usize = 3;
const ROUNDS: usize = 7;
const TTL: Duration = Duration::from_secs(10);
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

fn main() {
    let fleet = Fleet::start(NODES, Kind::Redis);
    println!("N = {NODES}, medians of {ROUNDS} interleaved rounds, servers on the same machine\n");
    let current = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    println!("current-thread runtime");
    current.block_on(healthy(&fleet));
    current.block_on(stopped(&fleet));
    let multi = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    println!("\nmulti-thread runtime");
    multi.block_on(async { tokio::spawn(healthy_of(fleet.urls())).await.unwrap() });
}

// ---- the two contestants ----------------------------------------------------------------------

#[derive(Clone)]
struct Floor {
    nodes: Vec<MultiplexedConnection>,
    release: String,
}

impl Floor {
    async fn connect(urls: &[String]) -> Self {
        let mut nodes = Vec::new();
        for url in urls {
            let info: redis::ConnectionInfo =
                redis::IntoConnectionInfo::into_connection_info(url.as_str()).unwrap();
            let tcp = info.tcp_settings().clone().set_nodelay(true);
            let client = redis::Client::open(info.set_tcp_settings(tcp)).unwrap();
            nodes.push(client.get_multiplexed_async_connection().await.unwrap());
        }
        let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
        let mut release = String::new();
        for node in &mut nodes {
            release = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(script)
                .query_async(node)
                .await
                .unwrap();
        }
        Self { nodes, release }
    }

    async fn acquire(&self, name: &str, owner: &str) {
        let asked: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|node| {
                let mut node = node.clone();
                async move {
                    let mut set = redis::cmd("SET");
                    set.arg(name)
                        .arg(owner)
                        .arg("NX")
                        .arg("PX")
                        .arg(TTL.as_millis() as u64);
                    set.query_async::<Option<String>>(&mut node)
                        .await
                        .is_ok_and(|ok| ok.is_some())
                }
            })
            .collect();
        majority(asked).await;
    }

    async fn release(&self, name: &str, owner: &str) {
        let asked: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|node| {
                let mut node = node.clone();
                async move {
                    let mut call = redis::cmd("EVALSHA");
                    call.arg(&self.release).arg(1).arg(name).arg(owner);
                    call.query_async::<i64>(&mut node)
                        .await
                        .is_ok_and(|freed| freed == 1)
                }
            })
            .collect();
        majority(asked).await;
    }
}

async fn majority(mut asked: FuturesUnordered<impl Future<Output = bool>>) {
    let mut granted = 0;
    while granted < MAJORITY {
        granted += usize::from(asked.next().await.expect("a majority grants"));
    }
}

/// Acquires, then releases; how long the acquire took.
trait Contestant: Clone + Send + Sync + 'static {
    fn pair(&self, task: usize, i: usize) -> impl Future<Output = Duration> + Send;
}

impl Contestant for Floor {
    async fn pair(&self, task: usize, i: usize) -> Duration {
        let (name, owner) = (format!("floor:{task}"), format!("{task:016x}{i:016x}"));
        let start = Instant::now();
        self.acquire(&name, &owner).await;
        let took = start.elapsed();
        self.release(&name, &owner).await;
        took
    }
}

impl Contestant for Quorum {
    async fn pair(&self, task: usize, _: usize) -> Duration {
        let mutex = self.mutex(format!("bench:{task}")).ttl(TTL);
        let start = Instant::now();
        let lease = mutex.try_lock().await.unwrap().expect("it is free");
        let took = start.elapsed();
        lease.release().await.unwrap();
        took
    }
}

// ---- measuring --------------------------------------------------------------------------------

struct Round {
    p50: Duration,
    p99: Duration,
    pairs_per_second: f64,
}

async fn round(contestant: &impl Contestant, tasks: usize, pairs: usize) -> Round {
    let start = Instant::now();
    let workers = (0..tasks).map(|task| {
        let contestant = contestant.clone();
        tokio::spawn(async move {
            let mut took = Vec::with_capacity(pairs);
            for i in 0..pairs {
                took.push(contestant.pair(task, i).await);
            }
            took
        })
    });
    let mut took: Vec<Duration> = join_all(workers)
        .await
        .into_iter()
        .flat_map(Result::unwrap)
        .collect();
    let elapsed = start.elapsed();
    took.sort();
    Round {
        p50: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
        pairs_per_second: took.len() as f64 / elapsed.as_secs_f64(),
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn micros(rounds: &[Round], of: impl Fn(&Round) -> Duration) -> f64 {
    median(rounds.iter().map(|r| of(r).as_secs_f64() * 1e6).collect())
}

async fn connect(urls: &[String]) -> Quorum {
    let quorum = Quorum::builder()
        .nodes(urls)
        .node_timeout(NODE_TIMEOUT)
        .connect()
        .await
        .unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

async fn healthy(fleet: &Fleet) {
    healthy_of(fleet.urls()).await;
}

async fn healthy_of(urls: Vec<String>) {
    let (floor, quorum) = (Floor::connect(&urls).await, connect(&urls).await);
    println!(
        "  tasks |        acquire p50 (p99), µs         | ratio | pairs/s floor  quorate | ratio"
    );
    for tasks in [1, 8, 64] {
        let pairs = 3000 / tasks.min(8);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        round(&floor, tasks, pairs / 10 + 1).await;
        round(&quorum, tasks, pairs / 10 + 1).await;
        for _ in 0..ROUNDS {
            a.push(round(&floor, tasks, pairs).await);
            b.push(round(&quorum, tasks, pairs).await);
        }
        let (fp, qp) = (micros(&a, |r| r.p50), micros(&b, |r| r.p50));
        let rate = |rounds: &[Round]| median(rounds.iter().map(|r| r.pairs_per_second).collect());
        println!(
            "  {tasks:5} | floor {fp:5.0} ({:5.0})  quorate {qp:5.0} ({:5.0}) | {:5.2} | {:13.0} {:8.0} | {:5.2}",
            micros(&a, |r| r.p99),
            micros(&b, |r| r.p99),
            qp / fp,
            rate(&a),
            rate(&b),
            rate(&b) / rate(&a),
        );
    }
}

/// One or two nodes stopped against healthy, and three.
async fn stopped(fleet: &Fleet) {
    let quorum = connect(&fleet.urls()).await;
    println!(
        "\n  stopped | acquire p50, µs: healthy  stopped  ratio | p99: healthy  stopped  ratio"
    );
    for stopped in [1, 2] {
        let (mut well, mut ill) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            voting(&quorum, NODES).await;
            well.push(round(&quorum, 1, 2000).await);
            (0..stopped).for_each(|i| fleet[i].sigstop());
            // The first requests find out; from then on the stopped nodes are asked for nothing.
            ill.push(round(&quorum, 1, 2000).await);
            (0..stopped).for_each(|i| fleet[i].sigcont());
        }
        let p = |rounds: &[Round], of: fn(&Round) -> Duration| micros(rounds, of);
        let (w50, i50) = (p(&well, |r| r.p50), p(&ill, |r| r.p50));
        let (w99, i99) = (p(&well, |r| r.p99), p(&ill, |r| r.p99));
        println!(
            "  {stopped:7} | {w50:24.0} {i50:8.0} {:6.2} | {w99:12.0} {i99:8.0} {:6.2}",
            i50 / w50,
            i99 / w99
        );
    }
    voting(&quorum, NODES).await;
    (0..3).for_each(|i| fleet[i].sigstop());
    let start = Instant::now();
    let error = quorum.mutex("bench:three").try_lock().await.unwrap_err();
    let first = start.elapsed();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let before = resident();
    let mut slowest = Duration::ZERO;
    let mut tries = 0;
    while start.elapsed() < Duration::from_secs(4) {
        let one = Instant::now();
        quorum.mutex("bench:three").try_lock().await.unwrap_err();
        slowest = slowest.max(one.elapsed());
        tries += 1;
    }
    let grown = resident().saturating_sub(before);
    (0..3).for_each(|i| fleet[i].sigcont());
    voting(&quorum, NODES).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!(
        "  three stopped: first error after {first:.1?} (node timeout {NODE_TIMEOUT:?}); {tries} more, the \
         slowest {slowest:.1?}; memory +{grown} kB; keys left with a ttl: {}",
        fleet.leftover_locks("quorate").len()
    );
}

async fn voting(quorum: &Quorum, nodes: usize) {
    let patience = Instant::now();
    while quorum.health().voting < nodes {
        assert!(patience.elapsed() < Duration::from_secs(20), "{quorum:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Resident memory in kB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
