//! Locks and semaphores in Consul: a nightly job that runs on one machine, and exports of which two run at once.
//!
//!     consul agent -dev &
//!     cargo run --example consul --features consul
//!
//! It finds the agent as Consul's own tools do: `CONSUL_HTTP_ADDR`, `CONSUL_HTTP_TOKEN` and the others; without them at
//! 127.0.0.1:8500. Start it in two terminals at once, or beside
//! `consul lock quorate-example/nightly sleep 5`: they wait for each other.

use std::{error::Error, sync::Arc, time::Duration};

use futures::future::try_join_all;
use quorate::{
    Lease,
    consul::{Consul, Semaphore},
    fence::Gate,
};
use tokio::time::sleep;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let consul = match Consul::from_env().await {
        Ok(consul) => consul,
        Err(error) => {
            eprintln!("{error}\nStart an agent: consul agent -dev");
            std::process::exit(1);
        }
    };

    // At most one, on all machines. It is renewed until it is released or dropped.
    let nightly = consul.mutex("quorate-example/nightly");
    let lease = nightly.lock().await?;
    println!("the nightly job runs here, with token {}", lease.token());

    // Others wait in lock(), or try once.
    let other = nightly
        .wait_timeout(Duration::from_millis(200))
        .lock()
        .await;
    println!(
        "another one gives up: {}",
        other.map_or_else(|error| error.to_string(), |_| "got it?!".into())
    );
    write(&Gate::new(), &lease);
    lease.release().await?;

    // At most two, on all machines.
    let exports = consul.semaphore("quorate-example/exports", 2);
    let gate = Arc::new(Gate::new());
    let workers =
        ["ann", "bob", "joe", "sue"].map(|who| export(exports.clone(), Arc::clone(&gate), who));
    try_join_all(workers).await?;
    println!("{} of 2 permits are free", exports.available().await?);

    // The last line of main: no session is left.
    for name in consul.shutdown().await {
        println!("{name} is still held");
    }
    Ok(())
}

async fn export(exports: Semaphore, gate: Arc<Gate>, who: &str) -> Result<(), Failure> {
    let permit = exports.acquire().await?;
    println!("{who} exports, with token {}", permit.token());
    sleep(Duration::from_millis(100)).await;
    // Tokens of a semaphore grow too, but two hold at once: each has a name of its own in the store.
    gate.admit(who, permit.token())?;
    permit.release().await?;
    Ok(())
}

/// A session may be ended while its holder runs, so what is written to compares tokens. This one is in the process; a
/// real one is a database: `quorate::docs::fencing`.
fn write(store: &Gate, lease: &Lease) {
    match store.admit("report", lease.token()) {
        Ok(()) => println!("the store takes token {}", lease.token()),
        Err(stale) => println!("the store refuses: {stale}"),
    }
}
