//! Waiting in a queue compared with polling: who gets the lock after a release, how soon, and at which cost. It uses
//! five real servers, near ones and ones behind proxies that delay.
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

#[path = "../speed/cost.rs"]
mod cost;
#[path = "../speed/show.rs"]
mod show;

mod contend;
mod cut;
mod far;
mod idle;
mod lockers;

use std::{
    num::NonZeroU64,
    time::{Duration, Instant},
};

use quorate::Quorum;
use rustix::thread::set_current_timer_slack;
use tokio::runtime::Builder;

use self::support::{Fleet, Kind, Server};

const NODES: usize = 5;
const TTL: Duration = Duration::from_secs(10);

fn main() {
    let fleet = Fleet::start(NODES, Kind::Redis);
    let servers: Vec<u32> = fleet.iter().map(Server::pid).collect();
    println!("N = {NODES}, servers on the same machine; (target)");
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        builder(&fleet.urls())
            .connect()
            .await
            .unwrap()
            .bootstrap_forced()
            .await
            .unwrap();
        if wanted("far") {
            contend::far(&fleet).await;
        }
        if wanted("near") {
            contend::near(&fleet, &servers).await;
        }
        if wanted("uncontended") {
            far::far(&fleet).await;
        }
        if wanted("idle") {
            idle::idle(&fleet, &servers).await;
        }
    });
}

/// Returns true if this part is to be measured: `cargo bench --bench line -- near`. Without a name all parts are
/// measured.
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

/// Waits for this time, as exactly as the kernel can. Tokio's timer turns one millisecond into up to two, and a
/// thread's sleep is 50 µs too long unless the kernel is told otherwise.
async fn passes(time: Duration) {
    let end = Instant::now() + time;
    let sleep = move || {
        set_current_timer_slack(NonZeroU64::new(1)).unwrap();
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    };
    tokio::task::spawn_blocking(sleep).await.unwrap();
}

fn median<T: PartialOrd + Copy>(mut of: Vec<T>) -> T {
    of.sort_by(|a, b| a.partial_cmp(b).unwrap());
    of[of.len() / 2]
}
