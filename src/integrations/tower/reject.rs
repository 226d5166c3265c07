//! The fate of a request that is not let through.

use http::Response;

use super::{Error, Rejected, error::add_headers};
use crate::Decision;

/// Turns a rejected request into an error or a response: [`Fails`], or a closure that makes a response.
pub trait Reject<Res, E> {
    /// The error of the limited service.
    type Error;

    /// Passes on an error of the inner service.
    fn inner(error: E) -> Self::Error;

    /// Rejects a request.
    ///
    /// # Errors
    /// The error of the limited service.
    fn reject(&self, rejected: Rejected) -> Result<Res, Self::Error>;

    /// Passes on a response of the inner service. `decision` is what the rate limiter said about its request, if it was
    /// asked and nothing was waited for.
    fn passed(&self, response: Res, decision: Option<&Decision>) -> Res {
        let _ = decision;
        response
    }
}

/// Rejects with an error: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fails;

impl<Res, E> Reject<Res, E> for Fails {
    type Error = Error<E>;

    fn inner(error: E) -> Self::Error {
        Error::Inner(error)
    }

    fn reject(&self, rejected: Rejected) -> Result<Res, Self::Error> {
        Err(rejected.into())
    }
}

/// Rejects with a response: [`RateLimitLayer::reject_with`](super::RateLimitLayer::reject_with).
impl<Res, E, F> Reject<Res, E> for F
where
    F: Fn(Rejected) -> Res,
{
    type Error = E;

    fn inner(error: E) -> E {
        error
    }

    fn reject(&self, rejected: Rejected) -> Result<Res, E> {
        Ok(self(rejected))
    }
}

/// Adds the limit's headers to each response: [`RateLimitLayer::with_headers`](super::RateLimitLayer::with_headers).
#[derive(Clone, Copy, Debug)]
pub struct WithHeaders<R>(pub(super) R);

impl<B, E, R> Reject<Response<B>, E> for WithHeaders<R>
where
    R: Reject<Response<B>, E>,
{
    type Error = R::Error;

    fn inner(error: E) -> Self::Error {
        R::inner(error)
    }

    fn reject(&self, rejected: Rejected) -> Result<Response<B>, Self::Error> {
        let decision = match &rejected {
            Rejected::Denied(denied) => denied.decision().cloned(),
            Rejected::Quorum(_) => None,
        };
        let mut response = self.0.reject(rejected)?;
        if let Some(decision) = decision {
            add_headers(response.headers_mut(), &decision);
        }
        Ok(response)
    }

    fn passed(&self, mut response: Response<B>, decision: Option<&Decision>) -> Response<B> {
        if let Some(decision) = decision {
            add_headers(response.headers_mut(), decision);
        }
        self.0.passed(response, decision)
    }
}
