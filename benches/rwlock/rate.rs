//! Readers of one name per second, compared with locks of distinct names. Requests about mutexes travel in batches, and
//! those about read-write locks do not, so batches are switched off here.

use std::time::{Duration, Instant};

use futures::future::join_all;
use quorate::Quorum;

use crate::{TTL, connect, figures::median, show::reaches};

const TASKS: usize = 64;
const RUN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 7;

pub async fn rate(urls: &[String]) {
    quorate::testing::without_batches(true);
    let quorum = connect(urls).await;
    let (mut locks, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        locks.push(pairs(&quorum, false).await);
        reads.push(pairs(&quorum, true).await);
    }
    quorate::testing::without_batches(false);
    let ratios = locks.iter().zip(&reads).map(|(locks, reads)| reads / locks);
    let ratio = median(ratios.collect());
    println!(
        "\n{TASKS} tasks, pairs a second: {:.0} mutexes of distinct names, {:.0} readers of one name: {}",
        median(locks),
        median(reads),
        reaches(&format!("{ratio:.2}"), ratio, 0.6)
    );
}

async fn pairs(quorum: &Quorum, reads: bool) -> f64 {
    let start = Instant::now();
    let tasks = (0..TASKS).map(|task| {
        let mutex = quorum.mutex(format!("bench:rate:{task}")).ttl(TTL);
        let rwlock = quorum.rwlock("bench:rate").ttl(TTL);
        tokio::spawn(async move {
            let mut done = 0_u64;
            while start.elapsed() < RUN {
                let lease = match reads {
                    true => rwlock.read().await.unwrap(),
                    false => mutex.lock().await.unwrap(),
                };
                lease.release().await.unwrap();
                done += 1;
            }
            done
        })
    });
    let done: u64 = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
    done as f64 / start.elapsed().as_secs_f64()
}
