//! Read-write locks and several names at once: their cost compared with the mutex, the number of readers per second,
//! the time that a writer waits while readers come and go, and the time that a wide set waits beside steady holders of
//! single names. It uses real servers, near ones and ones behind proxies that delay.
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

mod alone;
mod figures;
mod rate;
mod wide;
mod writer;
mod writers;

use std::time::Duration;

use quorate::Quorum;
use tokio::runtime::Builder;

use self::support::{Fleet, Kind, Proxy};

const NODES: usize = 3;
const TTL: Duration = Duration::from_secs(10);
/// The proxies' timers round up to a millisecond, so this makes a round trip of about 10 ms.
const ONE_WAY: Duration = Duration::from_micros(3500);

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
        if wanted("alone") {
            alone::alone(&fleet.urls()).await;
        }
        if wanted("rate") {
            rate::rate(&fleet.urls()).await;
        }
        if wanted("writer") {
            writer::writer(&far).await;
        }
        if wanted("writers") {
            writers::writers(&fleet.urls()).await;
        }
        if wanted("wide") {
            wide::wide(&far).await;
        }
    });
}

/// Returns true if this part is to be measured: `cargo bench --bench rwlock --all-features -- rate`. Without a name all
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

/// The time of an uncontended lock: one round trip with this machine and its timers.
async fn round_trip(urls: &[String]) -> Duration {
    let quorum = connect(urls).await;
    let mut took = figures::Times::default();
    for i in 0..50 {
        let start = std::time::Instant::now();
        let lease = quorum.mutex(format!("bench:rtt:{i}")).lock().await.unwrap();
        took.add(start.elapsed());
        lease.release().await.unwrap();
    }
    took.at(50)
}
