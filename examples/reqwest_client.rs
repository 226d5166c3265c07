//! A client of a supplier's HTTP API with a built-in rate limit. Every method waits for its turn, and all processes
//! together keep to the limit.
//!
//!     cargo run --example reqwest_client --features tower
//!     QUORATE_NODES=redis://.. cargo run --example reqwest_client --features tower
//!
//! Four clients run here, as tasks with a `Quorum` each. The supplier is a tiny server that counts calls and complains
//! about too many.

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use quorate::{
    MemoryNode, Quorum, Quota, RateLimiter,
    tower::{Error as Failed, Limited, RateLimitLayer},
};
use reqwest::Client;
use tokio::{
    net::TcpListener,
    time::{Instant, timeout_at},
};
use tower::{Service as _, ServiceBuilder, ServiceExt as _};

/// The supplier allows this many calls in any interval.
const ALLOWED: usize = 100;
const INTERVAL: Duration = Duration::from_secs(2);
/// The clients allow themselves fewer, because calls may bunch up on their way and the supplier counts arrivals.
const OURS: u32 = 95;
const CLIENTS: usize = 4;
/// How long the clients make calls.
const CALLING: Duration = Duration::from_secs(5);

type Failure = Box<dyn Error + Send + Sync>;

// ---- the client -----------------------------------------------------------------------------

/// Clones of a client share the limit and the connections.
#[derive(Clone)]
struct Supplier {
    url: String,
    http: Limited<Client, RateLimiter>,
}

impl Supplier {
    fn new(quorum: &Quorum, url: String) -> Result<Self, Failure> {
        let limiter = quorum.rate_limiter("supplier", Quota::new(OURS, INTERVAL));
        limiter.validate()?; // a bad setting is an error now, not an error of each call
        // This timeout starts when the call has got its unit.
        let client = Client::builder().timeout(Duration::from_secs(5)).no_proxy();
        let http = ServiceBuilder::new()
            // `wait` is the longest time that a call may wait for its unit. After that the call fails with `Denied`. It
            // fails at once if it is known that the unit will not be there in time. Without `wait`, each call fails
            // that does not get a unit at once.
            .layer(RateLimitLayer::new(limiter).wait(Duration::from_secs(10)))
            .service(client.build()?);
        Ok(Self { url, http })
    }

    /// Waits for its turn, then asks for the price of an article.
    async fn price(&self, article: u32) -> Result<String, Failed<reqwest::Error>> {
        let mut http = self.http.clone();
        let url = format!("{}/price/{article}", self.url);
        let request = http.get_ref().get(url).build().map_err(Failed::Inner)?;
        // `ready` asks the inner services whether they can take a call. reqwest always can. Others may have no room,
        // and panic if `ready` was not called. `ready` does not take a unit: `call` does.
        let response = http.ready().await?.call(request).await?;
        let response = response.error_for_status().map_err(Failed::Inner)?;
        response.text().await.map_err(Failed::Inner)
    }
}

/// Asks for prices as fast as the limit permits. Returns how many it got.
async fn work(supplier: Supplier) -> Result<u32, Failure> {
    let end = Instant::now() + CALLING;
    let mut prices = 0;
    // The call that is dropped at the end leaves the queue, and takes no unit.
    while let Ok(price) = timeout_at(end, supplier.price(prices)).await {
        match price {
            Ok(_) => prices += 1,
            Err(Failed::Denied(denied)) => println!("unexpected: {denied}"), // other calls were served first, for 10 s
            Err(failed) => return Err(failed.into()),
        }
    }
    Ok(prices)
}

// ---- the supplier ---------------------------------------------------------------------------

/// The times at which calls arrived.
type Calls = Arc<Mutex<Vec<Instant>>>;

async fn price(State(calls): State<Calls>) -> (StatusCode, &'static str) {
    let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    calls.push(Instant::now());
    let lately = calls.iter().rev().take_while(|at| at.elapsed() < INTERVAL);
    match lately.count() <= ALLOWED {
        true => (StatusCode::OK, "12.50"),
        false => (StatusCode::TOO_MANY_REQUESTS, "you call too often"),
    }
}

/// The greatest number of calls in one interval.
fn busiest(calls: &[Instant]) -> usize {
    let counts = calls.iter().enumerate().map(|(i, first)| {
        let after = calls.partition_point(|call| *call < *first + INTERVAL);
        after - i
    });
    counts.max().unwrap_or(0)
}

// ---- the example ----------------------------------------------------------------------------

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // reqwest with its default features does not need this line. Here it is built without a TLS provider, and it wants
    // one even for http.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let calls = Calls::default();
    let app = Router::new().route("/price/{article}", get(price));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = axum::serve(listener, app.with_state(Arc::clone(&calls)));
    let server = tokio::spawn(server.into_future());

    println!(
        "{CLIENTS} clients call for {CALLING:?}. The supplier allows {ALLOWED} calls in {INTERVAL:?}"
    );
    let quorums = connect().await?;
    let mut clients = Vec::new();
    for quorum in &quorums {
        clients.push(tokio::spawn(work(Supplier::new(quorum, url.clone())?)));
    }
    for (i, client) in clients.into_iter().enumerate() {
        println!("number {} got {} prices", i + 1, client.await??);
    }
    for quorum in quorums {
        quorum.shutdown().await;
    }
    server.abort();

    let calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    let busiest = busiest(&calls);
    println!(
        "{} calls in all, {busiest} of them in the busiest interval of {INTERVAL:?}",
        calls.len()
    );
    match busiest <= ALLOWED {
        true => println!("The supplier has nothing to complain of"),
        false => println!("unexpected: that is above {ALLOWED}"),
    }
    Ok(())
}

/// Connects one `Quorum` for each client.
async fn connect() -> Result<Vec<Quorum>, quorate::Error> {
    let mut quorums = Vec::new();
    if std::env::var_os("QUORATE_NODES").is_some() {
        for _ in 0..CLIENTS {
            quorums.push(Quorum::from_env().await?);
        }
        return Ok(quorums);
    }
    let masters: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
    for _ in 0..CLIENTS {
        let quorum = Quorum::builder().nodes(&masters).connect().await?;
        quorums.push(quorum);
    }
    Ok(quorums)
}
