//! The answer of a rate limiter, and its HTTP headers.

use std::{fmt, sync::Arc, time::Duration};

use crate::Quota;

/// The answer of a [`RateLimiter`](crate::RateLimiter): go on, or wait for this long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision says whether to go on"]
pub struct Decision {
    pub(super) is_allowed: bool,
    pub(super) wait: Duration,
    pub(super) remaining: u32,
    pub(super) limit: u32,
    pub(super) quota: Arc<Quota>,
}

impl Decision {
    /// Returns true if the units are yours. After a look ([`check_n(0)`](crate::RateLimiter::check_n)), true if there
    /// is a unit.
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// How long it takes until the demanded units are there, unless others take them first. Zero if the demand is
    /// allowed.
    ///
    /// Units are counted in at most 30 buckets for an interval. So this may be up to two buckets (a fifteenth of the
    /// interval) longer than necessary. It is never too short while no master's clock is stepped.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// How many units are left, as this process knows it. Others may have taken some since it asked their node.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How many units can be had at once: the smallest of the limits. If the fleet has a name, units that cannot be
    /// shared out equally are left out.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The decision as headers of an HTTP response.
    pub fn headers(&self) -> RateLimitHeaders {
        let windows = self.quota.windows().iter();
        let smallest = windows.min_by_key(|window| window.limit);
        let period = smallest.map_or(Duration::ZERO, |window| window.period);
        let reset = if self.is_allowed { period } else { self.wait };
        RateLimitHeaders {
            limit: self.limit(),
            remaining: self.remaining,
            reset: seconds(reset),
            retry_after: (!self.is_allowed).then(|| seconds(self.wait).max(1)),
            policy: Arc::clone(&self.quota),
        }
    }
}

/// In whole seconds, rounded up.
fn seconds(d: Duration) -> u64 {
    d.as_secs() + u64::from(d.subsec_nanos() > 0)
}

/// The headers that tell an HTTP client its limit, as plain values.
///
/// They are `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` and `RateLimit-Policy` of the IETF draft
/// (draft-ietf-httpapi-ratelimit-headers, up to version 06, where they are separate fields). A denied request also has
/// `Retry-After` (RFC 9110, section 10.2.3).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// # let quorum = quorate::Quorum::in_memory(3);
/// let limiter = quorum.rate_limiter("api", quorate::Quota::per_minute(30));
/// for (name, value) in limiter.check().await?.headers() {
///     println!("{name}: {value}"); // RateLimit-Limit: 30, RateLimit-Remaining: 29, …
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimitHeaders {
    /// The smallest limit.
    pub limit: u32,
    /// How many units are left.
    pub remaining: u32,
    /// Seconds until there are enough units. After an allowed request: seconds until all units are free if nobody asks.
    pub reset: u64,
    /// Seconds to wait, if the request is denied.
    pub retry_after: Option<u64>,
    policy: Arc<Quota>,
}

impl IntoIterator for RateLimitHeaders {
    type Item = (&'static str, String);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    /// Names and values. `Retry-After`, if it is there, comes last.
    fn into_iter(self) -> Self::IntoIter {
        let mut all = vec![
            ("RateLimit-Limit", self.limit.to_string()),
            ("RateLimit-Remaining", self.remaining.to_string()),
            ("RateLimit-Reset", self.reset.to_string()),
            ("RateLimit-Policy", Policy(&self.policy).to_string()),
        ];
        all.extend(self.retry_after.map(|s| ("Retry-After", s.to_string())));
        all.into_iter()
    }
}

/// The value of `RateLimit-Policy`: `50;w=1, 2000;w=60`.
struct Policy<'q>(&'q Quota);

impl fmt::Display for Policy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, window) in self.0.windows().iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{};w={}", window.limit, seconds(window.period))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_in_whole_seconds() {
        let quota = Arc::new(Quota::per_minute(2000).and(Quota::per_second(50)));
        let denied = Decision {
            is_allowed: false,
            wait: Duration::from_millis(1200),
            remaining: 0,
            limit: 50,
            quota: Arc::clone(&quota),
        };
        let all: Vec<String> = denied
            .headers()
            .into_iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        assert_eq!(
            all,
            [
                "RateLimit-Limit: 50",
                "RateLimit-Remaining: 0",
                "RateLimit-Reset: 2",
                "RateLimit-Policy: 50;w=1, 2000;w=60",
                "Retry-After: 2",
            ]
        );
        let allowed = Decision {
            is_allowed: true,
            wait: Duration::ZERO,
            ..denied
        };
        assert_eq!(allowed.headers().retry_after, None);
        assert_eq!(allowed.headers().reset, 1);
    }
}
