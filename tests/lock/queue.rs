//! Locks are granted first come, first served. The tests use real servers (Redis and Valkey in turn) while these and
//! the waiters die, stop and are cut off (protocol §5). Tests that do not depend on how a lock is handed over also run
//! on a semaphore of one.
//!
//! | file | promise |
//! | --- | --- |
//! | `queue/order` | waiters are served in the order in which they registered, also when a minority fails |
//! | `queue/dead` | a dead waiter costs nothing, a vanished one its first term; `try_lock` overtakes no living waiter |
//! | `queue/cut` | a waiter whose connection breaks keeps its place; a waiter that reaches only a minority stops nobody |
//! | `queue/foreign` | a hand-over counts only from the memory that made it |
//! | `queue/traffic` | a hand-over takes two pushes, and nobody polls |
//! | `queue/leaving` | a waiter that gives up is gone from every node |
//! | `queue/terms` | settings of each waiter, and servers that may not push |
//! | `queue/writers` | writers of a read-write lock queue for their turn; readers come in between, and safety does not depend on the turn |

mod cut;
mod dead;
#[cfg(feature = "test-util")]
mod foreign;
mod leaving;
mod order;
mod terms;
mod traffic;
mod writers;

use std::process::{Child, Stdio};
use std::sync::{
    Arc, Mutex as Shared,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use std::time::{Duration, Instant};

use crate::exclusive::{Exclusive, OneSlot};
use crate::support::{Fleet, Server, again};
use quorate::{Builder, Error, IntoNode, Lease, Mutex, Quorum};
use redis::FromRedisValue;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const PREFIX: &str = "quorate";
const NAME: &str = "a";
/// Far more than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);
/// The limit for background work that nothing hinders.
const SOON: Duration = Duration::from_secs(4);
/// The time that two busy cores and a debug build may add to any measurement.
const MACHINE: Duration = Duration::from_millis(1_500);
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// S, the time for which a hand-over is good until it is confirmed, where round trips are short.
const TERM: Duration = Duration::from_secs(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn builder(urls: impl IntoIterator<Item = impl IntoNode>) -> Builder {
    Quorum::builder()
        .fleet("tests") // some reach the masters through proxies
        .max_ttl(Duration::from_secs(30))
        .restart_margin(ms(100))
        .node_timeout(NODE_TIMEOUT)
        .nodes(urls)
}

/// Connects, and lets all nodes vote.
async fn connect(builder: Builder) -> Quorum {
    let quorum = builder.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let nodes = quorum.nodes().len();
    eventually("all nodes vote", || quorum.health().voting == nodes).await;
    quorum
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(ms(2)).await;
    }
}

// ---- the content of the servers -------------------------------------------------------------

/// The waiters on a node, the head first.
fn line<E: Exclusive>(server: &Server) -> Vec<String> {
    Vec::from_redis_value(server.cmd(&["ZRANGE", &E::line(NAME), "0", "-1"])).unwrap()
}

/// The tickets of the waiters. A waiter that was alone for long has another entry then, and the same ticket.
fn tickets<E: Exclusive>(server: &Server) -> Vec<String> {
    let all = server.cmd(&["ZRANGE", &E::line(NAME), "0", "-1", "WITHSCORES"]);
    let all = Vec::<String>::from_redis_value(all).unwrap();
    all.into_iter().skip(1).step_by(2).collect()
}

/// Every S that a registered waiter named to any node.
fn terms<E: Exclusive>(fleet: &Fleet) -> impl Iterator<Item = Duration> {
    let of = |server| {
        let waiters = line::<E>(server).into_iter();
        waiters.filter_map(move |waiter| E::term(server, NAME, &waiter))
    };
    fleet.iter().flat_map(of)
}

/// The shortest of them.
fn shortest_term<E: Exclusive>(fleet: &Fleet) -> Duration {
    terms::<E>(fleet).min().expect("somebody waits")
}

/// The longest of them. It is 20 round trips as the waiter estimated them, if that
/// is more than [`TERM`]: the first estimate is three times the first answer, which may be slow on a busy machine.
fn longest_term<E: Exclusive>(fleet: &Fleet) -> Duration {
    let term = terms::<E>(fleet).max().expect("somebody waits");
    assert!(
        term < 20 * TERM,
        "it follows the round trip, not the ttl: {term:?}"
    );
    term
}

/// Waits until this many waiters are registered on every node that is up.
async fn registered<E: Exclusive>(fleet: &Fleet, count: usize) {
    let stand = || -> Vec<usize> {
        let up = fleet.iter().filter(|server| server.is_up());
        up.map(|server| line::<E>(server).len()).collect()
    };
    let deadline = Instant::now() + PATIENCE;
    while stand().iter().any(|stand| *stand != count) {
        let now = stand();
        assert!(Instant::now() < deadline, "never: {count} wait; {now:?}");
        sleep(ms(2)).await;
    }
}

/// How often a server has run this command, in a script or outside of one.
fn calls(server: &Server, command: &str) -> u64 {
    let stats = String::from_redis_value(server.cmd(&["INFO", "commandstats"])).unwrap();
    let field = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&field));
    line.and_then(|line| line.split(',').next()?.parse().ok())
        .unwrap_or(0)
}

fn nothing_is_left(fleet: &Fleet) {
    let left = fleet.leftover_locks_after(SOON, PREFIX);
    assert!(left.is_empty(), "{left:#?}");
}

// ---- waiters --------------------------------------------------------------------------------

/// The waiters that were served, in order, and whether two ever held the lock at once.
#[derive(Clone, Default)]
struct Served {
    all: Arc<Shared<Vec<One>>>,
    is_held: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug)]
struct One {
    index: usize,
    token: u64,
    from: Instant,
    until: Instant,
}

impl Served {
    /// Waits for the lock, holds it for a while, and releases it.
    fn wait(&self, index: usize, mutex: &impl Exclusive, hold: Duration) -> JoinHandle<()> {
        self.when_locked(index, mutex.lock(), hold)
    }

    /// The same, when this future is granted the lock.
    fn when_locked(
        &self,
        index: usize,
        lock: impl Future<Output = Result<Lease, Error>> + Send + 'static,
        hold: Duration,
    ) -> JoinHandle<()> {
        self.hold_during(index, lock, async move { sleep(hold).await })
    }

    /// The same. The lock is held while `work` runs.
    fn hold_during(
        &self,
        index: usize,
        lock: impl Future<Output = Result<Lease, Error>> + Send + 'static,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let served = self.clone();
        tokio::spawn(async move {
            let lease = lock.await.unwrap_or_else(|e| panic!("{index}: {e}"));
            let from = Instant::now();
            assert!(!served.is_held.swap(true, SeqCst), "two hold it: {index}");
            work.await;
            assert!(lease.is_valid(), "{index}");
            let token = lease.token().as_u64();
            let until = Instant::now();
            let one = One {
                index,
                token,
                from,
                until,
            };
            served.all.lock().unwrap().push(one);
            served.is_held.store(false, SeqCst);
            // A minority that cannot answer is expected here.
            let _ = lease.release().await;
        })
    }

    fn count(&self) -> usize {
        self.all.lock().unwrap().len()
    }

    async fn reaches(&self, count: usize) {
        eventually(&format!("{count} are served"), || self.count() >= count).await;
    }

    /// Checks that all waiters have been served once and in order: each was among the first of those that were left,
    /// for a mutex the first. Returns the longest time for which nobody held the lock.
    fn in_order<E: Exclusive>(&self, count: usize) -> Duration {
        let all = self.all.lock().unwrap();
        let order: Vec<usize> = all.iter().map(|one| one.index).collect();
        let mut left: Vec<usize> = (0..count).collect();
        for index in &order {
            let place = left.iter().take(E::WIDTH).position(|one| one == index);
            left.remove(place.unwrap_or_else(|| panic!("{index} came too early: {order:?}")));
        }
        assert_eq!(left, [0; 0], "{order:?}");
        let pairs = || all.iter().zip(all.iter().skip(1));
        for (one, next) in pairs() {
            assert!(one.token < next.token, "{one:?}, {next:?}");
        }
        let gaps = pairs().map(|(one, next)| next.from.saturating_duration_since(one.until));
        gaps.max().unwrap_or_default()
    }
}

async fn all_end(waiters: impl IntoIterator<Item = JoinHandle<()>>) {
    for waiter in waiters {
        timeout(PATIENCE, waiter).await.expect("served").unwrap();
    }
}

/// A process that waits for the lock and then keeps it. Dropping it kills it.
struct Waiter(Child);

/// Variables of the process: the lock that it waits for, and where.
const WAITS_FOR: &str = "QUORATE_TEST_WAITS_FOR";
const URLS: &str = "QUORATE_TEST_URLS";

/// The work of the [`Waiter`] process.
#[tokio::test]
#[ignore = "started by the other tests"]
async fn a_process_that_waits() {
    let lock = std::env::var(WAITS_FOR).unwrap();
    let urls = std::env::var(URLS).unwrap();
    let quorum = builder(urls.split(',')).label("process");
    let quorum = quorum.connect().await.unwrap();
    let lease = match &*lock {
        Mutex::MODULE => quorum.mutex(NAME).lock().await,
        OneSlot::MODULE => quorum.semaphore(NAME, 1).acquire().await,
        _ => quorum.rwlock(NAME).write().await,
    };
    let _lease = lease.unwrap();
    std::future::pending::<()>().await;
}

impl Waiter {
    fn start<E: Exclusive>(fleet: &Fleet) -> Self {
        Self::of(fleet, E::MODULE)
    }

    fn writer(fleet: &Fleet) -> Self {
        Self::of(fleet, "writer")
    }

    fn of(fleet: &Fleet, lock: &str) -> Self {
        let mut command = again(module_path!(), "a_process_that_waits");
        command
            .arg("--ignored")
            .env(WAITS_FOR, lock)
            .env(URLS, fleet.urls().join(","));
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(quiet.spawn().unwrap())
    }

    fn kill9(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn sigstop(&self) {
        kill_process(Pid::from_child(&self.0), Signal::STOP).unwrap();
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
