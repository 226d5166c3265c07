//! The times that a waiter sends to a node with its request (protocol §5).

use std::time::Duration;

use crate::protocol::ballot::validity::{drift, notice};

const SHORTEST_TERM: Duration = Duration::from_secs(1);
const SHORTEST_CLAIM: Duration = Duration::from_millis(50);
/// For this many terms the first waiter asks so often that it can always be handed the lock.
const PROMPT: u32 = 2;

/// The times of one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The ttl of the lock, without the lock-delay.
    pub(crate) ttl: Duration,
    /// A waiter that a node has not heard of for this long is dropped.
    pub(crate) life: Duration,
    /// The time within which a node nearly always answers.
    pub(crate) round_trip: Duration,
}

impl Terms {
    /// `life` is at most the fleet's `max_ttl`. `round_trip` is the time within which a majority nearly always answers.
    pub(crate) fn new(ttl: Duration, life: Duration, round_trip: Duration) -> Self {
        Self {
            ttl,
            life,
            round_trip,
        }
    }

    /// S: how long a hand-over is good until it is confirmed.
    pub(crate) fn term(&self) -> Duration {
        (self.round_trip * 20).max(SHORTEST_TERM).min(self.ttl)
    }

    /// How long a node keeps a free lock for a waiter that was called.
    pub(crate) fn claim(&self) -> Duration {
        (self.round_trip * 4).max(SHORTEST_CLAIM)
    }

    /// How often the first waiter asks at first. At this rate the node has always heard of it recently enough for a
    /// hand-over.
    pub(crate) fn as_head(&self) -> Duration {
        self.term() / 4
    }

    /// The same for a waiter that has been the first for this long. After some terms it asks less and less often. A
    /// waiter that has waited for seconds may be called instead, which costs one more round trip.
    pub(crate) fn as_head_for(&self, long: Duration) -> Duration {
        match long < self.term() * PROMPT {
            true => self.as_head(),
            false => (long / 4).min(self.behind()),
        }
    }

    /// How often the other waiters ask.
    pub(crate) fn behind(&self) -> Duration {
        self.life / 3
    }

    /// The time within which other votes should follow a first one. Otherwise their nodes are asked.
    pub(crate) fn votes_follow(&self) -> Duration {
        self.round_trip + self.round_trip / 5
    }
}

/// How long a grant of this length is good for its holder, and how long before that end its loss is announced.
pub(crate) fn good_for(granted: Duration) -> (Duration, Duration) {
    (granted.saturating_sub(drift(granted)), notice(granted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_term_is_a_second_or_20_round_trips_and_never_longer_than_the_ttl() {
        let term = |ttl, round_trip| Terms::new(ms(ttl), ms(30_000), ms(round_trip)).term();
        assert_eq!(term(10_000, 1), ms(1_000));
        assert_eq!(term(10_000, 60), ms(1_200));
        assert_eq!(term(100, 1), ms(100));
    }

    #[test]
    fn a_waiter_that_is_head_for_long_asks_less_often() {
        let terms = Terms::new(ms(10_000), ms(30_000), ms(1));
        for (long, every) in [
            (1_999, 250),
            (2_000, 500),
            (8_000, 2_000),
            (1_000_000, 10_000),
        ] {
            assert_eq!(terms.as_head_for(ms(long)), ms(every), "{long}");
        }
        let short = Terms::new(ms(1_000), ms(2_000), ms(1));
        assert_eq!(short.as_head_for(ms(4_000)), short.behind());
    }

    #[test]
    fn a_head_is_always_fresh_enough_for_a_hand_over() {
        for (ttl, round_trip) in [(10_000, 1), (10_000, 60), (100, 1), (300, 2)] {
            let terms = Terms::new(ms(ttl), ms(30_000), ms(round_trip));
            // A node hands over if it heard of the waiter within the last half term.
            assert!(terms.as_head() + terms.round_trip < terms.term() / 2);
            let (good, notice) = good_for(terms.term());
            assert!(good > terms.term() / 2 + notice, "{terms:?}");
        }
    }
}
