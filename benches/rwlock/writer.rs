//! The time that a writer waits while readers come and go, so that there is always one, and the time that the readers
//! wait.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use quorate::Quorum;
use rand::random_range;

use crate::{
    TTL, connect,
    figures::{Times, exponential, in_units_of},
    round_trip,
    show::within,
};

const READERS: usize = 10;
/// A reader holds for this many round trips.
const HOLD: u32 = 5;
/// The rest between two writes, and up to twice this. After a write the lock is kept for readers that waited, and all
/// of them are back after this time.
const REST: u32 = 15;
const WRITES: usize = 200;

pub async fn writer(urls: &[String]) {
    let rtt = round_trip(urls).await;
    let waits = Arc::new(Mutex::new(Times::default()));
    let now = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let reads = Reads {
            quorum: connect(urls).await,
            waits: Arc::clone(&waits),
            now: Arc::clone(&now),
            stop: Arc::clone(&stop),
        };
        readers.push(tokio::spawn(reads.come_and_go(rtt)));
    }
    let quorum = connect(urls).await;
    let writes = tokio::spawn(async move {
        let lock = quorum.rwlock("bench:writer").ttl(TTL);
        let (mut took, mut alone) = (Times::default(), 0);
        for _ in 0..WRITES {
            tokio::time::sleep((rtt * REST).mul_f64(random_range(1.0..2.0))).await;
            let asked = Instant::now();
            alone += usize::from(now.load(Relaxed) == 0);
            let lease = lock.write().await.unwrap();
            took.add(asked.elapsed());
            lease.release().await.unwrap();
        }
        (took, alone)
    });
    let (took, alone) = writes.await.unwrap();
    stop.store(true, Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    let in_rtt = |times: &Times, percent| in_units_of(rtt, times.at(percent));
    let p99 = in_rtt(&took, 99);
    println!(
        "\n{READERS} clients that read for {HOLD} round trips, again and again; one that writes now and then, RTT {rtt:.1?}"
    );
    println!(
        "time to writer, in RTT: p50 {:.1}, p99 {}, longest {:.1} ({WRITES} writes; at {alone} nobody read)",
        in_rtt(&took, 50),
        within(&format!("{p99:.1}"), p99, 20.0),
        in_rtt(&took, 100),
    );
    let waits = waits.lock().unwrap();
    println!(
        "time to reader, in RTT: p50 {:.1}, p99 {:.1}, longest {:.1} ({} reads)",
        in_rtt(&waits, 50),
        in_rtt(&waits, 99),
        in_rtt(&waits, 100),
        waits.len(),
    );
}

/// One client that reads.
struct Reads {
    quorum: Quorum,
    waits: Arc<Mutex<Times>>,
    /// The number of its tasks that read now.
    now: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Reads {
    async fn come_and_go(self, rtt: Duration) {
        let lock = self.quorum.rwlock("bench:writer").ttl(TTL);
        tokio::time::sleep(exponential(rtt * HOLD)).await;
        while !self.stop.load(Relaxed) {
            let asked = Instant::now();
            let lease = lock.read().await.unwrap();
            self.waits.lock().unwrap().add(asked.elapsed());
            self.now.fetch_add(1, Relaxed);
            tokio::time::sleep(rtt * HOLD).await;
            self.now.fetch_sub(1, Relaxed);
            lease.release().await.unwrap();
        }
    }
}
