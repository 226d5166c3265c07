//! Masters are restarted one by one while permits are held: the limit stays, with its version. All of it runs on
//! masters in this process, and on tokio's paused clock.

use std::time::Duration;

use quorate::{Error, Lease, MemoryNode, NodeState, Quorum};
use tokio::time::sleep;

/// A lease is renewed, and a node is repaired, several times within this time.
const MAX_TTL: Duration = Duration::from_secs(2);

struct Rolled {
    nodes: [MemoryNode; 3],
    /// Two programs.
    programs: [Quorum; 2],
}

impl Rolled {
    async fn start() -> Self {
        let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
        let programs = [Self::program(&nodes).await, Self::program(&nodes).await];
        Self { nodes, programs }
    }

    async fn program(nodes: &[MemoryNode; 3]) -> Quorum {
        let builder = Quorum::builder()
            .max_ttl(MAX_TTL)
            .restart_margin(Duration::from_millis(100));
        builder.nodes(nodes).connect().await.unwrap()
    }

    /// Both programs hold one of two permits.
    async fn held(&self) -> [Lease; 2] {
        let [ann, bob] = &self.programs;
        let anns = ann
            .semaphore("pool", 2)
            .ttl(MAX_TTL)
            .acquire()
            .await
            .unwrap();
        let bobs = bob
            .semaphore("pool", 2)
            .ttl(MAX_TTL)
            .acquire()
            .await
            .unwrap();
        [anns, bobs]
    }

    /// Each master is restarted without its memory. Then all vote again, and one `max_ttl` passes.
    async fn roll(&self) {
        for node in &self.nodes {
            node.restart_empty();
            for look in 0.. {
                assert!(look < 1_000, "they do not vote again");
                sleep(Duration::from_millis(100)).await;
                let states = self.programs.iter().flat_map(Quorum::nodes);
                if states
                    .into_iter()
                    .all(|node| node.state == NodeState::Voting)
                {
                    break;
                }
            }
            sleep(MAX_TTL).await;
        }
    }

    /// The limit on each master, and its taken slots.
    async fn limits(&self) -> Vec<(Option<u32>, u32)> {
        let inspection = self.programs[0].inspect("pool").await.unwrap();
        let nodes = inspection.nodes.iter();
        let known = nodes.map(|node| node.semaphore.as_ref().unwrap());
        known.map(|slots| (slots.limit, slots.taken)).collect()
    }

    /// Asks for a permit in a new program with this limit. Returns the answer, or both limits of a conflict.
    async fn comes_with(&self, limit: u32) -> Result<bool, (u32, u32)> {
        let quorum = Self::program(&self.nodes).await;
        let answer = quorum.semaphore("pool", limit).try_acquire().await;
        match answer {
            Ok(lease) => Ok(lease.is_some()),
            Err(Error::LimitConflict(conflict)) => Err((conflict.asked, conflict.found)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_stands_on_all_masters_after_each_was_restarted() {
    let fleet = Rolled::start().await;
    let leases = fleet.held().await;
    fleet.roll().await;
    assert!(leases.iter().all(Lease::is_valid));
    assert_eq!(fleet.limits().await, [(Some(2), 2); 3]);
    assert_eq!(fleet.comes_with(4).await, Err((4, 2)));
    assert_eq!(fleet.comes_with(2).await, Ok(false));
}

/// The holders were granted before the resize, and ask for nothing after it. They still put the new limit back.
#[tokio::test(start_paused = true)]
async fn a_resized_limit_stands_on_all_masters_after_each_was_restarted() {
    let fleet = Rolled::start().await;
    let leases = fleet.held().await;
    let operator = Rolled::program(&fleet.nodes).await;
    operator.semaphore("pool", 2).resize(4).await.unwrap();
    operator.shutdown().await;
    fleet.roll().await;
    assert!(leases.iter().all(Lease::is_valid));
    assert_eq!(fleet.limits().await, [(Some(4), 2); 3]);
    assert_eq!(fleet.comes_with(4).await, Ok(true));
    // The limit of a program that was made before the resize is known to be older, as before the roll.
    assert_eq!(fleet.comes_with(2).await, Err((2, 4)));
}
