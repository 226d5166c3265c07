//! The units or permits that a request takes, and holds while it is served.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{Either, select};

use super::{Denied, Rejected};
use crate::{Decision, Error, Lease, LossReason, Lost, RateLimiter, Semaphore};

/// Units or permits on their way.
pub(super) type Taking<H> = Pin<Box<dyn Future<Output = Result<H, Rejected>> + Send>>;

/// Units or permits, taken at once or on their way.
pub enum Taken<H> {
    /// Taken at once.
    Now(H),
    /// On its way.
    Later(Taking<H>),
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::RateLimiter {}
    impl Sealed for crate::Semaphore {}
}

/// A limit that a layer can enforce: a [`RateLimiter`] or a [`Semaphore`]. It is sealed.
pub trait Limit: sealed::Sealed + Clone {
    /// The value that a request holds while it is served.
    #[doc(hidden)]
    type Held: Holds + Send + 'static;

    #[doc(hidden)]
    fn keyed(&self, key: &str) -> Self;

    /// Takes `n`, which is not zero, within `wait`.
    #[doc(hidden)]
    fn take(&self, n: u32, wait: Duration) -> Taken<Self::Held>;
}

/// A value that can be lost while it is held.
pub trait Holds: Unpin {
    /// Ready with the reason once it is lost.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Error>;

    /// The answer of the rate limiter, if it is one and was asked.
    fn decision(&self) -> Option<&Decision> {
        None
    }
}

// ---- units ----------------------------------------------------------------------------------

/// Units, which are used once the request is on its way.
#[derive(Debug)]
pub struct Used(Option<Decision>);

impl Holds for Used {
    fn poll_lost(&mut self, _: &mut Context<'_>) -> Poll<Error> {
        Poll::Pending
    }

    fn decision(&self) -> Option<&Decision> {
        self.0.as_ref().filter(|decision| !decision.is_guess())
    }
}

impl Limit for RateLimiter {
    type Held = Used;

    fn keyed(&self, key: &str) -> Self {
        Self::keyed(self, key)
    }

    fn take(&self, n: u32, wait: Duration) -> Taken<Used> {
        match self.at_once(n) {
            Some(decision) => Taken::Now(Used(Some(decision))),
            None => Taken::Later(Box::pin(spend(self.clone(), n, wait))),
        }
    }
}

async fn spend(limiter: RateLimiter, n: u32, wait: Duration) -> Result<Used, Rejected> {
    let end = limiter.end_of(wait);
    let decision = limiter.check_n(n).await?;
    if decision.is_allowed() {
        return Ok(Used(Some(decision)));
    }
    // A request that cannot be served in time is rejected now.
    if decision.wait() > wait {
        return Err(Rejected::Denied(Denied::rate(decision)));
    }
    let waits = Box::pin(limiter.until_n_ready(n));
    match select(waits, pin!(limiter.rest_until(end))).await {
        Either::Left((ready, _)) => {
            ready?;
            return Ok(Used(None));
        }
        Either::Right((over, waits)) => {
            // The next caller must not queue behind this one.
            drop(waits);
            over?;
        }
    }
    // Says how long to wait from now. It mostly asks no master.
    let decision = limiter.check_n(n).await?;
    match decision.is_allowed() {
        true => Ok(Used(Some(decision))),
        false => Err(Rejected::Denied(Denied::rate(decision))),
    }
}

// ---- permits --------------------------------------------------------------------------------

/// One or more permits.
pub struct Permits {
    lease: Lease,
    lost: Pin<Box<dyn Future<Output = LossReason> + Send>>,
}

impl Holds for Permits {
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        // The clock is checked too, because the task may have slept through the notice.
        let lost = match self.lease.lost_now() {
            Some(lost) => lost,
            None => match self.lost.as_mut().poll(cx) {
                Poll::Ready(reason) => Lost { reason },
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(lost.into())
    }
}

impl From<Lease> for Permits {
    fn from(lease: Lease) -> Self {
        let watch = lease.watch();
        let lost = Box::pin(async move { watch.lost().await });
        Self { lease, lost }
    }
}

impl Limit for Semaphore {
    type Held = Permits;

    fn keyed(&self, key: &str) -> Self {
        Self::keyed(self, key)
    }

    fn take(&self, n: u32, wait: Duration) -> Taken<Permits> {
        Taken::Later(Box::pin(acquire(self.clone().wait_timeout(wait), n, wait)))
    }
}

async fn acquire(semaphore: Semaphore, n: u32, wait: Duration) -> Result<Permits, Rejected> {
    let denied = || Rejected::Denied(Denied::permits(semaphore.limit()));
    let lease = match n {
        1 if wait.is_zero() => semaphore.try_acquire().await?.ok_or_else(denied)?,
        _ => {
            let lease = match n {
                1 => semaphore.acquire().await,
                n => semaphore.acquire_many(n).await,
            };
            match lease {
                // For several permits: the right to gather, or a permit, was lost before all were there.
                Err(Error::Held(_) | Error::Lost(_)) => return Err(denied()),
                lease => lease?,
            }
        }
    };
    Ok(lease.into())
}
