//! Quotas: what a rate limiter is made with, and the values that follow from it alone (protocol §7).

#![cfg_attr(not(feature = "unstable-node"), allow(unreachable_pub))]

use std::{fmt, time::Duration};

use crate::Error;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const MOST_WINDOWS: usize = 4;
const MEMORY: Duration = Duration::from_secs(10);
const SHORTEST_MEMORY: Duration = Duration::from_millis(500);
/// A node keeps its counts in at most one bucket more than this.
const BUCKETS: u64 = 29;

/// How many units are allowed in any interval of a given length.
///
/// ```
/// use std::time::Duration;
/// use quorate::Quota;
///
/// let supplier = Quota::per_minute(2_000).and(Quota::per_second(50)); // both, or nothing
/// let slow = Quota::new(3, Duration::from_secs(600));
/// assert_eq!(supplier.to_string(), "50 in 1 s and 2000 in 60 s");
/// # let _ = slow;
/// ```
///
/// A limit is 1 to 4,294,967,295 units. An interval is 100 ms to 24 h, in whole ms. At most 4 limits can be combined.
/// All this is checked when the limiter is used, or by [`RateLimiter::validate`](crate::RateLimiter::validate).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quota(Vec<Window>);

/// The masters among which a limit is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Masters {
    /// N.
    pub(crate) total: usize,
    /// True if all clients have the same list of them.
    pub(crate) are_ranked: bool,
    /// Their longest ttl.
    pub(crate) max_ttl: Duration,
    /// [`SLOTS_UP_TO`], except in the simulation.
    pub(crate) slots_up_to: u32,
}

/// A limit of at most this many units is kept as slots of a majority, a greater one as shares of single masters. Slots
/// give the whole limit while any minority is down. But each unit takes a request to every master, and 160 bytes there
/// for as long as it counts. All programs must agree on it, so it is a constant.
pub const SLOTS_UP_TO: u32 = 16;

/// At most `limit` units in any interval of `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// W.
    pub period: Duration,
    /// L.
    pub limit: u32,
}

impl Quota {
    /// At most `limit` units in any interval of this length.
    pub fn new(limit: u32, period: Duration) -> Self {
        Self(vec![Window { period, limit }])
    }

    /// At most `limit` units in any second.
    pub fn per_second(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// At most `limit` units in any minute.
    pub fn per_minute(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// At most `limit` units in any hour.
    pub fn per_hour(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(3600))
    }

    /// Combines two quotas: a unit counts against each of them, and is allowed if each has room.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self.0.sort_unstable();
        // Of two limits for one interval the smaller one holds. It comes first.
        self.0.dedup_by_key(|window| window.period);
        self
    }

    /// The windows, from the shortest interval to the longest.
    pub(crate) fn windows(&self) -> &[Window] {
        &self.0
    }

    /// The greatest number of units that can be had at once.
    pub(crate) fn most(&self) -> u32 {
        self.0.iter().map(|window| window.limit).min().unwrap_or(0)
    }

    /// W of the shortest interval.
    pub(crate) fn shortest(&self) -> Duration {
        self.0.first().map_or(SHORTEST, |window| window.period)
    }

    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.len() > MOST_WINDOWS {
            return Err(Error::Invalid(format!(
                "the quota has {} intervals, but at most {MOST_WINDOWS} are allowed",
                self.0.len()
            )));
        }
        self.0.iter().try_for_each(Window::check)
    }
}

/// `2000 in 60 s`, or several such texts joined by `and`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, window) in self.0.iter().enumerate() {
            let and = if i > 0 { " and " } else { "" };
            write!(f, "{and}{window}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, period } = self;
        match period.subsec_millis() {
            0 => write!(f, "{limit} in {} s", period.as_secs()),
            _ => write!(f, "{limit} in {} ms", period.as_millis()),
        }
    }
}

/// For how long a process remembers a limit that it does not use. Nothing depends on it: the next use asks the masters.
pub(crate) fn remembered(windows: &[Window]) -> Duration {
    let longest = windows.last().map_or(MEMORY, |window| window.period);
    longest.clamp(SHORTEST_MEMORY, MEMORY)
}

/// How long a memory must have been watched before it gives units of an interval of this length.
pub(crate) fn history(period: Duration) -> Duration {
    let window = Window { period, limit: 1 };
    let reach = window.ms() + window.ahead();
    Duration::from_millis(reach + reach.div_ceil(100))
}

/// The longest interval of which a memory that was watched for this long gives units. Zero if there is none.
pub(crate) fn longest(watched: Duration) -> Duration {
    // 1.01 · 1.1, and a little more because of rounding.
    let about = watched * 1000 / 1111 + Duration::from_millis(10);
    let mut ms = u64::try_from(about.min(LONGEST).as_millis()).unwrap_or(u64::MAX);
    while ms > 0 && history(Duration::from_millis(ms)) > watched {
        ms -= 1;
    }
    match Duration::from_millis(ms) {
        period if period < SHORTEST => Duration::ZERO,
        period => period,
    }
}

impl Window {
    fn check(&self) -> Result<(), Error> {
        let Self { limit, period } = self;
        if *limit == 0 {
            return Err(Error::Invalid(
                "a limit of 0 allows nothing: it must be at least 1".into(),
            ));
        }
        if !(SHORTEST..=LONGEST).contains(period) {
            return Err(Error::Invalid(format!(
                "an interval of {period:?} is not allowed: it must be {SHORTEST:?} to 24 h"
            )));
        }
        if !period.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(Error::Invalid(format!(
                "an interval of {period:?} is not a whole number of milliseconds"
            )));
        }
        Ok(())
    }

    /// W in ms.
    pub(crate) fn ms(&self) -> u64 {
        u64::try_from(self.period.as_millis()).unwrap_or(u64::MAX)
    }

    /// E in ms: how long after it was taken a unit may be used, at most.
    pub(crate) fn ahead(&self) -> u64 {
        (self.ms() / 10).max(20)
    }

    /// A in ms: how long a unit counts after the last instant at which it may be used. Three clocks that slew by 0.5 %
    /// each have a part in it: the client's clock counts E, the node's clock counts W, and the limit holds by an
    /// outside clock.
    pub(crate) fn kept(&self) -> u64 {
        let reach = self.ms() + self.ahead();
        self.ms() + (reach * 101).div_ceil(10_000) + 2
    }

    /// b in ms: the width of a bucket.
    pub(crate) fn bucket(&self) -> u64 {
        (self.kept() + self.ahead()).div_ceil(BUCKETS)
    }

    /// For how long a unit of a share counts at most, after the last instant at which it may be used.
    pub(crate) fn counts_for(&self) -> Duration {
        Duration::from_millis(self.kept() + self.bucket())
    }

    /// How long a memory must have been watched before it gives units. By then it has seen all units that still count.
    pub(crate) fn history(&self) -> Duration {
        history(self.period)
    }

    /// Returns true if its units are slots of a majority. A limit below N has too few units for shares.
    pub(crate) fn has_slots(&self, masters: Masters) -> bool {
        self.limit <= masters.slots_up_to || (self.limit as usize) < masters.total
    }

    /// The sum of all shares.
    pub(crate) fn shared(&self, masters: Masters) -> u32 {
        let shares = (0..masters.total).map(|rank| {
            let rank = masters.are_ranked.then_some(rank);
            self.share(masters.total, rank)
        });
        shares.fold(0, u32::saturating_add)
    }

    /// The number of units that these masters give.
    pub(crate) fn given(&self, masters: Masters) -> u32 {
        match self.has_slots(masters) {
            true => self.limit,
            false => self.shared(masters),
        }
    }

    /// A node's share of the limit, of `total` nodes. `rank` is the node's place in the sorted list, if all clients
    /// have the same list.
    pub(crate) fn share(&self, total: usize, rank: Option<usize>) -> u32 {
        let total = u32::try_from(total).unwrap_or(u32::MAX).max(1);
        let left_over = self.limit % total;
        let one_more = rank.is_some_and(|rank| (rank as u64) < u64::from(left_over));
        self.limit / total + u32::from(one_more)
    }
}

/// The place where a node has counted units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// q: the bucket.
    pub bucket: u64,
    /// The time since which this node counts, by its clock.
    pub era: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_the_limit_and_without_ranks_never_exceed_it() {
        for (limit, total) in [(2000, 3), (7, 5), (5, 5), (11, 7), (1, 1), (u32::MAX, 3)] {
            let window = Window {
                limit,
                period: SHORTEST,
            };
            let ranked = (0..total).map(|rank| u64::from(window.share(total, Some(rank))));
            assert_eq!(ranked.sum::<u64>(), u64::from(limit));
            let unranked = u64::from(window.share(total, None)) * total as u64;
            assert!(unranked <= limit.into() && u64::from(limit) - unranked < total as u64);
        }
    }

    /// Programs with different limits for one interval share one count on each node. So what they take together is at
    /// most the sum of the greater shares, which is the greater limit only if no share falls when the limit grows.
    #[test]
    fn no_share_falls_when_the_limit_grows() {
        let near_the_end = u32::MAX - 300..=u32::MAX;
        for total in 1..=7_usize {
            for rank in (0..total).map(Some).chain([None]) {
                for limits in [1..=300, near_the_end.clone()] {
                    let shares = limits.map(|limit| {
                        let period = SHORTEST;
                        Window { limit, period }.share(total, rank)
                    });
                    assert!(shares.is_sorted(), "{total} {rank:?}");
                }
            }
            for (one, other) in (1..=60_u32).flat_map(|one| (1..=60).map(move |other| (one, other)))
            {
                let share = |limit, rank| {
                    let period = SHORTEST;
                    Window { limit, period }.share(total, rank)
                };
                for ranked in [true, false] {
                    let greater = (0..total).map(|rank| {
                        let rank = ranked.then_some(rank);
                        share(one, rank).max(share(other, rank))
                    });
                    assert!(
                        greater.sum::<u32>() <= one.max(other),
                        "{one} {other} {total}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_kept_history_fits_into_thirty_buckets() {
        for ms in [100, 101, 999, 1000, 60_000, 86_400_000] {
            let period = Duration::from_millis(ms);
            let window = Window { limit: 1, period };
            let reach = window.kept() + window.ahead();
            assert!(reach.div_ceil(window.bucket()) <= BUCKETS, "{ms}");
        }
    }

    #[test]
    fn the_longest_interval_is_the_last_whose_history_is_whole() {
        assert_eq!(longest(Duration::from_millis(120)), Duration::ZERO);
        assert_eq!(longest(27 * 3600 * Duration::from_secs(1)), LONGEST);
        for ms in [100, 101, 150, 199, 999, 1000, 3_600_000, 86_400_000] {
            let period = Duration::from_millis(ms);
            let watched = history(period);
            assert_eq!(longest(watched), period);
            let less = watched.saturating_sub(Duration::from_millis(1));
            assert!(longest(less) < period, "{ms}");
        }
    }

    #[test]
    fn the_smaller_of_two_limits_for_one_interval_holds() {
        let both = Quota::per_second(5).and(Quota::per_second(3));
        assert_eq!(both, Quota::per_second(3));
        let three = Quota::per_hour(9).and(Quota::per_second(3));
        assert_eq!(
            (three.most(), three.shortest()),
            (3, Duration::from_secs(1))
        );
    }

    #[test]
    fn bad_quotas_are_named() {
        let hours = |h: u64| Duration::from_secs(h * 3600);
        for (quota, wanted) in [
            (Quota::per_second(0), "at least 1"),
            (Quota::new(1, Duration::from_millis(99)), "100ms to 24 h"),
            (Quota::new(1, hours(25)), "100ms to 24 h"),
            (
                Quota::new(1, Duration::from_micros(100_500)),
                "whole number",
            ),
        ] {
            let error = quota.check().unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let five = (1..=5).map(|h| Quota::new(1, hours(h))).reduce(Quota::and);
        assert!(five.unwrap().check().is_err());
        assert!(Quota::new(u32::MAX, hours(24)).check().is_ok());
    }
}
