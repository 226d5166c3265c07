//! Tasks that lock and release, with the time and the cost.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures::future::join_all;
use quorate::Quorum;

use crate::{TTL, cost::Cost};

/// The input of a pair. It is made outside of the timed part.
pub struct Given {
    pub name: String,
    /// quorate makes its own owner.
    pub owner: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// A new name for every pair.
    New,
    /// One name for each task.
    One,
}

impl Names {
    fn give(self, task: usize) -> Given {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Relaxed);
        let name = match self {
            Self::New => format!("bench:{number:010}"),
            Self::One => format!("bench:task:{task}"),
        };
        let owner = format!("{number:032x}");
        Given { name, owner }
    }
}

/// Acquires, then releases. Returns the time of the acquisition.
pub trait Contestant: Clone + Send + 'static {
    fn pair(&mut self, given: Given) -> impl Future<Output = Duration> + Send;
}

impl Contestant for Quorum {
    async fn pair(&mut self, Given { name, .. }: Given) -> Duration {
        let start = Instant::now();
        let lease = self.mutex(name).ttl(TTL).try_lock().await;
        let lease = lease.unwrap().expect("it is free");
        let took = start.elapsed();
        lease.release().await.unwrap();
        took
    }
}

/// One round of one contestant.
pub struct Round {
    pub p50: Duration,
    pub p99: Duration,
    pub rate: f64,
    pairs: usize,
    cost: Cost,
}

pub async fn round(
    contestant: &impl Contestant,
    names: Names,
    tasks: usize,
    pairs: usize,
    servers: &[u32],
) -> Round {
    let given = (0..tasks).map(|task| (0..pairs).map(|_| names.give(task)).collect::<Vec<_>>());
    let given: Vec<_> = given.collect();
    let before = Cost::now(servers);
    let start = Instant::now();
    let workers = given.into_iter().map(|given| {
        let mut contestant = contestant.clone();
        tokio::spawn(async move {
            let mut took = Vec::with_capacity(given.len());
            for given in given {
                took.push(contestant.pair(given).await);
            }
            took
        })
    });
    let took = join_all(workers).await;
    let elapsed = start.elapsed();
    let cost = Cost::now(servers).since(&before);
    let mut took: Vec<Duration> = took.into_iter().flat_map(Result::unwrap).collect();
    took.sort();
    Round {
        p50: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
        rate: took.len() as f64 / elapsed.as_secs_f64(),
        pairs: took.len(),
        cost,
    }
}

// ---- many rounds --------------------------------------------------------------------------------

pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

pub fn micros(rounds: &[Round], of: impl Fn(&Round) -> Duration) -> f64 {
    median(rounds.iter().map(|r| of(r).as_secs_f64() * 1e6).collect())
}

pub fn rate(rounds: &[Round]) -> f64 {
    median(rounds.iter().map(|r| r.rate).collect())
}

/// The average cost of one pair.
pub struct PerPair {
    pub client: Duration,
    pub servers: Duration,
    pub allocations: f64,
}

pub fn per_pair(rounds: &[Round]) -> PerPair {
    let pairs: usize = rounds.iter().map(|r| r.pairs).sum();
    let part = |whole: Duration| whole.div_f64(pairs as f64);
    let allocations: u64 = rounds.iter().map(|r| r.cost.allocations).sum();
    PerPair {
        client: part(rounds.iter().map(|r| r.cost.client).sum()),
        servers: part(rounds.iter().map(|r| r.cost.servers).sum()),
        allocations: allocations as f64 / pairs as f64,
    }
}
