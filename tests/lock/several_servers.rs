//! Several names at once, between processes on real servers (protocol §8). Sets overlap, and single names are locked
//! beside them, while servers die, stop and forget.
//!
//! Each name is a counter: the last line of a file. A write is one appended line. A holder of a set adds to all its
//! counters: it reads, sleeps and writes.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::support::{Fleet, Server};
use crate::workers::{self, Job, Workers, check, millis, write_line, written};
use quorate::{Builder, Error, Quorum};
use rand::seq::SliceRandom as _;

const TTL: Duration = Duration::from_secs(2);
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn builder(urls: &[String]) -> Builder {
    Quorum::builder()
        .fleet("tests")
        .nodes(urls)
        .max_ttl(TTL)
        .restart_margin(Duration::from_millis(100))
        .node_timeout(Duration::from_millis(200))
}

/// Returns true if this process is a worker. Its work is done when this returns.
fn worked() -> bool {
    let Some(job) = Job::of_this_process() else {
        return false;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let quorum = builder(&job.urls)
            .connect()
            .await
            .expect("a majority answers");
        while !job.is_over() {
            count(&quorum, &job).await;
        }
        assert!(quorum.shutdown().await.is_empty());
    });
    true
}

fn log(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("log-{name}"))
}

/// Locks a set of two to four names in any order, or a single name.
async fn count(quorum: &Quorum, job: &Job) {
    let mut names = NAMES;
    names.shuffle(&mut rand::rng());
    let names = match &*job.work {
        "one" => &names[..1],
        _ => &names[..rand::random_range(2..5)],
    };
    let mutex = match names {
        [name] => quorum.mutex(*name),
        names => quorum.mutex_all(names.iter().copied()),
    };
    let mutex = mutex.ttl(TTL);
    if rand::random_range(0..8) == 0 {
        // This waiter loses patience.
        let _ = tokio::time::timeout(millis(0, 20), mutex.lock()).await;
    }
    let logs: Vec<PathBuf> = names.iter().map(|name| log(&job.dir, name)).collect();
    let sets = job.dir.join("sets");
    let is_set = names.len() > 1;
    let done = mutex.run(move |watch| async move {
        let last = |log: &PathBuf| written(log).pop().map_or(0, |entry| entry.number);
        let numbers: Vec<u64> = logs.iter().map(last).collect();
        tokio::time::sleep(millis(2, 20)).await;
        // A loss is announced 100 ms before the end, which is enough time for some lines.
        if watch.is_valid() {
            for (log, number) in logs.iter().zip(numbers) {
                write_line(
                    log,
                    &format!("{} {} {}", number + 1, watch.token(), std::process::id()),
                );
            }
            if is_set {
                write_line(&sets, "1");
            }
        }
    });
    match done.await {
        Ok(()) | Err(Error::Lost(_)) => {}
        Err(error) if error.is_retryable() => tokio::time::sleep(millis(5, 30)).await,
        Err(error) => panic!("{error}"),
    }
    tokio::time::sleep(millis(0, 10)).await;
}

fn sets(workers: &Workers) -> usize {
    let sets = std::fs::read_to_string(workers.dir.path().join("sets"));
    sets.map_or(0, |text| text.lines().count())
}

/// Waits until this many more sets were locked.
fn progress(workers: &Workers, more: usize, after: &str) {
    // A step is hundreds of sets here, in the worst case after a quarantine. In other tests it is a few writes.
    let patience = 4 * workers::PATIENCE;
    let (from, deadline) = (sets(workers), Instant::now() + patience);
    while sets(workers) < from + more {
        assert!(Instant::now() < deadline, "no progress after: {after}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn each(servers: &[Server], act: impl Fn(&Server)) {
    servers.iter().for_each(act);
}

#[test]
fn a_thousand_sets_that_overlap_are_never_torn_and_none_waits_for_ever() {
    if worked() {
        return;
    }
    let fleet = Fleet::mixed(5);
    let urls = fleet.urls();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let quorum = builder(&urls).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
    });
    let test = "a_thousand_sets_that_overlap_are_never_torn_and_none_waits_for_ever";
    let mut workers = Workers::start((4, "sets"), (module_path!(), test), &urls, "");
    workers.hire("one");
    progress(&workers, 300, "the start");
    fleet[0].sigstop();
    progress(&workers, 100, "one stopped");
    fleet[0].sigcont();
    fleet[1].kill9();
    progress(&workers, 100, "one died");
    fleet[1].start_again();
    progress(&workers, 100, "it is back, without memory");
    workers.replace("sets");
    progress(&workers, 100, "a client died");
    each(&fleet[1..4], Server::restart_empty);
    progress(&workers, 100, "a majority restarted empty");
    let done = sets(&workers);
    progress(&workers, 1_000_usize.saturating_sub(done), "all that");
    workers.stop();
    println!("{} sets", sets(&workers));
    for name in NAMES {
        check(&written(&log(workers.dir.path(), name)));
    }
    assert_eq!(
        fleet.leftover_locks_after(workers::GONE_WITHIN, "quorate"),
        [""; 0]
    );
}
