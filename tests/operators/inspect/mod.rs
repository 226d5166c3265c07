//! Operators see the holders and the waiters: on in-process masters, on Redis and on Valkey.

mod labels;
mod queue;
mod rwlock;
mod semaphore;

use std::time::Duration;

use crate::support::{Fleet, HANG};
use quorate::{Inspection, MemoryNode, Quorum};
use tokio::time;

const NAME: &str = "nightly";
const PATIENCE: Duration = HANG;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three clients of one fleet: ann, bob and eve. All nodes vote.
async fn clients(connect: impl AsyncFn(&str) -> Quorum) -> [Quorum; 3] {
    let clients = [
        connect("ann").await,
        connect("bob").await,
        connect("eve").await,
    ];
    clients[0].bootstrap_forced().await.unwrap();
    for quorum in &clients {
        while quorum.health().voting < 3 {
            time::sleep(ms(10)).await;
        }
    }
    clients
}

async fn on_servers(fleet: &Fleet) -> [Quorum; 3] {
    clients(async |who| {
        let quorum = Quorum::builder().nodes(fleet.urls()).label(who);
        quorum.connect().await.unwrap()
    })
    .await
}

async fn in_memory() -> [Quorum; 3] {
    let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
    clients(async |who| {
        let quorum = Quorum::builder().nodes(nodes.clone()).label(who);
        quorum.connect().await.unwrap()
    })
    .await
}

/// Inspects `NAME` until the answer fits.
async fn seen(quorum: &Quorum, what: &str, wanted: impl Fn(&Inspection) -> bool) -> Inspection {
    let looked = async {
        loop {
            let seen = quorum.inspect(NAME).await.unwrap();
            if wanted(&seen) {
                return seen;
            }
            time::sleep(ms(5)).await;
        }
    };
    let looked = time::timeout(PATIENCE, looked).await;
    looked.unwrap_or_else(|_| panic!("never seen: {what}"))
}
