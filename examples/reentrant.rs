//! A lock that its holder may lock again. No server is needed: `cargo run --example reentrant`.
//!
//! A transfer locks an account and then calls a withdrawal. The withdrawal locks the account too, because it can also
//! run by itself. With a plain mutex the transfer would wait for itself.

use std::time::Duration;

use quorate::{Error, Owner, Quorum};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let quorum = Quorum::in_memory(5); // in production: Quorum::connect(["redis://10.0.0.1:6379", ...])

    // Use one owner for each unit of work, such as a request.
    let request = Owner::new();
    transfer(&quorum, &request).await?;
    withdraw(&quorum, &Owner::new()).await?; // run by itself, it takes the lock and releases it

    // The owner moves with the work: into another task, or to another thread.
    let account = quorum.reentrant_mutex("account:7");
    let lease = account.lock(&request).await?;
    let (part, owner) = (account.clone(), request.clone());
    let task = tokio::spawn(async move { part.lock(&owner).await });
    if let Ok(share) = task.await {
        println!("Another task of the request: {}", share?.token());
    }

    // Another owner does not get the lock.
    let stranger = account.clone().wait_timeout(Duration::from_millis(200));
    match stranger.lock(&Owner::new()).await {
        Err(Error::Held(_)) => println!("Another request waits: it is held"),
        other => println!("unexpected: {other:?}"),
    }
    lease.release().await?; // this was the last share: waits until a majority confirms the release

    for name in quorum.shutdown().await {
        println!("unexpected: {name} is still held");
    }
    Ok(())
}

async fn transfer(quorum: &Quorum, owner: &Owner) -> Result<(), Error> {
    let lease = quorum.reentrant_mutex("account:7").lock(owner).await?;
    println!("The transfer holds account:7, with token {}", lease.token());
    withdraw(quorum, owner).await?;
    println!("The transfer still holds it: {}", lease.is_valid());
    lease.release().await
}

async fn withdraw(quorum: &Quorum, owner: &Owner) -> Result<(), Error> {
    let withdrawal = quorum
        .reentrant_mutex("account:7")
        .run(owner, |watch| async move {
            println!("The withdrawal works with token {}", watch.token());
        });
    withdrawal.await
}
