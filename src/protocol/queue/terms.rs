//! For how long is what: the times that a waiter brings to a node (protocol §5).

use std::time::Duration;

use crate::protocol::ballot::validity::{drift, notice};

const SHORTEST_TERM: Duration = Duration::from_secs(1);
const SHORTEST_CLAIM: Duration = Duration::from_millis(50);
/// For this many terms a head is always fresh enough for a hand-over.
const PROMPT: u32 = 2;

/// The times of one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// For how long the lock is wanted, without the lock-delay.
    pub(crate) ttl: Duration,
    /// Who has not been heard of for so long waits no more.
    pub(crate) life: Duration,
    /// Within this a node is answered by nearly always.
    pub(crate) round_trip: Duration,
}

impl Terms {
    /// `life`: the fleet's longest ttl. `round_trip`: within which a majority answers nearly always.
    pub(crate) fn new(ttl: Duration, life: Duration, round_trip: Duration) -> Self {
        Self {
            ttl,
            life,
            round_trip,
        }
    }

    /// S: for how long a hand-over is good until it is confirmed.
    pub(crate) fn term(&self) -> Duration {
        (self.round_trip * 20).max(SHORTEST_TERM).min(self.ttl)
    }

    /// For how long a free lock is kept for who was called.
    pub(crate) fn claim(&self) -> Duration {
        (self.round_trip * 4).max(SHORTEST_CLAIM)
    }

    /// How often the head of a line asks at first: what a node knows of it is then never too old for a hand-over.
    pub(crate) fn as_head(&self) -> Duration {
        self.term() / 4
    }

    /// The same for one that has been the head for so long. After some terms it asks less often, and ever less: who has
    /// waited for seconds may be called, which costs a round trip more.
    pub(crate) fn as_head_for(&self, long: Duration) -> Duration {
        match long < self.term() * PROMPT {
            true => self.as_head(),
            false => (long / 4).min(self.behind()),
        }
    }

    /// How often the others ask.
    pub(crate) fn behind(&self) -> Duration {
        self.life / 3
    }

    /// After a first vote the others follow within this, or are asked for.
    pub(crate) fn votes_follow(&self) -> Duration {
        self.round_trip + self.round_trip / 5
    }
}

/// For how long what was granted for this long is good for its holder, and how long before that end its loss is
/// announced.
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
    fn who_is_the_head_for_long_asks_less_often() {
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
            // A node hands over within half a term of the last word.
            assert!(terms.as_head() + terms.round_trip < terms.term() / 2);
            let (good, notice) = good_for(terms.term());
            assert!(good > terms.term() / 2 + notice, "{terms:?}");
        }
    }
}
