//! Locks without contention: a reader, a writer and two names at once, compared with one mutex. They take turns at
//! every single lock, so that other work of the machine affects all of them alike.

use std::time::Instant;

use futures::future::BoxFuture;
use quorate::{Error, Lease, Quorum};

use crate::{
    TTL, connect,
    figures::{Times, in_units_of, median},
    show::within,
};

const ROUNDS: usize = 9;
const LOCKS: usize = 1_000;

type Lock = (
    &'static str,
    f64,
    fn(&Quorum) -> BoxFuture<'static, Result<Lease, Error>>,
);

/// The first one is the baseline of the others.
const LOCKS_OF: [Lock; 4] = [
    ("a mutex", 1.0, |quorum| {
        Box::pin(quorum.mutex("bench:alone").ttl(TTL).lock())
    }),
    ("a reader", 1.2, |quorum| {
        Box::pin(quorum.rwlock("bench:read").ttl(TTL).read())
    }),
    ("a writer", 1.2, |quorum| {
        Box::pin(quorum.rwlock("bench:write").ttl(TTL).write())
    }),
    ("two names", 1.3, |quorum| {
        let names = ["bench:one", "bench:other"];
        Box::pin(quorum.mutex_all(names).ttl(TTL).lock())
    }),
];

pub async fn alone(urls: &[String]) {
    let quorum = connect(urls).await;
    // This runs as a task, because the future that block_on polls is woken in another way.
    let rounds = tokio::spawn(async move {
        round(&quorum).await;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(round(&quorum).await);
        }
        rounds
    });
    let rounds = rounds.await.unwrap();
    println!(
        "\nnobody contends, one task: acquire p50, p99 µs (medians of {ROUNDS} rounds); p50 beside the mutex's"
    );
    for (i, (what, target, _)) in LOCKS_OF.iter().enumerate() {
        let micros = |percent: usize| {
            let of = |round: &[Times; 4]| round[i].at(percent).as_secs_f64() * 1e6;
            median(rounds.iter().map(of).collect())
        };
        let ratio = |round: &[Times; 4]| in_units_of(round[0].at(50), round[i].at(50));
        let ratio = median(rounds.iter().map(ratio).collect());
        let shown = format!("{ratio:.2}");
        let shown = match i {
            0 => shown,
            _ => within(&shown, ratio, *target),
        };
        println!("{what:10} {:6.0} {:6.0}   {shown}", micros(50), micros(99));
    }
}

async fn round(quorum: &Quorum) -> [Times; 4] {
    let mut took: [Times; 4] = Default::default();
    for _ in 0..LOCKS {
        for ((_, _, lock), took) in LOCKS_OF.iter().zip(&mut took) {
            let start = Instant::now();
            let lease = lock(quorum).await.unwrap();
            took.add(start.elapsed());
            lease.release().await.unwrap();
        }
    }
    took
}
