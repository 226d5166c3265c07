//! The time that a set of names waits beside steady holders of single names. A set has no place in any queue, and gets
//! the lock when all its names happen to be free.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use quorate::Quorum;
use rand::{random_range, seq::SliceRandom as _};

use crate::{
    TTL, connect,
    figures::{Times, exponential, in_units_of},
    round_trip,
};

const NAMES: usize = 16;
const SINGLES: usize = 8;
const WIDTHS: [usize; 3] = [2, 4, 8];
/// Each client holds for this many round trips, and then rests equally long, on average.
const HOLD: u32 = 5;
const RUN: Duration = Duration::from_secs(150);

pub async fn wide(urls: &[String]) {
    let rtt = round_trip(urls).await;
    let singles = Arc::new(Mutex::new(Singles::default()));
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let mut lockers = Vec::new();
    for _ in 0..SINGLES {
        let quorum = connect(urls).await;
        let locker = steady(quorum, rtt, Arc::clone(&singles), Arc::clone(&stop));
        lockers.push(tokio::spawn(locker));
    }
    let waits = tokio::spawn(sets(connect(urls).await, rtt)).await.unwrap();
    let took = start.elapsed();
    stop.store(true, Relaxed);
    for locker in lockers {
        locker.await.unwrap();
    }
    let singles = singles.lock().unwrap();
    let taken = singles.held.as_secs_f64() / took.as_secs_f64() / NAMES as f64;
    println!(
        "\n{SINGLES} clients that lock single names of {NAMES} again and again; each name is held for {:.0} % of the time, RTT {rtt:.1?}",
        taken * 100.0
    );
    println!("          wait in RTT: p50, p99, longest");
    let line = |what: &str, times: &Times| {
        let at = |percent| in_units_of(rtt, times.at(percent));
        let (p50, p99, longest) = (at(50), at(99), at(100));
        println!(
            "{what:9} {p50:7.1} {p99:7.1} {longest:7.1} ({})",
            times.len()
        );
    };
    line("a single", &singles.waits);
    for (width, times) in WIDTHS.iter().zip(&waits) {
        line(&format!("set of {width}"), times);
    }
}

/// The results of the clients of single names.
#[derive(Default)]
struct Singles {
    waits: Times,
    /// The total time for which they held names.
    held: Duration,
}

/// Locks names one after the other.
async fn steady(
    quorum: Quorum,
    rtt: Duration,
    singles: Arc<Mutex<Singles>>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Relaxed) {
        let mutex = quorum.mutex(name(random_range(0..NAMES))).ttl(TTL);
        let asked = Instant::now();
        let lease = mutex.lock().await.unwrap();
        let begun = Instant::now();
        tokio::time::sleep(exponential(rtt * HOLD)).await;
        {
            let mut singles = singles.lock().unwrap();
            singles.waits.add(begun - asked);
            singles.held += begun.elapsed();
        }
        lease.release().await.unwrap();
        tokio::time::sleep(exponential(rtt * HOLD)).await;
    }
}

/// Locks sets of each width in turn, one at a time. Returns how long each of them waited.
async fn sets(quorum: Quorum, rtt: Duration) -> [Times; 3] {
    let mut waits: [Times; 3] = Default::default();
    let start = Instant::now();
    while start.elapsed() < RUN {
        for (width, waits) in WIDTHS.iter().zip(&mut waits) {
            let mut names: Vec<usize> = (0..NAMES).collect();
            names.shuffle(&mut rand::rng());
            let names = names[..*width].iter().map(|n| name(*n));
            let asked = Instant::now();
            let lease = quorum.mutex_all(names).ttl(TTL).lock().await.unwrap();
            waits.add(asked.elapsed());
            lease.release().await.unwrap();
            tokio::time::sleep(exponential(rtt * HOLD)).await;
        }
    }
    waits
}

fn name(n: usize) -> String {
    format!("bench:wide:{n:02}")
}
