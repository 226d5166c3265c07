//! A layer that holds a permit during each request.

use std::{fmt, time::Duration};

use tower_layer::Layer;

use super::{Fails, Limited, One, Rejected, Whole, service::Terms};
use crate::Semaphore;

/// Holds a permit of a [`Semaphore`] during each request, so no more requests than its limit are served at a time, over
/// all instances of a service.
///
/// To limit requests per interval, use a [`RateLimitLayer`](super::RateLimitLayer).
///
/// The permit is given back, in the background, when the response future ends or is dropped. That is when the handler
/// has made its response, has panicked, or the client has hung up. A body that is streamed after that is not covered.
///
/// If the permit is lost meanwhile (the masters are gone, this process was paused), the request is dropped and
/// rejected, as [`Semaphore::run`] drops its work: somebody else may have the permit. All settings of the semaphore
/// count, except that [`wait`](Self::wait) replaces its `wait_timeout`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use quorate::{Quorum, tower::{ConcurrencyLimitLayer, Error}};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// let exports = Quorum::in_memory(3).semaphore("exports", 1);
/// let mut service = ServiceBuilder::new()
///     .layer(ConcurrencyLimitLayer::new(exports.clone()))
///     .service(service_fn(async |_: ()| Ok::<_, std::io::Error>("exported")));
///
/// let elsewhere = exports.acquire().await?;
/// let denied = service.ready().await?.call(()).await;
/// assert!(matches!(denied, Err(Error::Denied(_))), "too many requests: at most 1 at a time");
/// elsewhere.release().await?;
/// assert_eq!(service.ready().await?.call(()).await?, "exported");
/// # Ok(()) }
/// ```
///
/// # Errors of the service
/// - [`Error::Denied`](super::Error::Denied) if no permit is free, or becomes free within [`wait`](Self::wait).
/// - [`Error::Quorum`](super::Error::Quorum) with the errors of [`Semaphore::acquire`], and `Lost`.
/// - [`Error::Inner`](super::Error::Inner) with the errors of the inner service.
///
/// With [`reject_with`](Self::reject_with) there are only the errors of the inner service, as they are.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is around a service"]
pub struct ConcurrencyLimitLayer<K = Whole, C = One, R = Fails>(Terms<Semaphore, K, C, R>);

impl ConcurrencyLimitLayer {
    /// Takes one permit for each request, without waiting. A request that is denied gets an error. Call
    /// [`Semaphore::validate`] before.
    pub fn new(semaphore: Semaphore) -> Self {
        Self(Terms::new(semaphore))
    }
}

impl<K, C, R> ConcurrencyLimitLayer<K, C, R> {
    /// Gives each key all the permits, by itself ([`Semaphore::keyed`]), such as each customer or each address.
    /// Default: one semaphore for all requests.
    ///
    /// Let the key be something that the caller cannot choose freely, as for
    /// [`RateLimitLayer::key`](super::RateLimitLayer::key). Do not [`resize`](Semaphore::resize) a semaphore with keys:
    /// the handle that is made for each request knows only the limit from the start.
    pub fn key<F, Req, Key>(self, key: F) -> ConcurrencyLimitLayer<F, C, R>
    where
        F: Fn(&Req) -> Key,
        Key: AsRef<str>,
    {
        ConcurrencyLimitLayer(self.0.key(key))
    }

    /// How many permits the request needs. Default: 1. With zero the request is let through and nobody is asked.
    ///
    /// More than one permit is taken as [`Semaphore::acquire_many`] does: one caller at a time gathers them. So without
    /// [`wait`](Self::wait) a request may be denied although permits are free, because another one is gathering.
    pub fn cost<F, Req>(self, cost: F) -> ConcurrencyLimitLayer<K, F, R>
    where
        F: Fn(&Req) -> u32,
    {
        ConcurrencyLimitLayer(self.0.cost(cost))
    }

    /// How long a request may wait for its permit, in the queue over all instances, in the order that
    /// [`Semaphore::acquire`] keeps. Default: zero, so a request is let through now or not at all.
    pub fn wait(self, d: Duration) -> Self {
        Self(self.0.wait(d))
    }

    /// Answers a rejected request with a response in place of an error. [`Rejected::into_response`] makes a plain text
    /// with status and headers; a closure can make any other response. The service then has only the errors of the
    /// inner service.
    pub fn reject_with<F, Res>(self, reject: F) -> ConcurrencyLimitLayer<K, C, F>
    where
        F: Fn(Rejected) -> Res,
    {
        ConcurrencyLimitLayer(self.0.reject_with(reject))
    }
}

impl<S, K: Clone, C: Clone, R: Clone> Layer<S> for ConcurrencyLimitLayer<K, C, R> {
    type Service = Limited<S, Semaphore, K, C, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited::new(inner, self.0.clone())
    }
}

impl<K, C, R> fmt::Debug for ConcurrencyLimitLayer<K, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConcurrencyLimitLayer")
            .field(&self.0)
            .finish()
    }
}
