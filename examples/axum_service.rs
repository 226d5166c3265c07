//! Two instances of an axum service share one limit: 20 requests in 10 s for each customer, and 2 exports at a time.
//! Writes carry a fencing token, and the store refuses a write with a stale token.
//!
//!     cargo run --example axum_service --features tower
//!     QUORATE_NODES=redis://.. cargo run --example axum_service --features tower
//!     QUORATE_NODES=redis://.. cargo run --example axum_service --features tower -- 127.0.0.1:8080
//!
//! With an address, the program is one instance and runs until Ctrl-C. Without an address, it starts two instances and
//! sends them requests itself. `axum_service/service.rs` contains the part that your own program would have.

#[path = "axum_service/service.rs"]
mod service;

use std::{
    error::Error,
    sync::{Arc, atomic::Ordering},
};

use axum::http::{
    StatusCode,
    header::{HeaderValue, RETRY_AFTER},
};
use futures::future::try_join_all;
use quorate::{MemoryNode, Quorum};
use reqwest::Client;
use service::{EXPORTS, Instance, LIMIT, Store};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let masters: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
    let boss = connect(&masters).await?;
    let store = Arc::new(Store::default());
    if let Some(address) = std::env::args().nth(1) {
        let instance = Instance::start(&address, boss, store).await?;
        println!("serving on {}", instance.url);
        tokio::signal::ctrl_c().await?;
        return instance.stop().await;
    }

    let a = Instance::start("127.0.0.1:0", connect(&masters).await?, Arc::clone(&store)).await?;
    let b = Instance::start("127.0.0.1:0", connect(&masters).await?, Arc::clone(&store)).await?;
    // reqwest with its default features does not need this line. Here it is built without a TLS provider, and it wants
    // one even for http.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().build()?;
    many_requests(&client, [&a.url, &b.url]).await?;
    many_exports(&client, [&a.url, &b.url], &store).await?;
    a_late_write(&client, [&a.url, &b.url], &boss).await?;

    a.stop().await?;
    b.stop().await?;
    boss.shutdown().await;
    println!("both have stopped");
    Ok(())
}

async fn connect(masters: &[MemoryNode]) -> Result<Quorum, quorate::Error> {
    match std::env::var_os("QUORATE_NODES") {
        Some(_) => Quorum::from_env().await,
        None => Quorum::builder().nodes(masters).connect().await,
    }
}

async fn many_requests(client: &Client, urls: [&String; 2]) -> Result<(), Failure> {
    let (mut served, mut wait) = (0, Vec::<HeaderValue>::new());
    for url in urls.into_iter().cycle().take(30) {
        let response = client.get(url).header("x-customer", "ann").send().await?;
        match (response.status(), response.headers().get(RETRY_AFTER)) {
            (StatusCode::OK, _) => served += 1,
            (StatusCode::TOO_MANY_REQUESTS, Some(after)) => wait.push(after.clone()),
            (other, _) => println!("unexpected: {other}"),
        }
    }
    println!("of 30 requests of ann to both, {served} were served");
    if let Some(after) = wait.last() {
        println!("{} got 429, Retry-After: {}", wait.len(), after.to_str()?);
    }
    let bob = client
        .get(urls[1])
        .header("x-customer", "bob")
        .send()
        .await?;
    println!("bob has a limit of his own: {}", bob.status());
    match served <= LIMIT {
        true => println!("That is not above {LIMIT}"),
        false => println!("unexpected: that is above {LIMIT}"),
    }
    Ok(())
}

async fn many_exports(client: &Client, urls: [&String; 2], store: &Store) -> Result<(), Failure> {
    let asked = urls.into_iter().cycle().take(8).map(|url| {
        let request = client
            .get(format!("{url}/export"))
            .header("x-customer", "joe");
        request.send()
    });
    let answers = try_join_all(asked).await?;
    let done = answers
        .iter()
        .filter(|answer| answer.status() == StatusCode::OK);
    let most = store.most.load(Ordering::Relaxed);
    println!(
        "of 8 exports on both, {} were done, never more than {most} at a time",
        done.count()
    );
    if most > EXPORTS {
        println!("unexpected: {EXPORTS} may run");
    }
    Ok(())
}

/// A worker is paused, and its lock goes to another worker. Then the first one wakes and writes.
async fn a_late_write(client: &Client, urls: [&String; 2], quorum: &Quorum) -> Result<(), Failure> {
    let mutex = quorum.mutex("invoice:42");
    let first = mutex.lock().await?;
    let old = first.token();
    first.release().await?; // this stands for a pause that is longer than the lease
    let second = mutex.lock().await?;
    for (url, token, right) in [
        (
            format!("{}/invoices/42", urls[0]),
            second.token(),
            StatusCode::NO_CONTENT,
        ),
        (
            format!("{}/invoices/042", urls[1]),
            old,
            StatusCode::PRECONDITION_FAILED,
        ),
    ] {
        let request = client.put(url).body("paid");
        let request = request
            .header("x-customer", "eve")
            .header("fencing-token", token.to_string());
        let response = request.send().await?;
        let status = response.status();
        println!("a write with token {token}: {status}");
        print!("{}", response.text().await?); // the reason for the refusal
        if status != right {
            println!("unexpected: it should be {right}");
        }
    }
    second.release().await?;
    Ok(())
}
