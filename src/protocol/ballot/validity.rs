//! How long a grant is good for its holder (protocol §1): validity = ttl − elapsed − drift.

use std::time::Duration;

use crate::base::clock::Tick;

const DRIFT_FLOOR: Duration = Duration::from_millis(2);
const LEAST_NOTICE: Duration = Duration::from_millis(20);

/// drift = ttl · 0.01 + 2 ms: the most by which two clocks that slew by at most 0.5 % each can differ over the ttl.
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + DRIFT_FLOOR
}

/// The end of the validity of a grant of `ttl` that was asked for at `t0`. `t0` is when the requests were sent, never
/// when the answers came.
pub(crate) fn valid_until(t0: Tick, ttl: Duration) -> Tick {
    t0.plus(ttl.saturating_sub(drift(ttl)))
}

/// How long before the end of the validity a loss is announced: max(20 ms, ttl / 20).
pub(crate) fn notice(ttl: Duration) -> Duration {
    (ttl / 20).max(LEAST_NOTICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_is_ttl_less_elapsed_less_drift() {
        let t0 = Tick::from_nanos(1_000);
        let end = valid_until(t0, Duration::from_secs(10));
        assert_eq!(end.since(t0), Duration::from_millis(10_000 - 102));
        assert_eq!(
            valid_until(t0, Duration::from_millis(1)),
            t0,
            "never before t0"
        );
    }

    #[test]
    fn the_notice_is_20_ms_or_a_twentieth() {
        assert_eq!(
            notice(Duration::from_millis(100)),
            Duration::from_millis(20)
        );
        assert_eq!(
            notice(Duration::from_millis(400)),
            Duration::from_millis(20)
        );
        assert_eq!(notice(Duration::from_secs(10)), Duration::from_millis(500));
    }
}
