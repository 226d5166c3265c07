//! Semaphores: how soon a freed slot is taken, how many rounds a permit takes, and how many permits are taken per
//! second, compared with the mutex. It uses real servers, near ones and ones behind proxies that delay.
//!
//! One machine runs everything, so only the ratios count. Each figure is followed by its target.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

#[path = "../../tests/support/mod.rs"]
mod support;

#[path = "../speed/show.rs"]
mod show;

mod hand_off;
mod rate;
mod rounds;
mod work;

use std::time::Duration;

use quorate::Quorum;
use tokio::runtime::Builder;

use self::support::{Fleet, Kind, Proxy};

const NODES: usize = 3;
const TTL: Duration = Duration::from_secs(10);

fn main() {
    let fleet = Fleet::start(NODES, Kind::Redis);
    println!("N = {NODES}, servers on the same machine; (target)");
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let quorum = builder(&fleet.urls()).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
        for proxy in &proxies {
            proxy.delay(ONE_WAY);
        }
        let far: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
        if wanted("hand-off") {
            hand_off::hand_off(&far).await;
        }
        if wanted("rounds") {
            rounds::rounds(&fleet, &far).await;
        }
        if wanted("rate") {
            rate::rate(&fleet.urls()).await;
        }
    });
}

/// The proxies' timers round up to a millisecond, so this makes a round trip of about 10 ms.
const ONE_WAY: Duration = Duration::from_micros(3500);

/// Returns true if this part is to be measured: `cargo bench --bench slots --all-features -- rate`. Without a name all
/// parts are measured.
fn wanted(part: &str) -> bool {
    let mut named = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .peekable();
    named.peek().is_none() || named.any(|arg| arg == part)
}

/// The servers behind proxies are the same fleet.
fn builder(urls: &[String]) -> quorate::Builder {
    Quorum::builder().nodes(urls).fleet("bench")
}

/// Another client, which looks like another process to the servers.
async fn connect(urls: &[String]) -> Quorum {
    let quorum = builder(urls).connect().await.unwrap();
    while quorum.health().voting < NODES {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    quorum
}

/// The time of an uncontended permit: one round trip with this machine and its timers.
async fn round_trip(urls: &[String]) -> Duration {
    let quorum = connect(urls).await;
    let mut took = Vec::new();
    for i in 0..50 {
        let start = std::time::Instant::now();
        let lease = quorum.mutex(format!("bench:rtt:{i}")).lock().await.unwrap();
        took.push(start.elapsed());
        lease.release().await.unwrap();
    }
    took.sort();
    took[took.len() / 2]
}
