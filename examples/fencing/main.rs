//! Two clients use one lock. The first one is paused for longer than its lease. The second one takes over and writes.
//! Then the first one wakes and writes. The program shows this twice: with a store that accepts every write, then with
//! a store that checks tokens.
//!
//!     cargo run --example fencing
//!     cargo run --example fencing -- --nodes redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003
//!     cargo run --example fencing -- --store redis://127.0.0.1:6379
//!     cargo run --example fencing --features postgres -- --store "postgres://me@127.0.0.1/test"
//!
//! Without `--nodes` the lock is on five in-process masters. Without `--store` the balance is in this process.
//! `client.rs` contains the part that your own program would have. `store.rs` contains the check, for each kind of
//! store.

mod client;
mod store;

use std::{error::Error, sync::mpsc, thread, time::Duration};

use client::Client;
use quorate::MemoryNode;
use store::Store;

/// Short, so that the example runs quickly. The default is 10 s.
pub(crate) const TTL: Duration = Duration::from_millis(600);
/// The pause: a stopped process, a long garbage collection or a suspended laptop.
const PAUSE: Duration = Duration::from_millis(1500);

#[derive(Clone)]
pub(crate) enum Masters {
    InProcess(Vec<MemoryNode>),
    Servers(Vec<String>),
}

fn main() -> Result<(), Box<dyn Error>> {
    let (masters, store) = arguments()?;
    Store::open(&store, false)?.create_tables()?;
    for checks in [false, true] {
        let store = Store::open(&store, checks)?;
        println!(
            "\n-- The store {}",
            if checks {
                "checks tokens"
            } else {
                "takes whatever comes"
            }
        );
        story(&masters, store)?;
    }
    Ok(())
}

fn story(masters: &Masters, store: Store) -> Result<(), Box<dyn Error>> {
    store.deposit(100)?;
    let (locked, when_locked) = mpsc::channel();
    let (woke, when_taken_over) = mpsc::channel();

    // Each client is a thread with its own runtime, so the clients are as separate as two processes.
    let first = thread::spawn({
        let (masters, store) = (masters.clone(), store.clone());
        move || -> Result<(), String> {
            let mut client = Client::connect(&masters).map_err(|error| error.to_string())?;
            let lease = client.lock().map_err(|error| error.to_string())?;
            let balance = client
                .read(&store, &lease)
                .map_err(|error| error.to_string())?;
            println!(
                "first   locks, token {}, and reads a balance of {balance}",
                lease.token()
            );
            let _ = locked.send(());
            // Nothing of this client runs meanwhile: its lease is not renewed, and no timer fires.
            thread::sleep(PAUSE);
            let _ = when_taken_over.recv();
            println!(
                "first   wakes. Its lease is over, and it has not looked: {balance} - 30 = {}",
                balance - 30
            );
            match client.write(&store, &lease, balance - 30) {
                Ok(()) => println!("first   writes {}", balance - 30),
                Err(refused) => println!("first   is refused: {refused}"),
            }
            client.end(lease);
            Ok(())
        }
    });

    when_locked.recv()?;
    println!("first   is paused, for longer than its lease");
    let mut client = Client::connect(masters)?;
    let lease = client.lock()?;
    let balance = client.read(&store, &lease)?;
    println!(
        "second  locks, token {}, and reads a balance of {balance}",
        lease.token()
    );
    client.write(&store, &lease, balance - 50)?;
    println!("second  writes {balance} - 50 = {}", balance - 50);
    client.end(lease);
    let _ = woke.send(());
    first.join().map_err(|_| "the first client panicked")??;

    let end = store.balance()?;
    match end {
        50 => println!(
            "The balance is 50: only the second one's payment was made, and the first one knows."
        ),
        70 => {
            println!("The balance is 70: the second one's payment of 50 is lost, and nobody knows.")
        }
        other => println!("The balance is {other}"),
    }
    let right = if store.checks() { 50 } else { 70 };
    assert_eq!(end, right, "the story has another end");
    Ok(())
}

fn arguments() -> Result<(Masters, String), String> {
    let mut masters = Masters::InProcess((0..5).map(|_| MemoryNode::new()).collect());
    let mut store = String::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--nodes" => {
                masters = Masters::Servers(value()?.split(',').map(str::to_owned).collect())
            }
            "--store" => store = value()?,
            _ => {
                return Err(format!(
                    "{word}: there are --nodes URL,URL,.. and --store URL"
                ));
            }
        }
    }
    Ok((masters, store))
}
