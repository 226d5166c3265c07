//! The same matrix for several names at once: no matter what is dropped, all of them are free for others long before a
//! ttl is over.

use super::*;

impl Bench {
    async fn sets(&self, op: Op, fault: Fault, bad: usize) {
        let cell = format!("{op:?} × {fault:?} × {bad} of 3");
        let names: Vec<String> = (0..MOMENTS.len()).map(|i| format!("{cell} {i}")).collect();
        let (mut held, mut theirs) = (Vec::new(), Vec::new());
        for name in &names {
            held.push(match op {
                Op::Extend | Op::Release | Op::Drop => {
                    Some(several(&self.ours, name).lock().await.unwrap())
                }
                _ => None,
            });
            if matches!(op, Op::LockContended | Op::LockHandedOver) {
                let one = self.other.mutex(middle(name)).ttl(TTL);
                theirs.push(one.lock().await.unwrap());
            }
        }
        let operations = MOMENTS.into_iter().zip(&names).zip(held);
        let operations = operations
            .map(|((when, name), lease)| operate(several(&self.ours, name), lease, op, when));
        let theirs = (theirs, op == Op::LockHandedOver);
        let soon = async |name: &str, when: &str| each_soon(&self.other, name, when).await;
        self.play(&cell, (fault, bad), theirs, operations, soon)
            .await;
    }
}

/// A mutex of three names at once.
fn several(quorum: &Quorum, name: &str) -> Mutex {
    quorum.mutex_all(three(name)).ttl(TTL)
}

fn three(name: &str) -> [String; 3] {
    [format!("{name} a"), middle(name), format!("{name} c")]
}

/// The name that another client holds, where one does.
fn middle(name: &str) -> String {
    format!("{name} b")
}

/// Checks that another client gets each of the names, and then all of them, long before a ttl is over.
async fn each_soon(other: &Quorum, name: &str, when: &str) {
    for one in three(name) {
        lock_soon(other, &one, when).await;
    }
    let deadline = Instant::now() + SOON;
    let all = several(other, name).wait_timeout(Duration::from_secs(1));
    loop {
        match all.lock().await {
            Ok(lease) => return drop(lease),
            Err(error) => assert!(Instant::now() < deadline, "{name}, {when}: {error}"),
        }
    }
}

async fn matrix(kind: Kind, ops: &[Op]) {
    let bench = Bench::start(kind).await;
    for &op in ops {
        bench.sets(op, Fault::Ok, 0).await;
        for fault in [Fault::Error, Fault::Slow, Fault::Never] {
            for bad in 1..=3 {
                bench.sets(op, fault, bad).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_dropped_anywhere_leave_nothing() {
    matrix(Kind::Redis, &[Op::Lock, Op::TryLock]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_several_dropped_anywhere_leaves_nothing() {
    matrix(Kind::Valkey, &[Op::LockContended, Op::LockHandedOver]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_held_dropped_anywhere_are_released() {
    matrix(Kind::Valkey, &[Op::Extend, Op::Release, Op::Drop]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_under_several_dropped_anywhere_leaves_nothing() {
    matrix(Kind::Redis, &[Op::Run, Op::TryRun, Op::RunLong]).await;
}

/// Drops the future after every number of polls, on in-process nodes. See the same test of a single name.
#[tokio::test(start_paused = true)]
async fn dropped_after_any_number_of_polls_all_names_are_free() {
    let ops = [
        Op::Lock,
        Op::LockContended,
        Op::TryLock,
        Op::Run,
        Op::TryRun,
        Op::RunLong,
    ];
    for down in 0..=1 {
        let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
        let ours = builder().nodes(&nodes).connect().await.unwrap();
        ours.bootstrap_forced().await.unwrap();
        let other = builder().nodes(&nodes).connect().await.unwrap();
        eventually("all nodes vote", || other.health().voting == 3).await;
        for node in &nodes[..down] {
            node.stop();
        }
        for op in ops {
            for polls in 0..25 {
                let name = format!("{op:?} {polls} {down}");
                let theirs = match op {
                    Op::LockContended => {
                        let one = other.mutex(middle(&name)).ttl(TTL);
                        Some(one.lock().await.unwrap())
                    }
                    _ => None,
                };
                let when = When::Polled(polls);
                let done = operate(several(&ours, &name), None, op, when).await;
                done.unwrap();
                drop(theirs);
                each_soon(&other, &name, "").await;
            }
        }
    }
}
