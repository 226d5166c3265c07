//! Every future of a semaphore may be dropped at any await. All slots are free for others long before a ttl is over.
//!
//! Each future is dropped after every number of polls, on in-process nodes. The engine gets one turn between two polls,
//! so every state that it passes through is covered.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use quorate::{Builder, MemoryNode, Quorum, Semaphore};

const TTL: Duration = Duration::from_secs(10);
/// The limit for background work. It is far below the ttl.
const SOON: Duration = Duration::from_secs(3);
const LIMIT: u32 = 3;
const MOST_POLLS: usize = 40;

#[derive(Clone, Copy, Debug)]
enum Op {
    Acquire,
    /// Others hold all slots.
    AcquireInLine,
    /// Others release their slots meanwhile.
    AcquireHandedOver,
    TryAcquire,
    AcquireMany,
    Run,
    Release,
    Resize,
    Available,
}

const OPS: [Op; 9] = [
    Op::Acquire,
    Op::AcquireInLine,
    Op::AcquireHandedOver,
    Op::TryAcquire,
    Op::AcquireMany,
    Op::Run,
    Op::Release,
    Op::Resize,
    Op::Available,
];

fn builder() -> Builder {
    Quorum::builder()
        .fleet("tests")
        .max_ttl(TTL)
        .node_timeout(Duration::from_millis(300))
}

/// Polls the future this many times, and drops it.
async fn dropped<F: Future>(future: F, polls: usize) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if polled.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn operate(semaphore: Semaphore, others: Vec<quorate::Lease>, op: Op, polls: usize) {
    match op {
        Op::Acquire | Op::AcquireInLine => dropped(semaphore.acquire(), polls).await,
        Op::AcquireHandedOver => {
            let waits = dropped(semaphore.acquire(), polls);
            let frees = async {
                for lease in others {
                    tokio::task::yield_now().await;
                    drop(lease);
                }
            };
            futures::join!(waits, frees);
            return;
        }
        Op::TryAcquire => dropped(semaphore.try_acquire(), polls).await,
        Op::AcquireMany => dropped(semaphore.acquire_many(2), polls).await,
        Op::Run => {
            dropped(
                semaphore.run(|watch| async move { watch.lost().await }),
                polls,
            )
            .await
        }
        Op::Release => {
            let lease = semaphore.acquire().await.unwrap();
            dropped(lease.release(), polls).await;
        }
        Op::Resize => dropped(semaphore.resize(LIMIT), polls).await,
        Op::Available => dropped(semaphore.available(), polls).await,
    }
    drop(others);
}

#[tokio::test(start_paused = true)]
async fn dropped_after_any_number_of_polls_all_slots_are_free() {
    for down in 0..=1 {
        let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
        let ours = builder().nodes(&nodes).connect().await.unwrap();
        ours.bootstrap_forced().await.unwrap();
        let other = builder().nodes(&nodes).connect().await.unwrap();
        other.voting(SOON).await.unwrap();
        for node in &nodes[..down] {
            node.stop();
        }
        for op in OPS {
            for polls in 0..MOST_POLLS {
                let name = format!("{op:?} {polls} {down}");
                let theirs = other.semaphore(&name, LIMIT).ttl(TTL);
                let others = match op {
                    Op::AcquireInLine | Op::AcquireHandedOver => LIMIT,
                    _ => 0,
                };
                let mut held = Vec::new();
                for _ in 0..others {
                    held.push(theirs.acquire().await.expect(&name));
                }
                operate(ours.semaphore(&name, LIMIT).ttl(TTL), held, op, polls).await;
                let all = theirs.wait_timeout(SOON).acquire_many(LIMIT).await;
                let all =
                    all.unwrap_or_else(|error| panic!("{name}: {error}: {:?}", error.report()));
                assert_eq!(all.slots().len(), LIMIT as usize);
            }
        }
    }
}
