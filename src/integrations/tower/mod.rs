//! Limits as [tower](https://docs.rs/tower) layers: around a service in axum, a client such as `reqwest`, or any other
//! `Service`.
//!
//! | layer | what it does |
//! | --- | --- |
//! | [`RateLimitLayer`] | takes units of a [`RateLimiter`](crate::RateLimiter) before each request |
//! | [`ConcurrencyLimitLayer`] | holds a permit of a [`Semaphore`](crate::Semaphore) during each request |
//! | [`FenceLayer`] | refuses an HTTP request whose [fencing token](crate::FencingToken) is stale |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
//! use axum::{Router, extract::Request, routing::get};
//! use quorate::{Quorum, Quota, tower::{ConcurrencyLimitLayer, RateLimitLayer, Rejected}};
//! use std::time::Duration;
//!
//! #[derive(Clone)]
//! struct Customer(u64); // put into the request by the layer that authenticates; a header may be made up
//!
//! let quorum = Quorum::in_memory(3); // in production: Quorum::connect(["redis://…", …]).await?
//! let api = quorum.rate_limiter("api", Quota::per_minute(600));
//! let exports = quorum.semaphore("exports", 4);
//! api.validate()?; // a bad setting is an error now, and not at each request
//! exports.validate()?;
//!
//! let app: Router = Router::new()
//!     .route("/export", get(|| async { "…" }))
//!     .layer(
//!         ConcurrencyLimitLayer::new(exports) // of all instances together
//!             .wait(Duration::from_secs(2))
//!             .reject_with(Rejected::into_response),
//!     )
//!     .layer(
//!         RateLimitLayer::new(api) // outside the other limit: it is asked first
//!             .key(|request: &Request| match request.extensions().get::<Customer>() {
//!                 Some(Customer(id)) => id.to_string(),
//!                 None => "nobody".to_owned(),
//!             })
//!             .reject_with(Rejected::into_response), // 429 with Retry-After, or 503
//!     ); // the layer that authenticates comes last: axum's last layer is the outermost
//! # let _ = app; Ok(()) }
//! ```
//!
//! # What the two limits have in common
//! - **Nothing is taken before the request is there.** `poll_ready` asks only the inner service. A unit of a
//!   [block](crate::RateLimiter::block) is taken in `call`. Other units and permits are taken when the future of `call`
//!   is polled. While that waits, the inner service stays reserved for this request.
//! - **Clones share the limit**, as do all processes that use the same name on the same masters.
//! - **Nothing waits unless [`wait`](RateLimitLayer::wait) is set.** A request that cannot be let through now is
//!   rejected at once.
//! - **A rejection is an error** of the service, [`Error`]. With [`reject_with`](RateLimitLayer::reject_with) it is a
//!   response, and the service has only the errors of the inner service, such as axum's `Infallible`.
//! - **A dropped future** (the client hung up, a timeout) gives the permit back, and units that were not used yet.
//!
//! [integrations](crate::docs::integrations) says which layer fits which service, and covers deadlines and outages.

mod concurrency;
mod demand;
mod error;
mod fence;
mod future;
mod held;
mod rate;
mod reject;
mod service;

pub use self::{
    concurrency::ConcurrencyLimitLayer,
    demand::{CostOf, KeyOf, One, Whole},
    error::{Denied, Error, Rejected},
    fence::{Fence, FenceFuture, FenceLayer, OfHeader, OfPath, ResourceOf, TokenOf},
    future::ResponseFuture,
    held::Limit,
    rate::RateLimitLayer,
    reject::{Fails, Reject, WithHeaders},
    service::Limited,
};
