//! At most one holder at a time, and tokens that only grow. Several processes use real servers while these die, stop,
//! forget, go back in time, change sides or fall silent (protocol §2 and §3).
//!
//! The processes add to one counter: they read, sleep and write. The counter is the last line of a file, and a write is
//! one appended line. If two hold at once, one number is written twice. This holds for every state in which a process
//! dies.
//!
//! Each test runs with a mutex and with a semaphore of one.

use std::fs;
use std::time::{Duration, Instant};

use crate::exclusive::Exclusive;
use crate::support::{Fleet, Kind, Proxy, Server, ServerOptions};
use crate::workers::{GONE_WITHIN, Job, PATIENCE, Workers, millis, write_line, written};
use quorate::{Builder, Error, Quorum};
use rustix::process::{Pid, Signal, kill_process};

const TTL: Duration = Duration::from_secs(2);
/// The time for which a node that lost its memory does not vote: 1.01 · max_ttl + margin.
const QUARANTINE: Duration = Duration::from_millis(2_120);
const NAME: &str = "the counter";
const USER: &str = "locker";
const PASSWORD: &str = "right";

fn builder(urls: &[String]) -> Builder {
    Quorum::builder()
        .fleet("tests") // some reach the masters through proxies
        .nodes(urls)
        .max_ttl(TTL)
        .restart_margin(Duration::from_millis(100))
        .node_timeout(Duration::from_millis(200))
}

// ---- the workers ---------------------------------------------------------------------------

/// Returns true if this process is a worker. Its work is done when this returns.
fn worked<E: Exclusive>() -> bool {
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
            "count" => count::<E>(&quorum, &job).await,
            "fenced" => count_fenced::<E>(&quorum, &job).await,
            work => panic!("{work:?}"),
        }
        assert!(quorum.shutdown().await.is_empty());
    });
    true
}

/// The name of the test in the module that [`on_both!`] makes.
fn test_of<E: Exclusive>(test: &str) -> String {
    format!("{}::{test}", E::MODULE)
}

async fn count<E: Exclusive>(quorum: &Quorum, job: &Job) {
    let log = job.dir.join("log");
    let mutex = E::of(quorum, NAME).ttl(TTL);
    while !job.is_over() {
        if rand::random_range(0..4) == 0 {
            // This waiter loses patience.
            let _ = tokio::time::timeout(millis(0, 40), mutex.lock()).await;
        }
        let log = log.clone();
        let done = mutex.run(|watch| async move {
            let last = written(&log).last().map_or(0, |entry| entry.number);
            tokio::time::sleep(millis(20, 150)).await;
            // A loss is announced 100 ms before the end, which is enough time for one line.
            if watch.is_valid() {
                let line = format!("{} {} {}", last + 1, watch.token(), std::process::id());
                write_line(&log, &line);
            }
        });
        match done.await {
            Ok(()) | Err(Error::Lost(_)) => {}
            Err(error) if error.is_retryable() => tokio::time::sleep(millis(5, 30)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

// ---- the servers ---------------------------------------------------------------------------

fn fleet(kind: Kind) -> Fleet {
    let user = format!("{USER} on >{PASSWORD} ~* &* +@all");
    Fleet::start_with(5, ServerOptions::new(kind).acl(&user))
}

fn urls(fleet: &Fleet) -> Vec<String> {
    fleet
        .iter()
        .map(|server| server.url_with(USER, PASSWORD))
        .collect()
}

fn bootstrap(urls: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        builder(urls)
            .connect()
            .await
            .unwrap()
            .bootstrap_forced()
            .await
            .unwrap()
    });
}

fn each(servers: &[Server], act: impl Fn(&Server)) {
    servers.iter().for_each(act);
}

fn wait(d: Duration) {
    std::thread::sleep(d);
}

on_both! {
    processes:
        no_update_is_lost_while_servers_and_clients_die,
        no_update_is_lost_while_servers_are_stopped_or_far,
        no_update_is_lost_while_memories_change,
        clients_that_sleep_through_their_lease_are_refused_by_the_fence;
}

// ---- the tests -----------------------------------------------------------------------------

fn no_update_is_lost_while_servers_and_clients_die<E: Exclusive>() {
    if worked::<E>() {
        return;
    }
    let fleet = fleet(Kind::Redis);
    let urls = urls(&fleet);
    bootstrap(&urls);
    let test = "no_update_is_lost_while_servers_and_clients_die";
    let mut workers = Workers::start(
        (4, "count"),
        (module_path!(), &test_of::<E>(test)),
        &urls,
        "",
    );
    workers.progress("the start");

    fleet[0].kill9();
    workers.progress("one died");
    fleet[0].start_again();
    workers.progress("it is back, without memory");

    each(&fleet[1..3], Server::kill9);
    workers.progress("two died");
    each(&fleet[1..3], Server::start_again);
    wait(QUARANTINE);
    workers.progress("they are back");

    // No node remembers who is in the section, so only the quarantine keeps others out.
    for round in 0..3 {
        wait(millis(0, 150));
        each(&fleet[round..round + 3], Server::restart_empty);
        workers.progress("a majority restarted empty");
    }
    for _ in 0..2 {
        workers.replace("count");
        workers.progress("a client died");
    }
    // The slots of a dead client expire, and so do the calls to it. The next request removes its place.
    wait(TTL);
    workers.progress("all calls of the dead are over");
    workers.finish(&fleet);
}

fn no_update_is_lost_while_servers_are_stopped_or_far<E: Exclusive>() {
    if worked::<E>() {
        return;
    }
    let fleet = fleet(Kind::Valkey);
    let proxy = Proxy::start(&fleet[4]);
    let mut urls = urls(&fleet);
    urls[4] = format!("redis://{USER}:{PASSWORD}@127.0.0.1:{}", proxy.port());
    bootstrap(&urls);
    let test = "no_update_is_lost_while_servers_are_stopped_or_far";
    let workers = Workers::start(
        (4, "count"),
        (module_path!(), &test_of::<E>(test)),
        &urls,
        "",
    );
    workers.progress("the start");

    each(&fleet[..1], Server::sigstop);
    workers.progress("one stopped");
    each(&fleet[..1], Server::sigcont);
    each(&fleet[..2], Server::sigstop);
    workers.progress("two stopped");
    each(&fleet[..2], Server::sigcont);
    // One stop is shorter than the ttl. The other is longer, so all leases are lost.
    for stop in [Duration::from_millis(700), TTL + Duration::from_millis(500)] {
        each(&fleet[..3], Server::sigstop);
        wait(stop);
        each(&fleet[..3], Server::sigcont);
        workers.progress("three stopped");
    }

    proxy.delay(Duration::from_millis(80));
    workers.progress("one is far");
    proxy.blackhole(true);
    workers.progress("one is silent");
    each(&fleet[..2], Server::sigstop);
    wait(Duration::from_millis(300));
    proxy.blackhole(false);
    proxy.delay(Duration::from_millis(5));
    workers.progress("two stopped, one far");
    proxy.cut();
    wait(Duration::from_millis(300));
    each(&fleet[..2], Server::sigcont);
    workers.progress("one is cut off");
    proxy.heal();
    proxy.hold_replies(true);
    workers.progress("one hears and does not answer");
    proxy.heal();
    workers.progress("all is well");
    workers.finish(&fleet);
}

fn no_update_is_lost_while_memories_change<E: Exclusive>() {
    if worked::<E>() {
        return;
    }
    let fleet = fleet(Kind::Redis);
    let urls = urls(&fleet);
    bootstrap(&urls);
    let test = "no_update_is_lost_while_memories_change";
    let workers = Workers::start(
        (4, "count"),
        (module_path!(), &test_of::<E>(test)),
        &urls,
        "",
    );
    workers.progress("the start");
    let flush = |server: &Server| drop(server.cmd(&["FLUSHALL"]));

    each(&fleet, Server::save_snapshot);
    flush(&fleet[0]);
    workers.progress("one was flushed");
    for round in 0..3 {
        wait(millis(0, 150));
        each(&fleet[round..round + 3], flush);
        workers.progress("a majority was flushed");
    }

    fleet[0].restart_with_snapshot();
    workers.progress("one is back in the past");
    wait(millis(0, 150));
    each(&fleet[..3], Server::restart_with_snapshot);
    workers.progress("a majority is back in the past");

    // They get the data of others, and then vote with them.
    for (replica, master) in [(0, 4), (1, 4), (2, 3)] {
        fleet[replica].replicaof(&fleet[master]);
    }
    each(&fleet[..3], Server::replicaof_no_one);
    workers.progress("three were replicas");

    let acl = |rule: &str| drop(fleet[4].cmd(&["ACL", "SETUSER", USER, "resetpass", rule]));
    acl(">wrong");
    fleet[4].cmd(&["CLIENT", "KILL", "USER", USER]);
    fleet[3].kill9();
    workers.progress("one has another password, one died");
    acl(&format!(">{PASSWORD}"));
    fleet[3].start_again();
    wait(QUARANTINE);
    each(&fleet[..2], Server::kill9);
    workers.progress("they vote again");
    // They restart with the data on their disks: the queues from when they were replicas, in which nobody waits any
    // more. A node in quarantine serves nobody, so these queues end only when their keys expire.
    each(&fleet[..2], Server::start_again);
    workers.end();
    let left = fleet.leftover_locks_after(GONE_WITHIN, "quorate");
    assert!(left.iter().all(|key| is_of_a_line(key)), "{left:#?}");
    assert_eq!(fleet.leftover_locks_after(4 * TTL, "quorate"), [""; 0]);
}

fn is_of_a_line(key: &str) -> bool {
    [":@mutex-line:", ":@mutex-waiters:", ":@semaphore-line:"]
        .iter()
        .any(|sort| key.contains(sort))
}

// ---- clients that stop in their section ----------------------------------------------------

/// KEYS fence, value · ARGV token. Returns the value to go on from, or nil if the token is too old. A later write
/// depends on this read, so the read has to pass the fence too.
const READ: &str = "
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return nil end
redis.call('SET', KEYS[1], ARGV[1])
return redis.call('LLEN', KEYS[2])";

/// KEYS fence, log, log of a store without a fence · ARGV token, value. Returns whether the write was accepted.
const WRITE: &str = "
redis.call('RPUSH', KEYS[3], ARGV[2])
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[2])
return 1";

/// Works without ever checking whether its lease is still good.
async fn count_fenced<E: Exclusive>(quorum: &Quorum, job: &Job) {
    let mut store = redis::Client::open(&*job.store)
        .unwrap()
        .get_connection()
        .unwrap();
    let mutex = E::of(quorum, NAME).ttl(TTL);
    let state = job.dir.join(std::process::id().to_string());
    while !job.is_over() {
        let lease = match mutex.lock().await {
            Ok(lease) => lease,
            Err(error) if error.is_retryable() => continue,
            Err(error) => panic!("{error}"),
        };
        let token = lease.token().as_u64();
        let read: Option<u64> = redis::Script::new(READ)
            .key("fence")
            .key("log")
            .arg(token)
            .invoke(&mut store)
            .unwrap();
        if let Some(last) = read {
            fs::write(&state, "in").unwrap();
            // This is not tokio's sleep, so nothing else happens in this process meanwhile.
            std::thread::sleep(millis(20, 120));
            fs::write(&state, "out").unwrap();
            let taken: bool = redis::Script::new(WRITE)
                .key(&["fence", "log", "unfenced"])
                .arg(token)
                .arg(last + 1)
                .invoke(&mut store)
                .unwrap();
            if !taken {
                let _: () = redis::cmd("INCR").arg("refused").query(&mut store).unwrap();
            }
        }
        drop(lease);
        tokio::time::sleep(millis(0, 10)).await;
    }
}

fn clients_that_sleep_through_their_lease_are_refused_by_the_fence<E: Exclusive>() {
    if worked::<E>() {
        return;
    }
    let fleet = fleet(Kind::Valkey);
    let store = Server::start(Kind::Redis);
    let urls = urls(&fleet);
    bootstrap(&urls);
    let test = "clients_that_sleep_through_their_lease_are_refused_by_the_fence";
    let mut workers = Workers::start(
        (4, "fenced"),
        (module_path!(), &test_of::<E>(test)),
        &urls,
        &store.url(),
    );
    let mut conn = store.conn();
    let mut log = |key: &str| -> Vec<u64> {
        redis::cmd("LRANGE")
            .arg(key)
            .arg(0)
            .arg(-1)
            .query(&mut conn)
            .unwrap()
    };

    const STOPS: usize = 4;
    // Four stops must hit the section, and each of them costs a ttl. Most of the other stops miss it.
    let deadline = Instant::now() + 3 * PATIENCE;
    let mut stops = 0;
    while stops < STOPS {
        assert!(
            Instant::now() < deadline,
            "nobody could be stopped in the section"
        );
        wait(millis(1, 20));
        let child = &workers.children[stops % workers.children.len()];
        let state = workers.dir.path().join(child.id().to_string());
        let is_in = || fs::read_to_string(&state).is_ok_and(|state| state == "in");
        if !is_in() {
            continue;
        }
        kill_process(Pid::from_child(child), Signal::STOP).unwrap();
        wait(Duration::from_millis(2)); // a stop takes effect soon, not at once
        if is_in() {
            let before = log("log").len();
            while log("log").len() < before + 2 {
                assert!(
                    Instant::now() < deadline,
                    "nobody got the lock of a stopped client"
                );
                wait(Duration::from_millis(10));
            }
            stops += 1;
        }
        kill_process(Pid::from_child(child), Signal::CONT).unwrap();
    }
    wait(Duration::from_millis(300));

    workers.stop();
    let (fenced, unfenced) = (log("log"), log("unfenced"));
    let accepted = unfenced.len() - fenced.len();
    let refused: usize = redis::cmd("GET")
        .arg("refused")
        .query(&mut store.conn())
        .unwrap();
    println!(
        "{} writes, {refused} refused; without the fence all would count",
        fenced.len()
    );
    assert_eq!(
        fenced,
        (1..=fenced.len() as u64).collect::<Vec<_>>(),
        "an update was lost"
    );
    assert_eq!(
        (refused, accepted),
        (STOPS, STOPS),
        "one stale write per stop"
    );
    let mut numbers = unfenced.clone();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(
        unfenced.len() - numbers.len(),
        STOPS,
        "each of which would have lost an update"
    );
    assert_eq!(fleet.leftover_locks_after(GONE_WITHIN, "quorate"), [""; 0]);
}
