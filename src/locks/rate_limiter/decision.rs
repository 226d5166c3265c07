//! The answer of a rate limiter, also in an outage, and its HTTP headers.

use std::{sync::Arc, time::Duration};

use crate::{Quota, base::quota::Masters};

/// The answer of a [`RateLimiter`](crate::RateLimiter): go on, or wait for this long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision says whether to go on"]
pub struct Decision {
    pub(super) is_allowed: bool,
    pub(super) wait: Duration,
    pub(super) remaining: u32,
    pub(super) limit: u32,
    /// The limit of the interval that binds: the one with the fewest units left, or of a denial the longest wait.
    pub(super) binds: u32,
    /// The wait; for an allowed demand, until all units of that interval are free.
    pub(super) reset: Duration,
    pub(super) quota: Arc<Quota>,
    pub(super) masters: Masters,
    /// No master could say what is left.
    pub(super) is_guess: bool,
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

    /// How many units can be had at once: the smallest of the limits. If the [fleet](crate::Builder::fleet) has a name,
    /// each master has the same share, so this is the next smaller multiple of their number: 99 of 100 on three masters.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns true if no master could say what is left, and [`Outage::Allow`] let the demand through.
    #[cfg(feature = "tower")]
    pub(crate) fn is_guess(&self) -> bool {
        self.is_guess
    }

    /// The decision as headers of an HTTP response. Limit, remaining units and reset are those of one interval: the
    /// one that will be the first to deny a request. Of a denial it is the one with the longest wait.
    pub fn headers(&self) -> RateLimitHeaders {
        RateLimitHeaders {
            limit: self.binds,
            remaining: self.remaining,
            reset: seconds(self.reset),
            retry_after: (!self.is_allowed).then(|| seconds(self.wait).max(1)),
            policy: policy(&self.quota, self.masters),
        }
    }
}

/// The answer of a rate limiter while no master can say whether there are units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outage {
    /// An error, so that the caller decides.
    #[default]
    Error,
    /// The demand is denied, so nothing is done that may be too much. A caller that waits goes on waiting.
    Deny,
    /// The demand is allowed, so nothing stops, and nothing is counted.
    Allow,
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
    /// The limit of the interval that binds.
    pub limit: u32,
    /// How many units are left.
    pub remaining: u32,
    /// Seconds until there are enough units. After an allowed request: seconds until all units that are known to be
    /// taken are free, if nobody asks. That is longer than the interval, because a unit
    /// [counts longer](crate::docs::rates#how-much-of-the-limit-is-used).
    pub reset: u64,
    /// Seconds to wait, if the request is denied.
    pub retry_after: Option<u64>,
    policy: Option<String>,
}

impl IntoIterator for RateLimitHeaders {
    type Item = (&'static str, String);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    /// Names and values. `Retry-After`, if it is there, comes last. `RateLimit-Policy` counts in whole seconds, so it
    /// leaves out other intervals, such as 100 ms.
    fn into_iter(self) -> Self::IntoIter {
        let mut all = vec![
            ("RateLimit-Limit", self.limit.to_string()),
            ("RateLimit-Remaining", self.remaining.to_string()),
            ("RateLimit-Reset", self.reset.to_string()),
        ];
        all.extend(self.policy.map(|policy| ("RateLimit-Policy", policy)));
        all.extend(self.retry_after.map(|s| ("Retry-After", s.to_string())));
        all.into_iter()
    }
}

/// The value of `RateLimit-Policy`: `50;w=1, 2000;w=60`, with what these masters give of each limit. An interval that is not a number of seconds cannot be written
/// there, and a rounded one would be another limit.
fn policy(quota: &Quota, masters: Masters) -> Option<String> {
    let windows = quota.windows().iter();
    let whole = windows.filter(|window| window.period.subsec_nanos() == 0);
    let all: Vec<String> = whole
        .map(|window| format!("{};w={}", window.given(masters), window.period.as_secs()))
        .collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::quota::SLOTS_UP_TO;

    fn masters(are_ranked: bool) -> Masters {
        Masters {
            total: 3,
            are_ranked,
            max_ttl: Duration::from_secs(30),
            slots_up_to: SLOTS_UP_TO,
        }
    }

    #[test]
    fn headers_are_in_whole_seconds() {
        let quota = Arc::new(Quota::per_minute(2000).and(Quota::per_second(50)));
        let denied = Decision {
            is_allowed: false,
            wait: Duration::from_millis(1200),
            remaining: 0,
            limit: 50,
            binds: 50,
            reset: Duration::from_millis(1200),
            quota: Arc::clone(&quota),
            masters: masters(true),
            is_guess: false,
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
    }

    #[test]
    fn a_policy_leaves_out_intervals_that_are_not_whole_seconds() {
        let of = |ms: u64| Quota::new(5, Duration::from_millis(ms));
        assert_eq!(policy(&of(100), masters(true)), None);
        assert_eq!(policy(&of(1_500), masters(true)), None);
        let some = policy(
            &of(100).and(of(2_000)).and(Quota::per_hour(90)),
            masters(true),
        );
        assert_eq!(some.as_deref(), Some("5;w=2, 90;w=3600"));
    }
    #[test]
    fn a_policy_names_what_the_masters_give() {
        let quota = Quota::per_minute(20).and(Quota::per_second(5));
        let of = |are_ranked| policy(&quota, masters(are_ranked));
        assert_eq!(of(true).as_deref(), Some("5;w=1, 20;w=60"));
        assert_eq!(of(false).as_deref(), Some("5;w=1, 18;w=60"));
    }
}
