//! Latency, throughput and cost compared with a floor, interleaved in one run, on five real servers.
//!
//! Only ratios of medians over the rounds count, because this machine also runs the servers. CPU time per pair is
//! steadier than rates. Each figure is followed by its target.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

#[path = "../../tests/support/mod.rs"]
mod support;

mod cost;
mod floor;
mod load;
mod renewals;
mod show;
mod stopped;

use std::{collections::HashMap, time::Duration};

use quorate::Quorum;
use tokio::runtime::{Builder, Runtime};

use self::{
    floor::Floor,
    load::{Names, PerPair, Round, micros, per_pair, rate, round},
    show::{reaches, within},
    support::{Fleet, Kind, Server},
};

const NODES: usize = 5;
const MAJORITY: usize = 3;
const ROUNDS: usize = 5;
const TTL: Duration = Duration::from_secs(10);
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// The number of tasks at which costs are compared.
const MANY: usize = 64;

/// Names, tasks, and the pairs of each task in one round.
const ROWS: [(Names, usize, usize); 6] = [
    (Names::One, 1, 2500),
    (Names::New, 1, 2500),
    (Names::New, 8, 1000),
    (Names::One, MANY, 250),
    (Names::New, MANY, 250),
    (Names::New, 512, 40),
];

fn main() {
    let fleet = Fleet::start(NODES, Kind::Redis);
    let urls = fleet.urls();
    let servers: Vec<u32> = fleet.iter().map(Server::pid).collect();
    println!(
        "N = {NODES}, medians of {ROUNDS} interleaved rounds, servers on the same machine; (target)"
    );
    let current = Builder::new_current_thread().enable_all().build().unwrap();
    let one = beside_the_floor(&current, "current-thread runtime", &urls, &servers);
    let multi = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let two = beside_the_floor(&multi, "multi-thread runtime, 2 workers", &urls, &servers);
    println!("\nquorate's rate, multi-thread / current-thread");
    for (_, tasks, _) in ROWS.iter().filter(|(names, ..)| *names == Names::New) {
        let ratio = two[tasks] / one[tasks];
        println!(
            "{tasks:5} tasks: {}",
            match *tasks {
                MANY => reaches(&format!("{ratio:.2}"), ratio, 0.85),
                _ => format!("{ratio:.2}"),
            }
        );
    }
    drop(multi);
    current.block_on(async {
        let quorum = connect(&urls).await;
        stopped::stopped(&quorum, &fleet).await;
        renewals::renewals(&quorum, &servers).await;
    });
}

/// Returns quorate's rate for each number of tasks.
fn beside_the_floor(
    runtime: &Runtime,
    what: &str,
    urls: &[String],
    servers: &[u32],
) -> HashMap<usize, f64> {
    println!("\n{what}");
    println!(
        " tasks | acquire p50 (p99), µs: floor, quorate, ratio | pairs/s: floor, quorate, ratio"
    );
    let (urls, servers) = (urls.to_vec(), servers.to_vec());
    // This runs as a task, because the future that block_on polls is woken in another way.
    let rows = runtime.spawn(async move {
        let (floor, quorum) = (Floor::connect(&urls).await, connect(&urls).await);
        let mut rates = HashMap::new();
        for (names, tasks, pairs) in ROWS {
            let (mut floors, mut ours) = (Vec::new(), Vec::new());
            round(&floor, names, tasks, pairs / 10 + 1, &[]).await;
            round(&quorum, names, tasks, pairs / 10 + 1, &[]).await;
            for _ in 0..ROUNDS {
                floors.push(round(&floor, names, tasks, pairs, &servers).await);
                ours.push(round(&quorum, names, tasks, pairs, &servers).await);
            }
            show(names, tasks, &floors, &ours);
            if tasks == MANY {
                show_cost(&per_pair(&floors), &per_pair(&ours));
            }
            if names == Names::New {
                rates.insert(tasks, rate(&ours));
            }
        }
        rates
    });
    runtime.block_on(rows).unwrap()
}

async fn connect(urls: &[String]) -> Quorum {
    let builder = Quorum::builder().nodes(urls).node_timeout(NODE_TIMEOUT);
    let quorum = builder.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

fn show(names: Names, tasks: usize, floor: &[Round], ours: &[Round]) {
    let times = |rounds| {
        let (p50, p99) = (micros(rounds, |r| r.p50), micros(rounds, |r| r.p99));
        format!("{p50:5.0} ({p99:5.0})")
    };
    let ratio = micros(ours, |r| r.p50) / micros(floor, |r| r.p50);
    let shown = format!("{ratio:5.2}");
    let latency = match tasks {
        1 => within(&shown, ratio, 1.25),
        8 => within(&shown, ratio, 1.4),
        MANY => within(&shown, ratio, 1.1),
        _ => shown,
    };
    let faster = rate(ours) / rate(floor);
    let shown = format!("{faster:5.2}");
    let throughput = match tasks {
        MANY => reaches(&shown, faster, 1.2),
        _ => shown,
    };
    println!(
        " {tasks:5} | {}  {}  {latency} | {:6.0}  {:6.0}  {throughput}{}",
        times(floor),
        times(ours),
        rate(floor),
        rate(ours),
        match names {
            Names::New => "",
            Names::One => "  one name a task",
        }
    );
}

/// The cost at [`MANY`] tasks.
fn show_cost(floor: &PerPair, ours: &PerPair) {
    // A value in µs per pair is the same in CPU-s per million pairs, and a hundredth of that per 10,000 pairs.
    let cpu = |cpu: Duration| cpu.as_secs_f64() * 1e4;
    let row = |what: &str, floor: f64, ours: f64, digits: usize, target: Option<f64>| {
        let ratio = ours / floor;
        let shown = format!("{ratio:.2}");
        let ratio = target.map_or(shown.clone(), |target| within(&shown, ratio, target));
        println!("       | {what}: floor {floor:.digits$}  quorate {ours:.digits$}  ratio {ratio}");
    };
    row(
        "client CPU-s per 10k pairs",
        cpu(floor.client),
        cpu(ours.client),
        3,
        None,
    );
    row(
        "servers' CPU-s per 10k pairs",
        cpu(floor.servers),
        cpu(ours.servers),
        3,
        Some(1.1),
    );
    row(
        "allocations per pair",
        floor.allocations,
        ours.allocations,
        1,
        None,
    );
}
