//! A rate limiter whose calls block.

use std::{fmt, sync::Arc, time::Duration};

use super::root::Root;
use crate::{Decision, Error, Outage};

/// A distributed rate limiter whose calls block: [`quorate::RateLimiter`](crate::RateLimiter) for threads.
///
/// It is cheap to clone, and clones share what they know. Settings are chained, before the first use.
///
/// ```
/// # fn main() -> Result<(), quorate::Error> {
/// use quorate::{Quota, blocking::Quorum};
///
/// let supplier = Quorum::in_memory(3)?.rate_limiter("supplier", Quota::per_minute(2_000));
/// let order = supplier.run(|| "ordered")?; // waits for a unit, then calls
/// assert_eq!(order, "ordered");
/// let decision = supplier.check()?; // does not wait for one
/// assert!(decision.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a rate limiter does nothing until it is asked"]
pub struct RateLimiter {
    inner: crate::RateLimiter,
    root: Arc<Root>,
}

impl RateLimiter {
    pub(super) fn new(inner: crate::RateLimiter, root: &Arc<Root>) -> Self {
        Self {
            inner,
            root: Arc::clone(root),
        }
    }

    /// How old units may be when they come to the caller, as [`grace`](crate::RateLimiter::grace) of the async one.
    pub fn grace(mut self, d: Duration) -> Self {
        self.inner = self.inner.grace(d);
        self
    }

    /// Takes `k` units at a time, and decides locally until they are used up, as [`block`](crate::RateLimiter::block)
    /// of the async one.
    pub fn block(mut self, k: u32) -> Self {
        self.inner = self.inner.block(k);
        self
    }

    /// The answer while no master can say, as [`on_outage`](crate::RateLimiter::on_outage) of the async one.
    pub fn on_outage(mut self, outage: Outage) -> Self {
        self.inner = self.inner.on_outage(outage);
        self
    }

    /// Returns the limiter for one key, as [`keyed`](crate::RateLimiter::keyed) of the async one.
    pub fn keyed(&self, key: impl AsRef<str>) -> Self {
        Self::new(self.inner.keyed(key), &self.root)
    }

    /// Checks the name and the settings without asking any master. It does not wait.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.inner.validate()
    }

    /// Takes one unit, if there is one now: [`check_n(1)`](Self::check_n).
    ///
    /// # Errors
    /// As for [`check_n`](Self::check_n).
    pub fn check(&self) -> Result<Decision, Error> {
        self.check_n(1)
    }

    /// Takes `n` units if there are that many now, as [`check_n`](crate::RateLimiter::check_n) of the async one.
    /// Otherwise it takes none, and says how long to wait.
    ///
    /// # Errors
    /// As there, and `Invalid` in async code.
    pub fn check_n(&self, n: u32) -> Result<Decision, Error> {
        self.root.wait(self.inner.check_n(n))?
    }

    /// Waits for one unit, and takes it: [`until_n_ready(1)`](Self::until_n_ready).
    ///
    /// # Errors
    /// As for [`until_n_ready`](Self::until_n_ready).
    pub fn until_ready(&self) -> Result<(), Error> {
        self.until_n_ready(1)
    }

    /// Waits until there are `n` units, and takes them, as [`until_n_ready`](crate::RateLimiter::until_n_ready) of the
    /// async one. The wait has no limit; for one, use [`check_n`](Self::check_n).
    ///
    /// # Errors
    /// As there, and `Invalid` in async code.
    pub fn until_n_ready(&self, n: u32) -> Result<(), Error> {
        self.root.wait(self.inner.until_n_ready(n))?
    }

    /// Waits for one unit, then does the work on this thread.
    ///
    /// # Errors
    /// As for [`until_n_ready`](Self::until_n_ready).
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.until_ready()?;
        Ok(work())
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
