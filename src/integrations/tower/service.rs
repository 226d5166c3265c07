//! The service that two of the layers make.

use std::{
    fmt, mem,
    task::{Context, Poll},
    time::Duration,
};

use tower_service::Service;

use super::{
    CostOf, Fails, KeyOf, Limit, One, Reject, ResponseFuture, Whole, WithHeaders, held::Taken,
};

/// A service whose requests need a unit or a permit: made by [`RateLimitLayer`](super::RateLimitLayer) and
/// [`ConcurrencyLimitLayer`](super::ConcurrencyLimitLayer).
#[derive(Clone)]
pub struct Limited<S, L, K = Whole, C = One, R = Fails> {
    inner: S,
    terms: Terms<L, K, C, R>,
}

/// The terms on which a request is let through.
#[derive(Clone)]
pub(super) struct Terms<L, K, C, R> {
    limit: L,
    wait: Duration,
    key: K,
    cost: C,
    reject: R,
}

impl<L> Terms<L, Whole, One, Fails> {
    pub(super) fn new(limit: L) -> Self {
        Self {
            limit,
            wait: Duration::ZERO,
            key: Whole,
            cost: One,
            reject: Fails,
        }
    }
}

impl<L, K, C, R> Terms<L, K, C, R> {
    pub(super) fn key<F>(self, key: F) -> Terms<L, F, C, R> {
        Terms {
            limit: self.limit,
            wait: self.wait,
            key,
            cost: self.cost,
            reject: self.reject,
        }
    }

    pub(super) fn cost<F>(self, cost: F) -> Terms<L, K, F, R> {
        Terms {
            limit: self.limit,
            wait: self.wait,
            key: self.key,
            cost,
            reject: self.reject,
        }
    }

    pub(super) fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    pub(super) fn reject_with<F>(self, reject: F) -> Terms<L, K, C, F> {
        Terms {
            limit: self.limit,
            wait: self.wait,
            key: self.key,
            cost: self.cost,
            reject,
        }
    }
}

impl<L, K, C, R> Terms<L, K, C, R> {
    pub(super) fn with_headers(self) -> Terms<L, K, C, WithHeaders<R>> {
        Terms {
            limit: self.limit,
            wait: self.wait,
            key: self.key,
            cost: self.cost,
            reject: WithHeaders(self.reject),
        }
    }
}

impl<S, L, K, C, R> Limited<S, L, K, C, R> {
    pub(super) fn new(inner: S, terms: Terms<L, K, C, R>) -> Self {
        Self { inner, terms }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

// Closures do not implement `Debug`.
impl<L: fmt::Debug, K, C, R> fmt::Debug for Terms<L, K, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terms")
            .field("limit", &self.limit)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, L: fmt::Debug, K, C, R> fmt::Debug for Limited<S, L, K, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited")
            .field("inner", &self.inner)
            .field("terms", &self.terms)
            .finish()
    }
}

impl<S, L, K, C, R, Req> Service<Req> for Limited<S, L, K, C, R>
where
    S: Service<Req> + Clone,
    L: Limit,
    K: KeyOf<Req>,
    C: CostOf<Req>,
    R: Reject<S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = R::Error;
    type Future = ResponseFuture<S, Req, L, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(R::inner)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let terms = &self.terms;
        let reject = terms.reject.clone();
        let n = terms.cost.cost(&request);
        if n == 0 {
            return ResponseFuture::calling(self.inner.call(request), None, reject);
        }
        let taken = terms.key.with(&request, |key| match key {
            None => terms.limit.take(n, terms.wait),
            Some(key) => terms.limit.keyed(key).take(n, terms.wait),
        });
        match taken {
            Taken::Now(held) => {
                ResponseFuture::calling(self.inner.call(request), Some(held), reject)
            }
            Taken::Later(taking) => {
                // The ready service serves this request. Its clone, which stays, may not be ready.
                let clone = self.inner.clone();
                let inner = mem::replace(&mut self.inner, clone);
                ResponseFuture::taking(taking, (inner, request), reject)
            }
        }
    }
}
