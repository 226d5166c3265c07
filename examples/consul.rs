//! Locks and semaphores in Consul: a nightly job that runs on one machine at a time, and exports of which two run at a
//! time.
//!
//!     consul agent -dev &
//!     cargo run --example consul --features consul
//!
//! It finds the agent through the variables of Consul's own tools: `CONSUL_HTTP_ADDR`, `CONSUL_HTTP_TOKEN` and others.
//! Without them it uses 127.0.0.1:8500. Start it in two terminals at once, or while `consul lock
//! quorate-example/nightly sleep 5` runs, and one waits for the other.

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

    // At most one process holds this lock, on all machines. The lease is renewed until it is released or dropped.
    let nightly = consul.mutex("quorate-example/nightly");
    let lease = nightly.lock().await?;
    println!("the nightly job runs here, with token {}", lease.token());

    // Other processes wait in lock(), or try once.
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

    // At most two exports run at the same time, on all machines.
    let exports = consul.semaphore("quorate-example/exports", 2);
    let gate = Arc::new(Gate::new());
    let workers =
        ["ann", "bob", "joe", "sue"].map(|who| export(exports.clone(), Arc::clone(&gate), who));
    try_join_all(workers).await?;
    println!("{} of 2 permits are free", exports.available().await?);

    // This is the last line of main: no session stays in Consul.
    for name in consul.shutdown().await {
        println!("{name} is still held");
    }
    Ok(())
}

async fn export(exports: Semaphore, gate: Arc<Gate>, who: &str) -> Result<(), Failure> {
    let permit = exports.acquire().await?;
    println!("{who} exports, with token {}", permit.token());
    sleep(Duration::from_millis(100)).await;
    // The tokens of a semaphore grow too, but two exports hold it at once. So each has a name of its own in the store.
    gate.admit(who, permit.token())?;
    permit.release().await?;
    Ok(())
}

/// Consul may end a session while its holder still runs, so the store compares tokens. This store is in the process. A
/// real one is a database: see `quorate::docs::fencing`.
fn write(store: &Gate, lease: &Lease) {
    match store.admit("report", lease.token()) {
        Ok(()) => println!("the store takes token {}", lease.token()),
        Err(stale) => println!("the store refuses: {stale}"),
    }
}
