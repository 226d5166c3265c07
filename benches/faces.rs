//! The cost that a layer adds to a request, around a service that does nothing, on real servers. A request that is
//! decided in this process is compared with tower_governor (which counts only in this process). A request that takes a
//! permit is compared with the permit alone.
//!
//! The rounds are interleaved on one machine, and the figures are medians over the rounds. Each figure is followed by
//! its target.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    convert::Infallible,
    fmt::Debug,
    future::{Ready, ready},
    sync::Arc,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use axum::body::Body;
use http::{Request, Response, StatusCode, Uri};
use quorate::{
    Quorum, Quota, RateLimiter, Semaphore,
    tower::{ConcurrencyLimitLayer, RateLimitLayer},
};
use support::{Fleet, Kind};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_governor::{
    GovernorError, GovernorLayer,
    governor::GovernorConfigBuilder,
    key_extractor::{GlobalKeyExtractor, KeyExtractor},
};

const PERIOD: Duration = Duration::from_secs(10);
/// No request is denied, because the bench measures the cost of the decision.
const PLENTY: u32 = 1_000_000_000;
const BLOCK: u32 = 10_000;
const ROUNDS: usize = 15;
const REQUESTS: usize = 200_000;
const CUSTOMERS: usize = 100;
const TASKS: usize = 64;
/// The number of requests that take a permit.
const FEW: usize = 1_920;
const PERMITS: u32 = 256;

/// Microseconds of CPU time per request: with one task, and with many at once.
#[derive(Clone, Copy)]
struct Cost {
    one: f64,
    many: f64,
}

fn main() {
    let fleet = Fleet::start(3, Kind::Redis);
    println!("N = 3, servers on the same machine; (target)");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let quorum = Quorum::connect(fleet.urls()).await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        quorum.voting(PERIOD).await.unwrap();
        local(&quorum).await;
        permits(&quorum.semaphore("bench", PERMITS)).await;
        quorum.shutdown().await;
    });
}

// ---- the service ----------------------------------------------------------------------------

fn reply(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}

fn customer(request: &Request<Body>) -> String {
    request.uri().path().to_owned()
}

/// The same key for the other library.
#[derive(Clone, Debug)]
struct Customer;

impl KeyExtractor for Customer {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        Ok(request.uri().path().to_owned())
    }
}

/// Sends requests one after the other.
async fn ask<S>(mut service: S, uris: Arc<Vec<Uri>>, times: usize)
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Error: Debug,
{
    for i in 0..times {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uris[i % uris.len()].clone();
        let ready = service.ready().await.unwrap();
        let response = ready.call(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
}

async fn cost<S>(service: &S, uris: &Arc<Vec<Uri>>, times: usize) -> Cost
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Debug,
    S::Future: Send,
{
    let began = Instant::now();
    ask(service.clone(), Arc::clone(uris), times).await;
    let one = began.elapsed().as_secs_f64() * 1e6 / times as f64;
    let began = Instant::now();
    let task = |_| tokio::spawn(ask(service.clone(), Arc::clone(uris), times / TASKS));
    for task in (0..TASKS).map(task).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let many = began.elapsed().as_secs_f64() * 1e6 / times as f64;
    let cores = available_parallelism().unwrap().get() as f64;
    Cost {
        one,
        many: many * cores,
    }
}

// ---- decided in this process ------------------------------------------------------------------

async fn local(quorum: &Quorum) {
    let limiter = |name: &str| -> RateLimiter {
        let quota = Quota::new(PLENTY, PERIOD);
        quorum.rate_limiter(name, quota).block(BLOCK)
    };
    let bare = service_fn(reply);
    let limited = RateLimitLayer::new(limiter("all")).layer(bare);
    let keyed = RateLimitLayer::new(limiter("each"))
        .key(customer)
        .layer(bare);
    let mut config = GovernorConfigBuilder::default();
    config.per_nanosecond(1).burst_size(PLENTY);
    let all = config.key_extractor(GlobalKeyExtractor).finish().unwrap();
    let each = config.key_extractor(Customer).finish().unwrap();
    let governed = GovernorLayer::new(all).layer(bare);
    let governed_each = GovernorLayer::new(each).layer(bare);

    let uris = (0..CUSTOMERS).map(|n| format!("/customers/{n}").parse().unwrap());
    let uris: Arc<Vec<Uri>> = Arc::new(uris.collect());
    let mut all: [Vec<Cost>; 5] = Default::default();
    for _ in 0..=ROUNDS {
        all[0].push(cost(&bare, &uris, REQUESTS).await);
        all[1].push(cost(&limited, &uris, REQUESTS).await);
        all[2].push(cost(&governed, &uris, REQUESTS).await);
        all[3].push(cost(&keyed, &uris, REQUESTS).await);
        all[4].push(cost(&governed_each, &uris, REQUESTS).await);
    }
    let [bare, layers @ ..] = all.map(median);
    println!("a request that is decided here, µs of a core: of one task, of {TASKS} at once");
    println!(
        "  {:36} {:>7.3} {:>7.3}",
        "nothing around it", bare.one, bare.many
    );
    for (name, layer) in [
        ("RateLimitLayer, blocks, adds (5)", layers[0]),
        ("tower_governor adds", layers[1]),
        ("RateLimitLayer, 100 keys, adds (5)", layers[2]),
        ("tower_governor, 100 keys, adds", layers[3]),
    ] {
        let (one, many) = (layer.one - bare.one, layer.many - bare.many);
        println!("  {name:36} {one:>7.3} {many:>7.3}");
    }
}

// ---- a permit -------------------------------------------------------------------------------

async fn permits(semaphore: &Semaphore) {
    let alone = service_fn({
        let semaphore = semaphore.clone();
        move |request| {
            let permit = semaphore.try_acquire();
            async move {
                let permit = permit.await.unwrap().expect("a free permit");
                let response = reply(request).await;
                drop(permit);
                response
            }
        }
    });
    let layer = ConcurrencyLimitLayer::new(semaphore.clone()).layer(service_fn(reply));
    let uris = Arc::new(vec![Uri::from_static("/export")]);
    let mut all: [Vec<Cost>; 2] = Default::default();
    for _ in 0..=ROUNDS {
        all[0].push(cost(&alone, &uris, FEW).await);
        all[1].push(cost(&layer, &uris, FEW).await);
    }
    let [alone, layer] = all.map(median);
    println!("a request that takes a permit, µs of all cores: of one task, of {TASKS} at once");
    for (name, cost) in [
        ("try_acquire, then drop", alone),
        ("ConcurrencyLimitLayer", layer),
    ] {
        println!("  {name:36} {:>7.1} {:>7.1}", cost.one, cost.many);
    }
    println!(
        "  {:36} {:>7.2} {:>7.2}",
        "the layer is slower by (1.05 x)",
        layer.one / alone.one,
        layer.many / alone.many
    );
}

/// The median without the first round, which has to warm up.
fn median(costs: Vec<Cost>) -> Cost {
    let middle = |of: fn(&Cost) -> f64| {
        let mut all: Vec<f64> = costs.iter().skip(1).map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Cost {
        one: middle(|cost| cost.one),
        many: middle(|cost| cost.many),
    }
}
