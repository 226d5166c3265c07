//! Quorum locks in one minute, without a server: `cargo run --example quickstart`.

use std::time::Duration;

use quorate::{Error, MemoryNode, Quorum, Renewal, fence::Gate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Five independent masters in this process, which vote at once. In production:
    // Quorum::connect(["redis://10.0.0.1:6379", ...]), after `quorate bootstrap --new` for new servers.
    let masters: [MemoryNode; 5] = Default::default();
    let quorum = Quorum::builder().nodes(&masters).connect().await?;

    // The lock is held once three of the five masters grant it. The lease is renewed until it is released or dropped.
    let lease = quorum.mutex("invoice:42").lock().await?;
    println!("I hold invoice:42, with token {}", lease.token());

    // Other callers can wait in lock(), or try once.
    let other = quorum.mutex("invoice:42").try_lock().await?;
    println!(
        "Somebody else tries: {}",
        if other.is_none() {
            "it is held"
        } else {
            "got it?!"
        }
    );
    lease.release().await?;

    // Any two of the five masters may die.
    masters[3].stop();
    masters[4].stop();
    let token = quorum
        .mutex("invoice:42")
        .run(|lease| async move { lease.token() })
        .await?;
    println!("Two masters are dead, and I got token {token}: always greater than before");

    // Without a majority you get an error that contains the reason of every node.
    masters[2].stop();
    match quorum.mutex("invoice:42").try_lock().await {
        Err(Error::NoQuorum(report)) => println!("Three are dead: {report}"),
        other => println!("unexpected: {other:?}"),
    }
    for master in &masters {
        master.start();
    }
    while quorum.health().voting < 5 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    // A holder that is paused for longer than its lease cannot know that it has lost the lock.
    let store = Gate::new();
    let second = Duration::from_secs(1);
    let paused = quorum
        .mutex("invoice:42")
        .ttl(second)
        .renewal(Renewal::off())
        .lock()
        .await?;
    let next = quorum.mutex("invoice:42").lock().await?; // the lock is free again after a second
    store.admit("invoice:42", next.token())?;
    println!("The next holder writes with token {}", next.token());

    // So the protected store compares tokens, and refuses the late write.
    match store.admit("invoice:42", paused.token()) {
        Err(stale) => println!("The paused one is too late: {stale}"),
        Ok(()) => println!("unexpected: the old token passed"),
    }

    // This is the end of a program. `shutdown` waits until all leases are dropped and their releases are confirmed.
    drop((paused, next));
    for name in quorum.shutdown().await {
        println!("unexpected: {name} is still held");
    }
    Ok(())
}
