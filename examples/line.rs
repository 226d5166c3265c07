//! Workers that queue for one lock. No server is needed: `cargo run --example line`.
//!
//! The lock is granted first come, first served, across all processes. Here every worker has a `Quorum` of its own, as
//! every process would. One worker gives up while it waits, and the others keep their places.

use std::time::Duration;

use quorate::{Error, Lease, MemoryNode, Quorum};
use tokio::task::JoinHandle;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let masters: Vec<MemoryNode> = (0..5).map(|_| MemoryNode::new()).collect();
    let boss = worker(&masters, "boss")?;

    let held = boss.mutex("printer").lock().await?;
    let mut waiting = Vec::new();
    for name in ["ann", "bob", "eve", "joe"] {
        let quorum = worker(&masters, name)?;
        quorum.voting(Duration::from_secs(5)).await?;
        let place = tokio::spawn(quorum.mutex("printer").lock());
        // This makes the order certain: a caller that asks after another is registered on a majority comes after it.
        until_it_waits(&boss, waiting.len()).await?;
        waiting.push((name, quorum, place));
    }
    // `quorate inspect printer` prints the same.
    println!("{}\n", boss.inspect("printer").await?);

    // Dropping a wait gives it up. (`.wait_timeout(..)` gives a wait an end.)
    let (gone, quorum, place) = waiting.remove(1);
    place.abort();
    quorum.shutdown().await;
    println!("{gone} gives up");

    held.release().await?;
    for (name, quorum, place) in waiting {
        let lease = served(place).await?;
        println!("{name} prints, with token {}", lease.token());
        lease.release().await?; // this hands the lock to the next worker
        quorum.shutdown().await;
    }
    boss.shutdown().await;
    Ok(())
}

fn worker(masters: &[MemoryNode], name: &str) -> Result<Quorum, Error> {
    // In production: Quorum::connect(["redis://10.0.0.1:6379", ...])
    Quorum::builder().nodes(masters).label(name).connect_lazy()
}

/// Waits until a majority has registered one more waiter than `behind`.
async fn until_it_waits(boss: &Quorum, behind: usize) -> Result<(), Error> {
    loop {
        let line = boss.inspect("printer").await?.line();
        if line.iter().filter(|waiter| waiter.nodes.len() >= 3).count() > behind {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn served(place: JoinHandle<Result<Lease, Error>>) -> Result<Lease, Error> {
    place.await.map_err(|_| Error::Closed)?
}
