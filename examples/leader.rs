//! A leader, of which there is one at a time: `ann` leads and hangs, so she loses the lock and `bob` leads. He stops when
//! the program ends.
//!
//!     cargo run --example leader
//!     QUORATE_NODES=redis://.. cargo run --example leader
//!
//! The lock is renewed in the background, so by itself it would outlive the hang. With a heartbeat the work has to show
//! that it goes on. `shutdown` waits until leases are dropped, and tells so by `closing`.

use std::{future::pending, sync::Arc, time::Duration};

use quorate::{Error, Lease, Quorum, Renewal};
use tokio::{select, sync::Notify, time::sleep};

/// How long others wait for the lock of a leader that died. Short, so that the example runs quickly. The default is 10 s.
const TTL: Duration = Duration::from_secs(2);
/// A leader without a heartbeat for this long loses the lock. It is many times a step, so a busy machine ends nothing.
const BEAT: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let quorum = match std::env::var_os("QUORATE_NODES") {
        Some(_) => Quorum::from_env().await?,
        None => Quorum::in_memory(3),
    };
    let leads = Arc::new(Notify::new());
    let ann = tokio::spawn(lead("ann", quorum.clone(), Some(5), Arc::clone(&leads)));
    leads.notified().await;
    let bob = tokio::spawn(lead("bob", quorum.clone(), None, Arc::clone(&leads)));
    ann.await??;
    leads.notified().await;
    sleep(STEP * 5).await;

    // bob drops his lease when this begins, so it returns at once.
    let left = quorum.shutdown().await;
    println!(
        "the program ends, and {} locks are left to their ttl",
        left.len()
    );
    bob.await??;
    Ok(())
}

/// Leads once, until the lock is lost or the program ends. A real program asks again after a loss. `hangs_after` is the number of steps after which the work hangs.
async fn lead(
    name: &str,
    quorum: Quorum,
    hangs_after: Option<u32>,
    leads: Arc<Notify>,
) -> Result<(), Error> {
    let renewal = Renewal::auto().heartbeat(BEAT);
    let leader = quorum.mutex("leader").label(name).ttl(TTL).renewal(renewal);
    let lease = match leader.lock().await {
        // The program ends while this one waits.
        Err(Error::Closed) => return Ok(()),
        lease => lease?,
    };
    println!("{name} leads, with token {}", lease.token());
    leads.notify_one();
    select! {
        ended = lease.guard(work(&lease, hangs_after)) => {
            if let Err(lost) = ended {
                println!("{name} leads no more: {lost}");
            }
        }
        () = quorum.closing() => {
            println!("{name} hands over, because the program ends");
            lease.release().await?;
        }
    }
    Ok(())
}

/// Each step writes under the lease's token, so that the store can refuse an older leader.
async fn work(lease: &Lease, hangs_after: Option<u32>) {
    let mut steps = 0;
    while hangs_after.is_none_or(|last| steps < last) {
        sleep(STEP).await;
        lease.beat();
        steps += 1;
    }
    // A call that never returns.
    pending().await
}
