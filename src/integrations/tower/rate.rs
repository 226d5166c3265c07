//! A layer that takes units before each request.

use std::{fmt, time::Duration};

use tower_layer::Layer;

use super::{Fails, Limited, One, Rejected, Whole, WithHeaders, service::Terms};
#[cfg(doc)]
use crate::Decision;
use crate::RateLimiter;

/// Takes units of a [`RateLimiter`] before each request, so no more requests than its quota allows go on in any
/// interval, over all instances of a service.
///
/// To limit how many requests are served at a time, use a [`ConcurrencyLimitLayer`](super::ConcurrencyLimitLayer).
///
/// A unit is used when the request goes to the inner service, whatever happens there. A rejected request uses no unit,
/// unless an answer of a master was lost. With [blocks](RateLimiter::block) most requests ask no master.
///
/// [`RateLimiter::on_outage`] sets what happens while no master can answer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use quorate::{Quorum, Quota, tower::{Error, RateLimitLayer}};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// let supplier = Quorum::in_memory(3).rate_limiter("supplier", Quota::per_minute(2));
/// let mut client = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(supplier))
///     .service(service_fn(async |order: u32| Ok::<_, std::io::Error>(format!("order {order} placed"))));
///
/// for order in [1, 2] {
///     client.ready().await?.call(order).await?;
/// }
/// match client.ready().await?.call(3).await {
///     Err(Error::Denied(denied)) => println!("{denied}"), // too many requests: try again in 62 s
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
///
/// # Errors of the service
/// - [`Error::Denied`](super::Error::Denied) if there are not enough units, or will not be within [`wait`](Self::wait).
/// - [`Error::Quorum`](super::Error::Quorum) with the errors of [`RateLimiter::check_n`]. Among them is `Invalid` for a
///   key that has more than 512 bytes together with the name, and for a cost above the limit.
/// - [`Error::Inner`](super::Error::Inner) with the errors of the inner service.
///
/// With [`reject_with`](Self::reject_with) there are only the errors of the inner service, as they are.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is around a service"]
pub struct RateLimitLayer<K = Whole, C = One, R = Fails>(Terms<RateLimiter, K, C, R>);

impl RateLimitLayer {
    /// Takes one unit for each request, without waiting. A request that is denied gets an error. Call
    /// [`RateLimiter::validate`] before.
    pub fn new(limiter: RateLimiter) -> Self {
        Self(Terms::new(limiter))
    }
}

impl<K, C> RateLimitLayer<K, C> {
    /// Answers a rejected request with a response in place of an error. [`Rejected::into_response`] makes a plain text
    /// with status and headers; a closure can make any other response. The service then has only the errors of the
    /// inner service.
    pub fn reject_with<F, Res>(self, reject: F) -> RateLimitLayer<K, C, F>
    where
        F: Fn(Rejected) -> Res,
    {
        RateLimitLayer(self.0.reject_with(reject))
    }
}

impl<K, C, R> RateLimitLayer<K, C, R> {
    /// Adds the limit's [headers](Decision::headers) to each HTTP response, of allowed requests too. Call it after
    /// [`reject_with`](Self::reject_with).
    ///
    /// A request that [waited](Self::wait) for its units gets none, because the masters do not say what is left then;
    /// nor does one without a cost, or one that an outage let through. A response that has such headers already keeps its
    /// own. The number that remains of a limit of at most 16 units is the one that this process knows: others may have
    /// used more.
    pub fn with_headers(self) -> RateLimitLayer<K, C, WithHeaders<R>> {
        RateLimitLayer(self.0.with_headers())
    }

    /// Gives each key the whole quota, by itself ([`RateLimiter::keyed`]), such as each customer or each address.
    /// Default: one limit for all requests.
    ///
    /// Let the key be something that the caller cannot choose freely. A caller that makes up a new key for each request
    /// is never limited, and each key stays on a master for the interval.
    pub fn key<F, Req, Key>(self, key: F) -> RateLimitLayer<F, C, R>
    where
        F: Fn(&Req) -> Key,
        Key: AsRef<str>,
    {
        RateLimitLayer(self.0.key(key))
    }

    /// How many units the request needs. Default: 1. With zero, as for probes, the request is let through and nobody is
    /// asked.
    pub fn cost<F, Req>(self, cost: F) -> RateLimitLayer<K, F, R>
    where
        F: Fn(&Req) -> u32,
    {
        RateLimitLayer(self.0.cost(cost))
    }

    /// How long a request may wait in the queue for its units. Default: zero, so a request is let through now or not at
    /// all. A request that is not expected to be served within this time is rejected at once.
    pub fn wait(self, d: Duration) -> Self {
        Self(self.0.wait(d))
    }
}

impl<S, K: Clone, C: Clone, R: Clone> Layer<S> for RateLimitLayer<K, C, R> {
    type Service = Limited<S, RateLimiter, K, C, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited::new(inner, self.0.clone())
    }
}

impl<K, C, R> fmt::Debug for RateLimitLayer<K, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitLayer").field(&self.0).finish()
    }
}
