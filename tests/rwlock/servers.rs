//! Readers or one writer, and tokens that only grow, between processes on real servers. The processes and the servers
//! die, stop and forget (protocol §4).
//!
//! Writers add to one counter: they read, sleep and write. Readers look twice and must see the same. The counter is the
//! last line of a file, and a write is one appended line.

use std::{path::Path, time::Duration};

use crate::support::{Fleet, Kind, Server};
use crate::workers::{self, Job, Workers, millis, write_line, written};
use futures::future::join_all;
use quorate::{Builder, Error, Quorum};

const TTL: Duration = Duration::from_secs(2);
/// The time for which a node that lost its memory does not vote: 1.01 · max_ttl + margin.
const QUARANTINE: Duration = Duration::from_millis(2_120);
const NAME: &str = "the counter";
/// A process that reads has this many tasks.
const TASKS: usize = 5;

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
        match &*job.work {
            "write" => write(&quorum, &job).await,
            "read" => drop(join_all((0..TASKS).map(|_| read(&quorum, &job))).await),
            work => panic!("{work:?}"),
        }
        assert!(quorum.shutdown().await.is_empty());
    });
    true
}

fn last(log: &Path) -> (u64, u64) {
    let last = written(log).pop();
    last.map_or((0, 0), |entry| (entry.number, entry.token))
}

async fn write(quorum: &Quorum, job: &Job) {
    let log = job.dir.join("log");
    let lock = quorum.rwlock(NAME).ttl(TTL);
    while !job.is_over() {
        if rand::random_range(0..4) == 0 {
            // This writer loses patience.
            let _ = tokio::time::timeout(millis(0, 40), lock.write()).await;
        }
        let log = log.clone();
        let done = lock.run_write(|watch| async move {
            let (number, _) = last(&log);
            tokio::time::sleep(millis(5, 40)).await;
            // A loss is announced 100 ms before the end, which is enough time for one line.
            if watch.is_valid() {
                let line = format!("{} {} {}", number + 1, watch.token(), std::process::id());
                write_line(&log, &line);
            }
        });
        ended(done.await).await;
        tokio::time::sleep(millis(0, 60)).await;
    }
}

async fn read(quorum: &Quorum, job: &Job) {
    let log = job.dir.join("log");
    let lock = quorum.rwlock(NAME).ttl(TTL);
    while !job.is_over() {
        let (log, seen) = (log.clone(), job.dir.join("reads"));
        let torn = job.dir.join("torn");
        let done = lock.run_read(|watch| async move {
            let (before, token) = last(&log);
            tokio::time::sleep(millis(5, 60)).await;
            let (after, _) = last(&log);
            // If the lease is valid now, it was valid while both were read.
            if watch.is_valid() {
                let epoch = watch.token().as_u64();
                if before != after || epoch < token {
                    write_line(&torn, &format!("{before} {after} {token} {epoch}"));
                }
                write_line(&seen, &format!("{after}"));
            }
        });
        ended(done.await).await;
        tokio::time::sleep(millis(0, 20)).await;
    }
}

async fn ended(done: Result<(), Error>) {
    match done {
        Ok(()) | Err(Error::Lost(_)) => {}
        Err(error) if error.is_retryable() => tokio::time::sleep(millis(5, 30)).await,
        Err(error) => panic!("{error}"),
    }
}

fn bootstrap(urls: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let quorum = builder(urls).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
    });
}

/// Waits until both sides have made progress.
fn progress(workers: &Workers, after: &str) {
    let reads = workers.dir.path().join("reads");
    let before = lines(&reads);
    workers.progress(after);
    let deadline = std::time::Instant::now() + workers::PATIENCE;
    while lines(&reads) < before + 20 {
        assert!(
            std::time::Instant::now() < deadline,
            "no reads after: {after}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

fn start(test: &str, urls: &[String]) -> Workers {
    bootstrap(urls);
    let mut workers = Workers::start((4, "read"), (module_path!(), test), urls, "");
    for _ in 0..5 {
        workers.hire("write");
    }
    progress(&workers, "the start");
    workers
}

fn finish(workers: Workers, fleet: &Fleet) {
    let torn = workers.dir.path().join("torn");
    let torn = std::fs::read_to_string(torn).unwrap_or_default();
    println!("{} reads", lines(&workers.dir.path().join("reads")));
    workers.end();
    // A stopped server may have executed requests of connections that were given up meanwhile. Their locks expire after
    // the ttl.
    let left = fleet.leftover_locks_after(TTL, "quorate");
    assert_eq!(left, [""; 0]);
    assert_eq!(
        torn, "",
        "a writer beside readers, or a reader's token from the past"
    );
}

fn each(servers: &[Server], act: impl Fn(&Server)) {
    servers.iter().for_each(act);
}

#[test]
fn twenty_readers_and_five_writers_while_readers_die_and_servers_stop() {
    if worked() {
        return;
    }
    let fleet = Fleet::start(5, Kind::Redis);
    let test = "twenty_readers_and_five_writers_while_readers_die_and_servers_stop";
    let mut workers = start(test, &fleet.urls());
    for _ in 0..2 {
        // The four oldest processes are the readers.
        workers.replace("read");
        progress(&workers, "five readers were killed");
    }
    fleet[0].sigstop();
    progress(&workers, "a server stopped");
    fleet[1].sigstop();
    progress(&workers, "two stopped");
    each(&fleet[..2], Server::sigcont);
    each(&fleet[..3], Server::sigstop);
    std::thread::sleep(TTL + Duration::from_millis(500));
    each(&fleet[..3], Server::sigcont);
    progress(&workers, "three stopped, and all leases were lost");
    finish(workers, &fleet);
}

#[test]
fn nothing_is_torn_while_servers_forget() {
    if worked() {
        return;
    }
    let fleet = Fleet::start(5, Kind::Valkey);
    let workers = start("nothing_is_torn_while_servers_forget", &fleet.urls());
    fleet[0].kill9();
    progress(&workers, "one died");
    fleet[0].start_again();
    progress(&workers, "it is back, without memory");
    // No node remembers who is in the section, so only the quarantine keeps others out.
    for round in 0..2 {
        std::thread::sleep(millis(0, 150));
        each(&fleet[round..round + 3], Server::restart_empty);
        progress(&workers, "a majority restarted empty");
    }
    fleet[4].cmd(&["FLUSHALL"]);
    progress(&workers, "one was flushed");
    each(&fleet[..2], Server::kill9);
    progress(&workers, "two died");
    each(&fleet[..2], Server::start_again);
    std::thread::sleep(QUARANTINE);
    progress(&workers, "they are back");
    finish(workers, &fleet);
}

/// Dead readers are forgotten step by step while another reader keeps their key for long. The next writer removes all
/// of them.
#[tokio::test]
async fn readers_that_died_are_forgotten() {
    let fleet = Fleet::start(3, Kind::Redis);
    let quorum = builder(&fleet.urls()).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let readers = format!("quorate:@rwlock-readers:{NAME}");
    let count = |server: &Server| match server.cmd(&["ZCARD", &readers]) {
        redis::Value::Int(count) => count,
        other => panic!("{other:?}"),
    };
    let long = quorum.rwlock(NAME).read().await.unwrap();
    // This is one call, because nobody renews the lease meanwhile.
    let dead: Vec<String> = (0..3_000).map(|dead| format!("dead {dead}")).collect();
    let dead = dead.iter().flat_map(|dead| ["1", dead]);
    let add: Vec<&str> = ["ZADD", &readers].into_iter().chain(dead).collect();
    for server in fleet.iter() {
        server.cmd(&add);
    }
    for _ in 0..4 {
        let short = quorum.rwlock(NAME).ttl(TTL / 4).read().await.unwrap();
        short.release().await.unwrap();
    }
    for server in fleet.iter() {
        let left = count(server);
        assert!(left <= 1_001, "{server}: {left}");
    }
    long.release().await.unwrap();
    let writer = quorum.rwlock(NAME).write().await.unwrap();
    writer.release().await.unwrap();
    assert!(quorum.shutdown().await.is_empty());
    for server in fleet.iter() {
        assert_eq!(count(server), 0, "{server}");
    }
}

/// Every node stores whom to tell of a release, but not for longer than that caller waits.
#[tokio::test]
async fn waiters_of_short_waits_are_forgotten_while_the_lock_is_held() {
    let fleet = Fleet::start(3, Kind::Redis);
    let quorum = builder(&fleet.urls()).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let held = quorum.rwlock(NAME).write().await.unwrap();
    let wait = async || {
        let (mut waits, start) = (0, std::time::Instant::now());
        // Nodes remember a waiter for 3 · (100 ms + node timeout), which is 0.9 s.
        while start.elapsed() < Duration::from_secs(6) {
            let read = quorum.rwlock(NAME).wait_timeout(Duration::from_millis(10));
            assert!(read.read().await.is_err(), "it is written");
            waits += 1;
        }
        waits
    };
    let waits: usize = join_all((0..4).map(|_| wait())).await.iter().sum();
    for server in fleet.iter() {
        let left = server.cmd(&["ZCARD", &format!("quorate:@rwlock-wakes:{NAME}")]);
        let redis::Value::Int(left) = left else {
            panic!("{left:?}")
        };
        println!("{waits} waits, {left} left");
        assert!(left > 0 && (left as usize) < waits / 3, "{left} of {waits}");
    }
    held.release().await.unwrap();
    assert!(quorum.shutdown().await.is_empty());
}
