//! Permits per second of a semaphore that is never full, compared with locks of distinct names. Requests about locks
//! travel in batches, and those about slots do not, so batches are switched off here.

use std::time::{Duration, Instant};

use futures::future::join_all;
use quorate::Quorum;

use crate::{TTL, connect, show::reaches};

const TASKS: usize = 64;
const LIMIT: u32 = 1000;
const RUN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

pub async fn rate(urls: &[String]) {
    quorate::testing::without_batches(true);
    let quorum = connect(urls).await;
    let (mut locks, mut permits) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        locks.push(pairs(&quorum, false).await);
        permits.push(pairs(&quorum, true).await);
    }
    quorate::testing::without_batches(false);
    let (locks, permits) = (median(locks), median(permits));
    let ratio = permits / locks;
    println!(
        "\n{TASKS} tasks, pairs a second: {locks:.0} locks of distinct names, {permits:.0} permits of L = {LIMIT}: {}",
        reaches(&format!("{ratio:.2}"), ratio, 0.4)
    );
}

async fn pairs(quorum: &Quorum, of_a_semaphore: bool) -> f64 {
    let start = Instant::now();
    let tasks = (0..TASKS).map(|task| {
        let quorum = quorum.clone();
        tokio::spawn(async move {
            let semaphore = quorum.semaphore("bench:rate", LIMIT).ttl(TTL);
            let mut done = 0_u64;
            while start.elapsed() < RUN {
                let lease = match of_a_semaphore {
                    true => semaphore.acquire().await.unwrap(),
                    false => {
                        let name = format!("bench:rate:{task}:{done}");
                        quorum.mutex(name).ttl(TTL).lock().await.unwrap()
                    }
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

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
