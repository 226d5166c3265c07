//! How long a node takes to answer: a smoothed round trip and its variation (RFC 6298), in whole nanoseconds.

use std::time::Duration;

use crate::base::clock::Tick;

/// The least estimate. Smaller values are noise of the scheduler.
const LEAST: Duration = Duration::from_millis(1);

/// Once there is an estimate, a sample counts as at most this many times as much.
const LEAP: u64 = 4;
/// The bound on a sample is at least this, in nanoseconds, because a first estimate may be that of an idle network.
const LEAP_LEAST: u64 = 10_000_000;

/// The estimate for one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    /// SRTT and RTTVAR, once there is a sample.
    smoothed: Option<(u64, u64)>,
    /// The time of the last sample.
    sampled_at: Tick,
}

impl RoundTrip {
    /// A request that left at `sent` was answered. One sample is taken per round trip, however many requests travel at
    /// a time. Otherwise a burst would outweigh all earlier samples. A sample far above the estimate is cut, because
    /// usually this process was paused. If the node has really become slow, a few more samples show it.
    pub(super) fn answered(&mut self, sent: Tick, now: Tick) {
        if sent < self.sampled_at {
            return;
        }
        self.sampled_at = now;
        let sample = now.nanos().saturating_sub(sent.nanos());
        self.smoothed = Some(match self.smoothed {
            None => (sample, sample / 2),
            // Alpha is 1/8 and beta 1/4. The variation is updated first, because it is measured from the old mean.
            Some((srtt, rttvar)) => {
                let most = within(srtt, rttvar).saturating_mul(LEAP).max(LEAP_LEAST);
                let sample = sample.min(most);
                (
                    srtt - srtt / 8 + sample / 8,
                    rttvar - rttvar / 4 + srtt.abs_diff(sample) / 4,
                )
            }
        });
    }

    /// The average time of an answer: SRTT.
    pub(super) fn measured(&self) -> Option<Duration> {
        self.smoothed.map(|(srtt, _)| Duration::from_nanos(srtt))
    }

    /// The time within which nearly every answer comes: SRTT + 4 RTTVAR, between 1 ms and the node timeout.
    pub(super) fn estimate(&self, node_timeout: Duration) -> Option<Duration> {
        let (srtt, rttvar) = self.smoothed?;
        let within = Duration::from_nanos(within(srtt, rttvar));
        Some(within.max(LEAST).min(node_timeout))
    }
}

/// SRTT + 4 RTTVAR.
fn within(srtt: u64, rttvar: u64) -> u64 {
    srtt.saturating_add(rttvar.saturating_mul(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE_TIMEOUT: Duration = Duration::from_millis(500);

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// The estimate after requests that took these times, one after the other.
    fn after(trips: impl IntoIterator<Item = Duration>) -> RoundTrip {
        let (mut trip, mut now) = (RoundTrip::default(), Tick::from_nanos(7));
        for took in trips {
            let sent = now;
            now = now.plus(took);
            trip.answered(sent, now);
        }
        trip
    }

    fn estimate(trips: impl IntoIterator<Item = Duration>) -> Option<Duration> {
        after(trips).estimate(NODE_TIMEOUT)
    }

    #[test]
    fn the_estimate_is_that_of_the_rfc() {
        assert_eq!(estimate([]), None);
        // SRTT = R, RTTVAR = R / 2.
        assert_eq!(estimate([us(8_000)]), Some(us(8_000 + 4 * 4_000)));
        assert_eq!(after([us(8_000)]).measured(), Some(us(8_000)));
        assert_eq!(after([us(8_000), us(16_000)]).measured(), Some(us(9_000)));
        // RTTVAR = 3/4 · 4 + 1/4 · |8 − 16| = 5, SRTT = 7/8 · 8 + 1/8 · 16 = 9.
        assert_eq!(
            estimate([us(8_000), us(16_000)]),
            Some(us(9_000 + 4 * 5_000))
        );
    }

    #[test]
    fn the_estimate_converges_and_stays_within_its_bounds() {
        let steady = estimate([us(20_000); 100]).unwrap();
        assert!((us(19_990)..us(20_010)).contains(&steady), "{steady:?}");
        assert_eq!(estimate([us(50); 100]), Some(us(1_000)));
        assert_eq!(estimate([us(2_000_000)]), Some(NODE_TIMEOUT));
        assert_eq!(
            after([us(9)]).estimate(us(200)),
            Some(us(200)),
            "a timeout below 1 ms"
        );
        let endless = after([Duration::MAX, Duration::MAX]);
        assert_eq!(endless.estimate(NODE_TIMEOUT), Some(NODE_TIMEOUT));
    }

    #[test]
    fn one_pause_of_the_process_does_not_spoil_the_estimate() {
        let ms = |ms: u64| us(ms * 1_000);
        let near = || std::iter::repeat_n(us(200), 50);
        // Cut to 10 ms: SRTT 1.4 ms, RTTVAR 2.5 ms.
        let paused = estimate(near().chain([ms(3_000)])).unwrap();
        assert!((ms(5)..ms(13)).contains(&paused), "{paused:?}");
        let far = || std::iter::repeat_n(ms(20), 50);
        // Cut to 80 ms: SRTT 27.5 ms, RTTVAR 15 ms.
        let paused = estimate(far().chain([ms(3_000)])).unwrap();
        assert!((ms(80)..ms(90)).contains(&paused), "{paused:?}");
        // The first sample is not cut, and a node that has become slow is noticed soon.
        assert_eq!(estimate([ms(100)]), Some(ms(300)));
        let slow = estimate(near().chain([ms(100); 4])).unwrap();
        assert!(slow > ms(100), "{slow:?}");
        // Up to 10 ms nothing is cut.
        let jitter = estimate(near().chain([us(9_800)])).unwrap();
        assert!(jitter > us(9_800), "{jitter:?}");
    }

    #[test]
    fn one_sample_is_taken_of_requests_that_travel_together() {
        let at = |us: u64| Tick::from_nanos(us * 1_000);
        let mut trip = RoundTrip::default();
        for answered in 8_000..9_000 {
            trip.answered(at(0), at(answered));
        }
        assert_eq!(trip.estimate(NODE_TIMEOUT), Some(us(24_000)), "the first");
        trip.answered(at(9_000), at(25_000));
        assert_eq!(trip.estimate(NODE_TIMEOUT), Some(us(29_000)));
    }
}
