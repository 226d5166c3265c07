//! Clients that take a permit, hold it, release it, and rest.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use quorate::Quorum;
use rand::random_range;

use crate::TTL;

/// One permit.
#[derive(Clone, Copy)]
pub struct Permit {
    pub slot: u32,
    pub asked: Instant,
    pub begun: Instant,
    pub ended: Instant,
}

/// The load of a run.
#[derive(Clone, Copy)]
pub struct Load {
    pub limit: u32,
    /// The average. The times are exponentially distributed.
    pub hold: Duration,
    /// The average rest between two permits. The times are exponentially distributed.
    pub rest: Duration,
    pub warm: Duration,
    pub run: Duration,
}

/// The result of a run.
pub struct Done {
    pub permits: Vec<Permit>,
    pub took: Duration,
}

/// Each client takes one permit after the other. `begun` is called when the part that counts begins.
pub async fn run(clients: Vec<Quorum>, name: &str, load: Load, begun: impl FnOnce()) -> Done {
    let permits = Arc::new(Mutex::new(Vec::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|quorum| {
            let semaphore = quorum.semaphore(name, load.limit).ttl(TTL);
            let (permits, stop) = (permits.clone(), stop.clone());
            tokio::spawn(async move {
                tokio::time::sleep(exponential(load.rest)).await;
                while !stop.load(Relaxed) {
                    let asked = Instant::now();
                    let lease = semaphore.acquire().await.unwrap();
                    let (begun, slot) = (Instant::now(), lease.slot().unwrap());
                    tokio::time::sleep(exponential(load.hold)).await;
                    let ended = Instant::now();
                    permits.lock().unwrap().push(Permit {
                        slot,
                        asked,
                        begun,
                        ended,
                    });
                    lease.release().await.unwrap();
                    tokio::time::sleep(exponential(load.rest)).await;
                }
                drop(quorum);
            })
        })
        .collect();
    tokio::time::sleep(load.warm).await;
    permits.lock().unwrap().clear();
    begun();
    let start = Instant::now();
    tokio::time::sleep(load.run).await;
    let took = start.elapsed();
    let measured = std::mem::take(&mut *permits.lock().unwrap());
    stop.store(true, Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    Done {
        permits: measured,
        took,
    }
}

fn exponential(mean: Duration) -> Duration {
    let uniform: f64 = random_range(f64::EPSILON..1.0);
    mean.mul_f64(-uniform.ln())
}

impl Done {
    /// The part of the slots' time for which they were held.
    pub fn occupancy(&self, limit: u32) -> f64 {
        let held: Duration = self.permits.iter().map(|p| p.ended - p.begun).sum();
        held.as_secs_f64() / self.took.as_secs_f64() / f64::from(limit)
    }

    /// The times from the end of a permit to the beginning of the next permit of its slot, sorted.
    pub fn hand_offs(&self) -> Vec<Duration> {
        let mut all = self.permits.clone();
        all.sort_by_key(|permit| (permit.slot, permit.begun));
        let pairs = all.windows(2).filter(|pair| pair[0].slot == pair[1].slot);
        let mut took: Vec<Duration> = pairs
            .map(|pair| pair[1].begun.saturating_duration_since(pair[0].ended))
            .collect();
        took.sort();
        took
    }
}
