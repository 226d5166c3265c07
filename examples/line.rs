//! Workers that wait in line for one lock, with no server: `cargo run --example line`.
//!
//! Who asks first is served first, also between processes: here every worker has a `Quorum` of its own, as each
//! process would. One of them gives up while it waits, and nobody else loses a place by that.

use std::time::Duration;

use quorate::{Error, Lease, MemoryNode, Quorum};
use tokio::task::JoinHandle;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let masters: Vec<MemoryNode> = (0..5).map(|_| MemoryNode::new()).collect();
    let boss = worker(&masters, "boss")?;
    boss.bootstrap_forced().await?; // they are new: in production wait, or `quorate bootstrap --new` once

    let held = boss.mutex("printer").lock().await?;
    let mut waiting = Vec::new();
    for name in ["ann", "bob", "eve", "joe"] {
        let quorum = worker(&masters, name)?;
        quorum.voting(Duration::from_secs(5)).await?;
        let place = tokio::spawn(quorum.mutex("printer").lock());
        // Only to have a certain order here: who asks when another is registered on a majority comes after it.
        until_it_waits(&boss, waiting.len()).await?;
        waiting.push((name, quorum, place));
    }
    // What `quorate inspect printer` prints.
    println!("{}\n", boss.inspect("printer").await?);

    // A wait is given up by dropping it. (A wait with an end: `.wait_timeout(..)`.)
    let (gone, quorum, place) = waiting.remove(1);
    place.abort();
    quorum.shutdown().await;
    println!("{gone} gives up");

    held.release().await?;
    for (name, quorum, place) in waiting {
        let lease = served(place).await?;
        println!("{name} prints, with token {}", lease.token());
        lease.release().await?; // hands over to the next
        quorum.shutdown().await;
    }
    boss.shutdown().await;
    Ok(())
}

fn worker(masters: &[MemoryNode], name: &str) -> Result<Quorum, Error> {
    // In production: Quorum::connect(["redis://10.0.0.1:6379", ...])
    Quorum::builder().nodes(masters).label(name).connect_lazy()
}

/// Until somebody stands on a majority, behind so many.
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
