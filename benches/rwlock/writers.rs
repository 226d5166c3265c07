//! Many tasks of several clients read and write one name, and one call in five writes. Measures how many sections they
//! make, and how long readers and writers wait. The same load on a mutex is measured in turns with it.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::future::join_all;
use quorate::{Error, Lease, Quorum};
use rand::random_range;

use crate::{
    TTL, connect,
    figures::{Times, median},
    show::{reaches, within},
};

const CLIENTS: usize = 4;
/// The number of tasks per client.
const TASKS: usize = 16;
const SECTION: Duration = Duration::from_millis(5);
const RUN: Duration = Duration::from_secs(10);
const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(30);

/// The raw measurements of one run.
#[derive(Default)]
struct Load {
    reads: Times,
    writes: Times,
    timed_out: usize,
}

/// The figures by which runs are compared.
struct Figures {
    /// Sections per second.
    rate: f64,
    /// In ms: the median and the longest wait of readers, and of writers.
    reads: [f64; 2],
    writes: [f64; 2],
    timed_out: usize,
}

pub async fn writers(urls: &[String]) {
    let clients = join_all((0..CLIENTS).map(|_| connect(urls))).await;
    let (mut mutex, mut rwlock) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        mutex.push(load(&clients, false).await);
        rwlock.push(load(&clients, true).await);
    }
    let of = |rounds: &[Figures], figure: fn(&Figures) -> f64| {
        median(rounds.iter().map(figure).collect())
    };
    let longest = |rounds: &[Figures]| rounds.iter().map(|it| it.writes[1]).fold(0.0, f64::max);
    println!(
        "\n{CLIENTS} clients of {TASKS} tasks, sections of {SECTION:?}, one of five writes; medians of {ROUNDS} rounds"
    );
    let ratio = of(&rwlock, |it| it.rate) / of(&mutex, |it| it.rate);
    println!(
        "a mutex:           {:4.0} sections a second; waits {:4.0} ms, {:5.0} at most",
        of(&mutex, |it| it.rate),
        of(&mutex, |it| it.writes[0]),
        longest(&mutex),
    );
    println!(
        "a read-write lock: {:4.0} sections a second, beside the mutex's {}",
        of(&rwlock, |it| it.rate),
        reaches(&format!("{ratio:.2}"), ratio, 0.9),
    );
    let most = longest(&rwlock);
    println!(
        "  a writer waits   {:4.0} ms, {} at most",
        of(&rwlock, |it| it.writes[0]),
        within(&format!("{most:5.0}"), most, 3.0 * longest(&mutex)),
    );
    let reads = of(&rwlock, |it| it.reads[0]);
    println!(
        "  a reader waits   {} ms, {:5.0} at most",
        within(&format!("{reads:4.0}"), reads, 20.0),
        rwlock.iter().map(|it| it.reads[1]).fold(0.0, f64::max),
    );
    let all = |rounds: &[Figures]| rounds.iter().map(|it| it.timed_out).sum::<usize>();
    println!(
        "  waits that ended after {PATIENCE:?}: {} of a mutex, {} of a read-write lock",
        all(&mutex),
        all(&rwlock)
    );
}

async fn load(clients: &[Quorum], is_rwlock: bool) -> Figures {
    let load = Arc::new(Mutex::new(Load::default()));
    let start = Instant::now();
    let tasks = clients
        .iter()
        .flat_map(|quorum| (0..TASKS).map(move |_| quorum));
    let tasks = tasks.map(|quorum| {
        let (quorum, load) = (quorum.clone(), Arc::clone(&load));
        tokio::spawn(async move {
            while start.elapsed() < RUN {
                let writes = !is_rwlock || random_range(0..5) == 0;
                let asked = Instant::now();
                let lease = ask(&quorum, is_rwlock, writes).await;
                let waited = asked.elapsed();
                {
                    let mut load = load.lock().unwrap();
                    match (&lease, writes) {
                        (Err(Error::Held(_)), _) => load.timed_out += 1,
                        (Err(error), _) => panic!("{error}"),
                        (Ok(_), true) => load.writes.add(waited),
                        (Ok(_), false) => load.reads.add(waited),
                    }
                }
                if let Ok(lease) = lease {
                    tokio::time::sleep(SECTION).await;
                    lease.release().await.unwrap();
                }
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    let took = start.elapsed().as_secs_f64();
    let load = load.lock().unwrap();
    let figures = |times: &Times| [50, 100].map(|percent| times.at(percent).as_secs_f64() * 1e3);
    Figures {
        rate: (load.reads.len() + load.writes.len()) as f64 / took,
        reads: figures(&load.reads),
        writes: figures(&load.writes),
        timed_out: load.timed_out,
    }
}

async fn ask(quorum: &Quorum, is_rwlock: bool, writes: bool) -> Result<Lease, Error> {
    let rwlock = quorum
        .rwlock("bench:writers")
        .ttl(TTL)
        .wait_timeout(PATIENCE);
    match (is_rwlock, writes) {
        (false, _) => {
            let mutex = quorum
                .mutex("bench:writers")
                .ttl(TTL)
                .wait_timeout(PATIENCE);
            mutex.lock().await
        }
        (true, true) => rwlock.write().await,
        (true, false) => rwlock.read().await,
    }
}
