//! Every future may be dropped at any await. Nothing stays behind on the nodes, the name is free for others at once,
//! and no background work outlives its bound (protocol §3, client step 5).
//!
//! The tests form a matrix: every operation × the behaviour of nodes {ok, error, slow, never} × how many of three nodes
//! behave so × when the future is dropped. Leases last 10 s here and every check is done within 3 s, so no key vanishes
//! because it expired.

mod permits;
mod rwlocks;
mod several;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::support::{Fleet, Kind, Proxy, Server, Stalls, again};
use futures::StreamExt as _;
use quorate::{
    Builder, Error, FencingToken, Health, Inspection, Lease, LeaseWatch, LossReason, Lost,
    MemoryNode, Mutex, NodeChanges, NodeState, Owner, Quorum, ReentrantMutex, Renewal, Report,
    RwLock,
};
use rustix::process::{Resource, Rlimit};
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(10);
const NODE_TIMEOUT: Duration = Duration::from_millis(300);
/// The limit for background work that nothing hinders. It is far below the ttl.
const SOON: Duration = Duration::from_secs(3);
/// The delay to a slow node, and also back.
const ONE_WAY: Duration = Duration::from_millis(30);
const PREFIX: &str = "quorate";

fn builder() -> Builder {
    Quorum::builder()
        .fleet("tests") // some reach the masters through proxies
        .max_ttl(TTL)
        .restart_margin(Duration::from_millis(100))
        .node_timeout(NODE_TIMEOUT)
}

/// The behaviour of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// No fault.
    Ok,
    /// Every request that would write is answered by an error.
    Error,
    /// Requests and answers each take [`ONE_WAY`].
    Slow,
    /// Answers never come.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Lock,
    /// The name is held by another client.
    LockContended,
    /// Another client frees the name while this one waits in the queue.
    LockHandedOver,
    TryLock,
    Extend,
    Release,
    /// Drops the lease itself.
    Drop,
    Run,
    TryRun,
    /// The work takes long, and is dropped while it runs.
    RunLong,
    Guard,
}

/// When a future is dropped.
#[derive(Clone, Copy, Debug)]
enum When {
    Unpolled,
    Polled(usize),
    After(Duration),
    Done,
}

const MOMENTS: [When; 11] = [
    When::Unpolled,
    When::Polled(1),
    When::Polled(3),
    When::After(Duration::from_micros(100)),
    When::After(Duration::from_micros(300)),
    When::After(Duration::from_micros(700)),
    When::After(Duration::from_millis(2)),
    When::After(Duration::from_millis(15)),
    When::After(Duration::from_millis(70)),
    When::After(Duration::from_millis(305)),
    When::Done,
];

/// Polls the future until that moment, and drops it.
async fn dropped<F: Future>(future: F, when: When) -> Option<F::Output> {
    let start = Instant::now();
    let mut future = pin!(future);
    let mut polls = 0;
    loop {
        let over = match when {
            When::Unpolled => true,
            When::Polled(most) => polls >= most,
            When::After(d) => start.elapsed() >= d,
            When::Done => return Some(future.await),
        };
        if over {
            return None;
        }
        polls += 1;
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
}

/// Three real servers, a client that reaches them through proxies, and a client that reaches them directly.
struct Bench {
    fleet: Fleet,
    proxies: Vec<Proxy>,
    ours: Quorum,
    other: Quorum,
}

impl Bench {
    async fn start(kind: Kind) -> Bench {
        Self::start_with(kind, NODE_TIMEOUT).await
    }

    async fn start_with(kind: Kind, node_timeout: Duration) -> Bench {
        let fleet = Fleet::start(3, kind);
        let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
        let urls = proxies.iter().map(Proxy::url);
        let ours = builder().node_timeout(node_timeout).nodes(urls);
        let ours = ours.connect().await.unwrap();
        ours.bootstrap_forced().await.unwrap();
        let other = builder().nodes(fleet.urls()).connect().await.unwrap();
        let bench = Bench {
            fleet,
            proxies,
            ours,
            other,
        };
        bench.all_vote().await;
        bench
    }

    fn afflict(&self, node: usize, fault: Fault) {
        match fault {
            Fault::Ok => {}
            Fault::Error => {
                let writes = [
                    "-set", "-pexpire", "-del", "-hset", "-hdel", "-zadd", "-zrem",
                ];
                acl(&self.fleet[node], &writes);
            }
            Fault::Slow => self.proxies[node].delay(ONE_WAY),
            Fault::Never => self.proxies[node].blackhole(true),
        }
    }

    fn heal(&self, node: usize, fault: Fault) {
        if fault == Fault::Error {
            acl(&self.fleet[node], &["+@all"]);
        }
        self.proxies[node].delay(Duration::ZERO);
        self.proxies[node].heal();
    }

    async fn all_vote(&self) {
        for quorum in [&self.ours, &self.other] {
            eventually("all nodes vote", || quorum.health().voting == 3).await;
        }
    }

    async fn cell(&self, op: Op, fault: Fault, bad: usize) {
        let cell = format!("{op:?} × {fault:?} × {bad} of 3");
        let mut held = Vec::new();
        let mut theirs = Vec::new();
        for (i, _) in MOMENTS.iter().enumerate() {
            let name = format!("{cell} {i}");
            if matches!(op, Op::Extend | Op::Release | Op::Drop | Op::Guard) {
                held.push(Some(self.mutex(&name).lock().await.unwrap()));
            } else {
                held.push(None);
            }
            if matches!(op, Op::LockContended | Op::LockHandedOver) {
                theirs.push(self.other.mutex(&name).ttl(TTL).lock().await.unwrap());
            }
        }
        let operations = MOMENTS.into_iter().enumerate().zip(held);
        let operations = operations.map(|((i, when), lease)| {
            let mutex = self.mutex(&format!("{cell} {i}"));
            operate(mutex, lease, op, when)
        });
        let is_handed_over = op == Op::LockHandedOver;
        let theirs = (theirs, is_handed_over);
        self.play(
            &cell,
            (fault, bad),
            theirs,
            operations,
            async |name, when| {
                lock_soon(&self.other, name, when).await;
            },
        )
        .await;
    }

    /// Plays all moments of a cell under the fault, and checks what is left. `theirs` are the leases of another client,
    /// one for each name, and whether that client frees them meanwhile. `soon` checks that this client gets each name
    /// long before a ttl is over.
    async fn play<F>(
        &self,
        cell: &str,
        (fault, bad): (Fault, usize),
        (mut theirs, is_handed_over): (Vec<Lease>, bool),
        operations: impl Iterator<Item = F>,
        soon: impl AsyncFn(&str, &str),
    ) where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        for node in 0..bad {
            self.afflict(node, fault);
        }
        let mut all: JoinSet<Result<(), Error>> = operations.collect();
        if is_handed_over {
            // Each lease is freed at about the time when its waiter leaves, so that the hand-over and the leaving meet.
            tokio::time::sleep(Duration::from_millis(1)).await;
            for (i, lease) in theirs.drain(..).enumerate() {
                assert!(lease.is_valid(), "{cell} {i}");
                drop(lease);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        while let Some(done) = all.join_next().await {
            // A missing majority is expected here, and on a busy machine it is not a fault.
            if let Err(error) = done.unwrap() {
                assert!(error.is_retryable(), "{cell}: {error}");
            }
        }
        for lease in theirs {
            assert!(lease.is_valid(), "{cell}");
            // Where requests are refused, the release is not confirmed.
            let _ = lease.release().await;
        }
        // A minority hinders nobody, and neither does what the dropped futures left.
        if bad < 2 || fault == Fault::Slow {
            for (i, when) in MOMENTS.iter().enumerate() {
                soon(&format!("{cell} {i}"), &format!("{when:?}")).await;
            }
        }
        for node in 0..bad {
            self.heal(node, fault);
        }
        // Messages that are under way arrive first. Until then nothing is there that could be found.
        if fault == Fault::Slow {
            tokio::time::sleep(ONE_WAY * 4).await;
        }
        // A node that refused handshakes is dialled again after at most 5 s, and gets the releases then.
        if fault == Fault::Error {
            self.all_vote().await;
        }
        let left = self.fleet.leftover_locks_after(SOON, PREFIX);
        assert!(left.is_empty(), "{cell}: left behind: {left:#?}");
        self.all_vote().await;
    }

    fn mutex(&self, name: &str) -> Mutex {
        self.ours.mutex(name).ttl(TTL)
    }
}

/// Runs one operation, and drops it at its moment.
async fn operate(mutex: Mutex, lease: Option<Lease>, op: Op, when: When) -> Result<(), Error> {
    let quick = |watch: LeaseWatch| async move {
        tokio::task::yield_now().await;
        watch.token()
    };
    let long = |watch: LeaseWatch| async move { watch.lost().await };
    let lease_of = |lease: Option<Lease>| lease.expect("taken before");
    match op {
        Op::Lock => drop(dropped(mutex.lock(), when).await.transpose()?),
        Op::LockContended => {
            let mutex = mutex.wait_timeout(Duration::from_millis(200));
            match dropped(mutex.lock(), when).await {
                Some(Ok(lease)) => panic!("it is held by another: {lease:?}"),
                Some(Err(Error::Held(_) | Error::NoQuorum(_))) | None => {}
                Some(Err(error)) => panic!("{error}"),
            }
        }
        Op::LockHandedOver => {
            let mutex = mutex.wait_timeout(Duration::from_secs(2));
            match dropped(mutex.lock(), when).await {
                Some(Err(Error::Held(_))) | None => {}
                Some(granted) => drop(granted?),
            }
        }
        Op::TryLock => drop(dropped(mutex.try_lock(), when).await.transpose()?),
        Op::Extend => {
            let lease = lease_of(lease);
            let extended = dropped(lease.extend(), when).await;
            assert!(lease.is_valid(), "dropping an extension takes nothing");
            extended.transpose()?;
        }
        Op::Release => {
            dropped(lease_of(lease).release(), when).await.transpose()?;
        }
        Op::Drop => drop(lease),
        Op::Run => drop(dropped(mutex.run(quick), when).await.transpose()?),
        Op::TryRun => drop(dropped(mutex.try_run(quick), when).await.transpose()?),
        Op::RunLong => {
            let when = match when {
                When::Done => When::After(Duration::from_millis(250)),
                when => when,
            };
            let _ = dropped(mutex.run(long), when).await.transpose()?;
        }
        Op::Guard => {
            let lease = lease_of(lease);
            let when = match when {
                When::Done => When::After(Duration::from_millis(250)),
                when => when,
            };
            let watch = lease.watch();
            let guarded = dropped(lease.guard(long(watch)), when).await;
            assert!(guarded.is_none() && lease.is_valid());
        }
    }
    Ok(())
}

fn acl(server: &Server, rules: &[&str]) {
    server.cmd(&[&["ACL", "SETUSER", "default"], rules].concat());
}

/// Checks that another client gets the name long before a ttl is over, and releases it.
async fn lock_soon(other: &Quorum, name: &str, when: &str) {
    let deadline = Instant::now() + SOON;
    let mutex = other
        .mutex(name)
        .ttl(TTL)
        .wait_timeout(Duration::from_secs(1));
    loop {
        match mutex.lock().await {
            Ok(lease) => return drop(lease),
            Err(error) => assert!(Instant::now() < deadline, "{name}, {when}: {error}"),
        }
    }
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    // This is less than the ttl, so nothing happens because a lease has expired.
    let deadline = Instant::now() + TTL * 4 / 5;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn matrix(kind: Kind, ops: &[Op]) {
    let bench = Bench::start(kind).await;
    for &op in ops {
        bench.cell(op, Fault::Ok, 0).await;
        for fault in [Fault::Error, Fault::Slow, Fault::Never] {
            for bad in 1..=3 {
                bench.cell(op, fault, bad).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_dropped_anywhere_leaves_nothing() {
    matrix(Kind::Redis, &[Op::Lock, Op::LockContended]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_wait_dropped_anywhere_leaves_nothing() {
    matrix(Kind::Valkey, &[Op::LockHandedOver]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_lock_dropped_anywhere_leaves_nothing() {
    matrix(Kind::Valkey, &[Op::TryLock]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extend_dropped_anywhere_takes_nothing_and_leaves_nothing() {
    matrix(Kind::Redis, &[Op::Extend]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_dropped_anywhere_releases() {
    matrix(Kind::Valkey, &[Op::Release, Op::Drop]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_and_guard_dropped_anywhere_leave_nothing() {
    matrix(Kind::Redis, &[Op::Run, Op::TryRun, Op::RunLong, Op::Guard]).await;
}

/// Polls a future on a thread without a runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future
            .as_mut()
            .poll(&mut std::task::Context::from_waker(&waker))
        {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Drops the future after every number of polls, on in-process nodes. The engine gets one turn between two polls, so
/// every state that it passes through is covered.
#[tokio::test(start_paused = true)]
async fn dropped_after_any_number_of_polls_the_name_is_free() {
    for down in 0..=3 {
        let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
        let ours = builder().nodes(&nodes).connect().await.unwrap();
        ours.bootstrap_forced().await.unwrap();
        let other = builder().nodes(&nodes).connect().await.unwrap();
        eventually("all nodes vote", || other.health().voting == 3).await;
        for node in &nodes[..down] {
            node.stop();
        }
        for op in [Op::Lock, Op::TryLock, Op::Run, Op::TryRun, Op::RunLong] {
            for polls in 0..25 {
                let name = format!("{op:?} {polls} {down}");
                let mutex = ours.mutex(&name).ttl(TTL);
                let done = operate(mutex, None, op, When::Polled(polls)).await;
                assert!(done.is_ok() || down > 1, "{name}: {done:?}");
                if down < 2 {
                    lock_soon(&other, &name, "").await;
                }
            }
        }
        for node in &nodes {
            node.start();
        }
        eventually("all nodes vote", || other.health().voting == 3).await;
        for op in [Op::Lock, Op::TryLock, Op::Run, Op::TryRun, Op::RunLong] {
            for polls in 0..25 {
                let name = format!("{op:?} {polls} {down}");
                let seen = other.inspect(&name).await.unwrap();
                let holders = seen
                    .nodes
                    .iter()
                    .filter(|node| node.holder.is_some())
                    .count();
                assert_eq!(holders, 0, "{name}: {seen:?}");
            }
        }
    }
}

/// A node that never answers again keeps the background work busy for one ttl and no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_work_ends_with_the_ttl() {
    let ttl = Duration::from_millis(1500);
    let fleet = Fleet::start(3, Kind::Redis);
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    let quorum = builder()
        .max_ttl(ttl)
        .shutdown_timeout(Duration::from_secs(20))
        .nodes(proxies.iter().map(Proxy::url))
        .connect()
        .await
        .unwrap();
    quorum.bootstrap_forced().await.unwrap();

    let held = quorum.mutex("held").lock().await.unwrap();
    proxies[0].blackhole(true);
    proxies[1].blackhole(true);
    let machine = Stalls::watch();
    let start = Instant::now();
    for i in 0..20 {
        let lock = quorum.mutex(format!("dropped {i}")).lock();
        dropped(lock, When::Polled(1 + i)).await;
    }
    let released = held.release().await;
    assert!(matches!(released, Err(Error::NoQuorum(_))), "{released:?}");
    assert_eq!(quorum.shutdown().await, [""; 0], "nothing is held");
    let took = start.elapsed();
    assert!(
        took >= ttl - NODE_TIMEOUT,
        "there was something to take back: {took:?}"
    );
    // A last request times out after the ttl. Two more timeouts are for a busy machine.
    let most = ttl + 3 * NODE_TIMEOUT + machine.longest() * 2;
    assert!(took < most, "beyond the ttl: {took:?}");

    drop(quorum);
    eventually("no task is left", || tasks.num_alive_tasks() == before).await;
}

/// A caller that stopped waiting sends nothing more, and is in no queue. The servers get only our handshakes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_dropped_asks_no_more() {
    const WAITERS: i64 = 10;
    let bench = Bench::start(Kind::Redis).await;
    let lease = bench
        .other
        .mutex("a")
        .ttl(TTL)
        .renewal(Renewal::off())
        .lock()
        .await
        .unwrap();
    let ask = |words: &[&str]| bench.fleet[2].cmd(words);
    let heard = || {
        let stats: String =
            redis::FromRedisValue::from_redis_value(ask(&["INFO", "commandstats"])).unwrap();
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|line| line.split(',').next()?.parse::<i64>().ok())
            .unwrap_or(0)
    };
    let in_line = || {
        let count = ask(&["ZCARD", "quorate:@mutex-line:a"]);
        redis::FromRedisValue::from_redis_value(count).unwrap_or(0)
    };
    let mut all = JoinSet::new();
    for _ in 0..WAITERS {
        all.spawn(bench.mutex("a").lock());
    }
    eventually("they wait in line", || in_line() == WAITERS).await;
    all.shutdown().await;
    eventually("they have left it", || in_line() == 0).await;
    let after = heard();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(heard() - after <= 3, "they ask still: {after}, {}", heard());
    assert!(lease.is_valid());
}

/// When all handles are gone, that is an end too: grants are still taken back, and then the task ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_that_is_dropped_takes_everything_back_and_ends() {
    let fleet = Fleet::start(3, Kind::Valkey);
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    let quorum = builder().nodes(fleet.urls()).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let lease = quorum.mutex("a").lock().await.unwrap();
    let watch = lease.watch();
    let lock = quorum.mutex("b").lock();
    dropped(lock, When::Polled(1)).await;
    drop(quorum);
    assert!(
        lease.extend().await.is_ok(),
        "a lease keeps its connections"
    );
    drop(lease);
    assert_eq!(watch.lost().await, LossReason::Released);
    eventually("no task is left", || tasks.num_alive_tasks() == before).await;
    assert_eq!(fleet.leftover_locks(PREFIX), [""; 0]);
}

#[test]
fn a_lease_is_dropped_on_any_thread_without_a_runtime() {
    let fleet = Fleet::start(3, Kind::Redis);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let (quorum, leases) = runtime.block_on(async {
        let quorum = builder().nodes(fleet.urls()).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let mut leases = Vec::new();
        for i in 0..4 {
            leases.push(quorum.mutex(format!("{i}")).ttl(TTL).lock().await.unwrap());
        }
        (quorum, leases)
    });
    assert_eq!(fleet.leftover_locks(PREFIX).len(), 12);
    let [one, two, three, four] = <[Lease; 4]>::try_from(leases).unwrap();
    drop(one);
    std::thread::spawn(move || drop(two)).join().unwrap();
    drop(three.release());
    // Without its own runtime the future can be awaited as well.
    let released = std::thread::spawn(move || block_on(four.release()));
    released.join().unwrap().unwrap();
    assert_eq!(fleet.leftover_locks_after(SOON, PREFIX), [""; 0]);
    drop(quorum);
}

/// The runtime that connected is gone. Calls say so at once, leases are lost, and nothing hangs or panics.
#[test]
fn without_its_runtime_every_call_says_so_and_nothing_hangs() {
    let fleet = Fleet::start(3, Kind::Redis);
    let theirs = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let theirs = theirs.unwrap();
    let ours = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (quorum, lease, other) = theirs.block_on(async {
        let quorum = builder().nodes(fleet.urls()).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let lease = quorum.mutex("a").ttl(TTL).lock().await.unwrap();
        let other = quorum.mutex("b").ttl(TTL).lock().await.unwrap();
        (quorum, lease, other)
    });
    let watch = lease.watch();
    let waiter = ours.spawn(quorum.mutex("a").lock());
    let running = ours.spawn(quorum.mutex("a").run(|_| async {}));
    let loss = ours.spawn(async move { watch.lost().await });
    ours.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
    assert!(!waiter.is_finished() && lease.is_valid());

    drop(theirs);
    ours.block_on(async {
        let all = async {
            assert!(matches!(waiter.await.unwrap(), Err(Error::RuntimeGone)));
            assert!(matches!(running.await.unwrap(), Err(Error::RuntimeGone)));
            assert_eq!(
                loss.await.unwrap(),
                LossReason::NodesLost,
                "nobody renews any more"
            );
        };
        // This is far less than the ttl, so nothing ends because a lease has expired.
        tokio::time::timeout(TTL / 5, all).await.unwrap();
        assert!(!lease.is_valid());

        let all = async {
            let gone = |answer: Option<Error>| {
                assert!(matches!(answer, Some(Error::RuntimeGone)), "{answer:?}")
            };
            gone(quorum.mutex("c").lock().await.err());
            gone(quorum.mutex("c").try_lock().await.err());
            gone(quorum.mutex("c").run(|_| async {}).await.err());
            gone(quorum.inspect("c").await.err());
            gone(quorum.evict("c").await.err());
            gone(quorum.bootstrap_forced().await.err());
            assert!(matches!(
                lease.extend().await,
                Err(Error::Lost(_) | Error::RuntimeGone)
            ));
            assert!(lease.guard(std::future::pending::<()>()).await.is_err());
            assert!(matches!(
                lease.release().await,
                Err(Error::Lost(_) | Error::RuntimeGone)
            ));
            quorum.shutdown().await;
        };
        tokio::time::timeout(TTL / 5, all).await.unwrap();
    });
    let _ = (quorum.nodes(), quorum.health(), format!("{quorum:?}"));
    drop(other);
    drop(ours);
    drop(quorum);
}

/// A quorum in memory is made without a result, so its calls say it.
#[test]
fn calls_of_a_quorum_that_was_made_without_a_runtime_say_so() {
    let quorum = Quorum::in_memory(3);
    let lock = futures::executor::block_on(quorum.mutex("a").lock());
    assert!(matches!(lock, Err(Error::RuntimeGone)), "{lock:?}");
}

#[test]
fn a_system_without_a_timer_is_told_by_connect() {
    let mut command = again(module_path!(), "connects_without_descriptors");
    let output = command.arg("--ignored").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("says: Err(System(no timer could be made: "),
        "{said}"
    );
}

/// Its limit is that of the whole process.
#[tokio::test]
#[ignore = "started by the test above"]
async fn connects_without_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..limit
    };
    rustix::process::setrlimit(Resource::Nofile, none).unwrap();
    let quorum = builder().nodes(["redis://127.0.0.1:1"]).connect_lazy();
    println!("says: {quorum:?}");
}

/// A connect that is dropped drops its connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_dropped_anywhere_leaves_no_task() {
    let fleet = Fleet::start(3, Kind::Redis);
    let proxy = Proxy::start(&fleet[0]);
    proxy.blackhole(true);
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    for when in MOMENTS {
        let urls = [proxy.url().to_owned(), fleet[1].url(), fleet[2].url()];
        drop(dropped(builder().nodes(urls).connect(), when).await);
    }
    eventually("no task is left", || tasks.num_alive_tasks() == before).await;
}

/// Checks at compile time which futures can be spawned, and which values can be shared and stored.
#[allow(dead_code, clippy::too_many_arguments)]
fn futures_are_send_and_static_and_values_are_shared(
    quorum: &Quorum,
    builder: Builder,
    mutex: &Mutex,
    rwlock: &RwLock,
    reentrant: &ReentrantMutex,
    owner: &Owner,
    lease: Lease,
    watch: LeaseWatch,
    mut changes: NodeChanges,
) {
    fn spawnable<T: Send>(_: impl Future<Output = T> + Send + 'static) {}
    fn sendable(_: impl Future + Send) {}
    fn value<T: Send + Sync + Unpin + 'static>() {}

    value::<Quorum>();
    value::<Builder>();
    value::<Mutex>();
    value::<ReentrantMutex>();
    value::<Owner>();
    value::<RwLock>();
    value::<Lease>();
    value::<LeaseWatch>();
    value::<Renewal>();
    value::<FencingToken>();
    value::<Error>();
    value::<Lost>();
    value::<LossReason>();
    value::<Report>();
    value::<NodeState>();
    value::<Health>();
    value::<Inspection>();
    value::<MemoryNode>();

    spawnable(builder.connect());
    spawnable(Quorum::from_env());
    spawnable(quorum.ready());
    spawnable(quorum.voting(Duration::ZERO));
    spawnable(async move { changes.next().await });
    spawnable(quorum.inspect("a"));
    spawnable(quorum.evict("a"));
    spawnable(quorum.bootstrap());
    spawnable(quorum.bootstrap_forced());
    spawnable(quorum.raise_terms());
    spawnable(quorum.shutdown());
    spawnable(mutex.lock());
    spawnable(mutex.try_lock());
    spawnable(mutex.run(|_| async {}));
    spawnable(mutex.try_run(|_| async {}));
    spawnable(reentrant.lock(owner));
    spawnable(reentrant.try_lock(owner));
    spawnable(reentrant.run(owner, |_| async {}));
    spawnable(reentrant.try_run(owner, |_| async {}));
    spawnable(rwlock.read());
    spawnable(rwlock.write());
    spawnable(rwlock.try_read());
    spawnable(rwlock.try_write());
    spawnable(rwlock.run_read(|_| async {}));
    spawnable(rwlock.run_write(|_| async {}));
    spawnable(rwlock.try_run_read(|_| async {}));
    spawnable(rwlock.try_run_write(|_| async {}));
    spawnable(lease.extend());
    spawnable(lease.downgrade());
    sendable(lease.lost());
    sendable(lease.guard(async {}));
    sendable(watch.lost());
    sendable(watch.guard(async {}));
    spawnable(async move { watch.lost().await });
    spawnable(lease.release());
}

/// Futures do not borrow the values that they were made from. So a function may return a future of its own quorum.
#[allow(dead_code)]
fn futures_outlive_what_they_were_made_of(quorum: Quorum, lease: Lease) -> impl Future {
    let mutex = quorum.mutex("a");
    let locks = (mutex.lock(), mutex.try_lock(), lease.extend());
    let runs = (mutex.run(|_| async {}), mutex.try_run(|_| async {}));
    let (reentrant, owner) = (quorum.reentrant_mutex("a"), Owner::new());
    let shares = (reentrant.lock(&owner), reentrant.try_lock(&owner));
    let reruns = (
        reentrant.run(&owner, |_| async {}),
        reentrant.try_run(&owner, |_| async {}),
    );
    let (rwlock, several) = (quorum.rwlock("a"), quorum.mutex_all(["a", "b"]));
    let sides = (rwlock.read(), rwlock.try_read(), rwlock.write());
    let sides = (sides, rwlock.try_write(), lease.downgrade());
    let sides = (sides, rwlock.run_read(|_| async {}), several.lock());
    let sides = (sides, rwlock.try_run_write(|_| async {}));
    let asks = (quorum.inspect("a"), quorum.evict(String::new()));
    let ends = (quorum.bootstrap(), quorum.raise_terms(), quorum.shutdown());
    drop((quorum, mutex, reentrant, owner, rwlock, several, lease));
    let owned = |quorum: Quorum| quorum.mutex("b").lock();
    let _ = owned;
    async move { drop((locks, runs, shares, reruns, sides, asks, ends)) }
}
