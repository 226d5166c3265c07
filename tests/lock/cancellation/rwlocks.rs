//! The same matrix for a read-write lock: no matter what is dropped, others can read and write long before a ttl is
//! over, and a writer that has stopped waiting keeps no reader out.

use super::*;
use futures::{FutureExt as _, future::BoxFuture};
use quorate::RwLock;

/// With this node timeout the nodes keep a writer's intent for 3.9 s (three times this and 100 ms). That is longer than
/// [`SOON`].
const SLOW_TO_FORGET: Duration = Duration::from_millis(1_200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Read,
    Write,
}

use Side::{Read, Write};

impl Side {
    fn lock(self, lock: &RwLock) -> BoxFuture<'static, Result<Lease, Error>> {
        match self {
            Read => lock.read().boxed(),
            Write => lock.write().boxed(),
        }
    }

    fn try_lock(self, lock: &RwLock) -> BoxFuture<'static, Result<Option<Lease>, Error>> {
        match self {
            Read => lock.try_read().boxed(),
            Write => lock.try_write().boxed(),
        }
    }

    fn other(self) -> Self {
        match self {
            Read => Write,
            Write => Read,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Lock(Side),
    /// Another client has the other side and keeps it.
    LockContended(Side),
    /// Another client has the other side, and frees it while this one waits.
    LockFreed(Side),
    TryLock(Side),
    /// The lease is a writer's.
    Downgrade,
    /// The lease is a writer's that had to wait, and the nodes know that it did.
    DowngradeWaited,
    Extend(Side),
    Release(Side),
    /// Drops the lease itself.
    Drop(Side),
    Run(Side),
    /// The work takes long, and is dropped while it runs.
    RunLong(Side),
}

impl Op {
    /// The side on which the operation needs a lease beforehand.
    fn had(self) -> Option<Side> {
        match self {
            Self::Extend(side) | Self::Release(side) | Self::Drop(side) => Some(side),
            Self::Downgrade | Self::DowngradeWaited => Some(Write),
            _ => None,
        }
    }

    /// The side on which another client has a lease.
    fn met(self) -> Option<Side> {
        match self {
            Self::LockContended(side) | Self::LockFreed(side) => Some(side.other()),
            _ => None,
        }
    }
}

impl Bench {
    async fn sides(&self, op: Op, fault: Fault, bad: usize) {
        let cell = format!("{op:?} × {fault:?} × {bad} of 3");
        let names: Vec<String> = (0..MOMENTS.len()).map(|i| format!("{cell} {i}")).collect();
        let (mut held, mut theirs) = (Vec::new(), Vec::new());
        for name in &names {
            let ours = rwlock(&self.ours, name);
            held.push(match op.had() {
                Some(_) if op == Op::DowngradeWaited => Some(self.waited(name).await),
                Some(side) => Some(side.lock(&ours).await.unwrap()),
                None => None,
            });
            if let Some(side) = op.met() {
                let lease = side.lock(&rwlock(&self.other, name)).await;
                theirs.push(lease.unwrap());
            }
        }
        let operations = MOMENTS.into_iter().zip(&names).zip(held);
        let operations = operations
            .map(|((when, name), lease)| operate(rwlock(&self.ours, name), lease, op, when));
        let theirs = (theirs, matches!(op, Op::LockFreed(_)));
        let soon = async |name: &str, when: &str| both_soon(&self.other, name, when).await;
        self.play(&cell, (fault, bad), theirs, operations, soon)
            .await;
        for server in self.fleet.iter() {
            ends_by_itself(&cell, server);
        }
    }

    /// A writer that had to wait for a reader.
    async fn waited(&self, name: &str) -> Lease {
        let reader = rwlock(&self.other, name).read().await.unwrap();
        let writer = tokio::spawn(rwlock(&self.ours, name).write());
        let lock = rwlock(&self.other, name);
        while let Some(beside) = lock.try_read().await.unwrap() {
            beside.release().await.unwrap();
        }
        reader.release().await.unwrap();
        writer.await.unwrap().unwrap()
    }
}

fn rwlock(quorum: &Quorum, name: &str) -> RwLock {
    quorum.rwlock(name).ttl(TTL)
}

/// Runs one operation, and drops it at its moment.
async fn operate(lock: RwLock, lease: Option<Lease>, op: Op, when: When) -> Result<(), Error> {
    let quick = |watch: LeaseWatch| async move {
        tokio::task::yield_now().await;
        watch.token()
    };
    let long = |watch: LeaseWatch| async move { watch.lost().await };
    let lease_of = |lease: Option<Lease>| lease.expect("taken before");
    let waits = |d| lock.clone().wait_timeout(Duration::from_millis(d));
    match op {
        Op::Lock(side) => drop(dropped(side.lock(&lock), when).await.transpose()?),
        Op::LockContended(side) => match dropped(side.lock(&waits(200)), when).await {
            Some(Ok(lease)) => panic!("it is held by another: {lease:?}"),
            Some(Err(Error::Held(_) | Error::NoQuorum(_))) | None => {}
            Some(Err(error)) => panic!("{error}"),
        },
        Op::LockFreed(side) => match dropped(side.lock(&waits(2_000)), when).await {
            Some(Err(Error::Held(_))) | None => {}
            Some(granted) => drop(granted?),
        },
        Op::TryLock(side) => drop(dropped(side.try_lock(&lock), when).await.transpose()?),
        Op::Downgrade | Op::DowngradeWaited => {
            let lease = lease_of(lease);
            let downgraded = dropped(lease.downgrade(), when).await;
            assert!(lease.is_valid(), "it takes nothing");
            downgraded.transpose()?;
        }
        Op::Extend(_) => {
            let lease = lease_of(lease);
            let extended = dropped(lease.extend(), when).await;
            assert!(lease.is_valid(), "dropping an extension takes nothing");
            extended.transpose()?;
        }
        Op::Release(_) => {
            dropped(lease_of(lease).release(), when).await.transpose()?;
        }
        Op::Drop(_) => drop(lease),
        Op::Run(Read) => drop(dropped(lock.run_read(quick), when).await.transpose()?),
        Op::Run(Write) => drop(dropped(lock.run_write(quick), when).await.transpose()?),
        Op::RunLong(side) => {
            let when = match when {
                When::Done => When::After(Duration::from_millis(250)),
                when => when,
            };
            let work = match side {
                Read => lock.run_read(long).boxed(),
                Write => lock.run_write(long).boxed(),
            };
            let _ = dropped(work, when).await.transpose()?;
        }
    }
    Ok(())
}

/// Checks that another client can read, and then write, long before a ttl is over.
async fn both_soon(other: &Quorum, name: &str, when: &str) {
    let deadline = Instant::now() + SOON;
    let lock = rwlock(other, name).wait_timeout(Duration::from_secs(1));
    for side in [Read, Write] {
        let lease = loop {
            match side.lock(&lock).await {
                Ok(lease) => break lease,
                Err(error) => {
                    assert!(
                        Instant::now() < deadline,
                        "{name}, {when}, {side:?}: {error}"
                    );
                }
            }
        };
        // A node that answers with errors does not confirm the release.
        let _ = lease.release().await;
    }
}

/// Checks everything that is left of read-write locks when nobody holds or waits for one, key by key.
fn ends_by_itself(cell: &str, server: &Server) {
    let short = (SLOW_TO_FORGET + Duration::from_millis(100)) * 3;
    for (key, pttl) in server.keys() {
        let Some((sort, _)) = key
            .split_once('@')
            .and_then(|(_, rest)| rest.split_once(':'))
        else {
            continue;
        };
        let longest = match sort {
            // Readers waited, and the lock is kept for them for five round trips.
            "rwlock-refused" | "rwlock-window" => short,
            // The channels that are told of a release. They live at most twice as long as the wait.
            "rwlock-wakes" => short * 2,
            // These contain nobody any more, except holders that are over by their own clock.
            "rwlock-readers" | "rwlock-writers" => TTL * 2,
            sort => panic!("{cell}: {server}: {key} of {sort} is left behind"),
        };
        let longest = i64::try_from(longest.as_millis()).unwrap();
        assert!(
            (0..=longest).contains(&pttl),
            "{cell}: {server}: {key} for {pttl} ms"
        );
    }
}

async fn matrix(kind: Kind, node_timeout: Duration, ops: &[Op]) {
    let bench = Bench::start_with(kind, node_timeout).await;
    for &op in ops {
        bench.sides(op, Fault::Ok, 0).await;
        for fault in [Fault::Error, Fault::Slow, Fault::Never] {
            for bad in 1..=3 {
                bench.sides(op, fault, bad).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_dropped_anywhere_leaves_nothing() {
    let ops = [
        Op::Lock(Read),
        Op::TryLock(Read),
        Op::LockContended(Read),
        Op::LockFreed(Read),
    ];
    matrix(Kind::Redis, NODE_TIMEOUT, &ops).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_dropped_anywhere_leaves_nothing() {
    let ops = [Op::Lock(Write), Op::TryLock(Write)];
    matrix(Kind::Valkey, NODE_TIMEOUT, &ops).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_to_write_dropped_anywhere_keeps_no_reader_out() {
    let ops = [Op::LockContended(Write), Op::LockFreed(Write)];
    matrix(Kind::Redis, SLOW_TO_FORGET, &ops).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_dropped_anywhere_takes_nothing_and_leaves_nothing() {
    let ops = [Op::Downgrade, Op::DowngradeWaited];
    matrix(Kind::Valkey, SLOW_TO_FORGET, &ops).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_side_dropped_anywhere_is_released() {
    let ops = [
        Op::Extend(Read),
        Op::Release(Read),
        Op::Drop(Read),
        Op::Release(Write),
        Op::Drop(Write),
    ];
    matrix(Kind::Valkey, NODE_TIMEOUT, &ops).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_under_either_side_dropped_anywhere_leaves_nothing() {
    let ops = [
        Op::Run(Read),
        Op::Run(Write),
        Op::RunLong(Read),
        Op::RunLong(Write),
    ];
    matrix(Kind::Redis, NODE_TIMEOUT, &ops).await;
}

/// Drops the future after every number of polls, on in-process nodes. See the same test of the mutex.
#[tokio::test(start_paused = true)]
async fn dropped_after_any_number_of_polls_both_sides_are_free() {
    let ops = [
        Op::Lock(Read),
        Op::Lock(Write),
        Op::TryLock(Read),
        Op::TryLock(Write),
        Op::LockContended(Read),
        Op::LockContended(Write),
        Op::Run(Read),
        Op::Run(Write),
        Op::RunLong(Write),
    ];
    for down in 0..=1 {
        let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
        let connect = || builder().node_timeout(SLOW_TO_FORGET).nodes(&nodes);
        let ours = connect().connect().await.unwrap();
        ours.bootstrap_forced().await.unwrap();
        let other = connect().connect().await.unwrap();
        eventually("all nodes vote", || other.health().voting == 3).await;
        for node in &nodes[..down] {
            node.stop();
        }
        for op in ops {
            for polls in 0..25 {
                let name = format!("{op:?} {polls} {down}");
                let theirs = match op.met() {
                    Some(side) => Some(side.lock(&rwlock(&other, &name)).await.unwrap()),
                    None => None,
                };
                let when = When::Polled(polls);
                operate(rwlock(&ours, &name), None, op, when).await.unwrap();
                if op == Op::LockContended(Write) {
                    // This reads beside the reader that still holds the lock.
                    let beside = rwlock(&other, &name).wait_timeout(Duration::from_millis(200));
                    drop(beside.read().await.unwrap());
                }
                drop(theirs);
                both_soon(&other, &name, "").await;
            }
        }
    }
}
