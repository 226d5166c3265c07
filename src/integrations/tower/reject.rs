//! The fate of a request that is not let through.

use super::{Error, Rejected};

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
