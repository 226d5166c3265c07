//! One, two and three stopped nodes, compared with healthy nodes.

use std::time::{Duration, Instant};

use quorate::{Error, Quorum};

use crate::{
    NODE_TIMEOUT, NODES, ROUNDS,
    load::{Names, Round, micros, round},
    show::within,
    support::Fleet,
};

const PAIRS: usize = 1000;

pub async fn stopped(quorum: &Quorum, fleet: &Fleet) {
    println!("\nstopped | acquire p50, µs: healthy  stopped  ratio | p99: healthy  stopped  ratio");
    for stopped in [1, 2] {
        let (mut well, mut ill) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            voting(quorum, NODES).await;
            well.push(round(quorum, Names::New, 1, PAIRS, &[]).await);
            (0..stopped).for_each(|i| fleet[i].sigstop());
            // The first requests notice it. From then on the stopped nodes get no requests.
            ill.push(round(quorum, Names::New, 1, PAIRS, &[]).await);
            (0..stopped).for_each(|i| fleet[i].sigcont());
        }
        let p = |rounds: &[Round], of: fn(&Round) -> Duration| micros(rounds, of);
        let (w50, i50) = (p(&well, |r| r.p50), p(&ill, |r| r.p50));
        let (w99, i99) = (p(&well, |r| r.p99), p(&ill, |r| r.p99));
        println!(
            "{stopped:7} | {w50:24.0} {i50:8.0}  {} | {w99:12.0} {i99:8.0}  {:.2}",
            within(&format!("{:.2}", i50 / w50), i50 / w50, 1.2),
            i99 / w99
        );
    }
    three(quorum, fleet).await;
}

async fn three(quorum: &Quorum, fleet: &Fleet) {
    voting(quorum, NODES).await;
    (0..3).for_each(|i| fleet[i].sigstop());
    let start = Instant::now();
    let error = quorum.mutex("bench:three").try_lock().await.unwrap_err();
    let first = start.elapsed();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let before = resident();
    let mut slowest = Duration::ZERO;
    let mut tries = 0;
    while start.elapsed() < Duration::from_secs(3) {
        let one = Instant::now();
        quorum.mutex("bench:three").try_lock().await.unwrap_err();
        slowest = slowest.max(one.elapsed());
        tries += 1;
    }
    let grown = resident().saturating_sub(before);
    (0..3).for_each(|i| fleet[i].sigcont());
    voting(quorum, NODES).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!(
        "three stopped: first error after {first:.1?} (node timeout {NODE_TIMEOUT:?}); {tries} more, the slowest \
         {slowest:.1?}; memory +{grown} kB; keys left with a ttl: {}",
        fleet.leftover_locks("quorate").len()
    );
}

pub async fn voting(quorum: &Quorum, nodes: usize) {
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
