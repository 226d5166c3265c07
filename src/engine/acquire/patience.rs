//! How long an acquisition waits, and how it rests between its attempts. This file is pure: it takes the results of
//! attempts and the time, and returns an answer or a rest.

use std::time::Duration;

use crate::{base::clock::Tick, engine::event::Wait, protocol::ballot::acquire::Failure};

/// The longest rest. Rests start at twice the time that an attempt took, and double up to this.
pub(in crate::engine) const LONGEST_REST: Duration = Duration::from_millis(100);
const SHORTEST_REST: Duration = Duration::from_millis(2);
/// The longest rest in a quarantine. It is short because an operator may admit the nodes at any time.
const QUARANTINE_REST: Duration = Duration::from_millis(500);

/// The wait of one acquisition, over all its attempts.
#[derive(Debug)]
pub(super) struct Patience {
    /// The acquisition goes on after an attempt that was not won.
    waits: bool,
    /// The time by which the caller must have its answer.
    end: Option<Tick>,
    attempts: u32,
    /// The acquisition is in a queue.
    is_in_line: bool,
    /// Since when no majority has answered, and how that showed.
    without_majority: Option<(Tick, Failure)>,
    refreshed: bool,
    warned: bool,
    rest: Duration,
}

/// The result of an attempt that was not won.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) failure: Failure,
    pub(super) took: Duration,
    /// In how much time it will be free, or a quarantine over, according to the nodes.
    pub(super) known: Option<Duration>,
    /// A node said that it has changed since it was met. It is met again.
    pub(super) is_stale: bool,
}

/// How long an acquisition without an end of its own goes on while no majority answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In a quarantine: Z and one answer, because a quarantine ends by itself.
    pub(super) quarantine: Duration,
    /// In an outage: `max_ttl`.
    pub(super) outage: Duration,
    /// The time that an attempt may take.
    pub(super) node_timeout: Duration,
}

/// How an acquisition goes on after an attempt that was not won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GoesOn {
    /// Nodes are met again, so what they said before does not count.
    pub(super) refresh: bool,
    /// It waits for a quarantine, and that was not logged yet.
    pub(super) warn: bool,
}

impl Patience {
    pub(super) fn new(wait: Wait, asked_at: Tick) -> Self {
        Self {
            waits: wait != Wait::Never,
            end: wait.end(asked_at),
            attempts: 0,
            is_in_line: false,
            without_majority: None,
            refreshed: false,
            warned: false,
            rest: Duration::ZERO,
        }
    }

    /// Returns true if it goes on after an attempt that was not won.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// The time by which the caller must have its answer.
    pub(super) fn give_up_at(&self) -> Option<Tick> {
        self.end
    }

    pub(super) fn is_over(&self, now: Tick) -> bool {
        self.give_up_at().is_some_and(|at| at <= now)
    }

    /// An attempt begins.
    pub(super) fn attempt(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    /// It is in a queue from now on, so an outage does not end its wait at once.
    pub(super) fn joined(&mut self) {
        if !self.is_in_line {
            self.is_in_line = true;
            self.without_majority = None;
        }
    }

    pub(super) fn is_in_line(&self) -> bool {
        self.is_in_line
    }

    /// A majority of the nodes votes.
    pub(super) fn found_majority(&mut self) {
        self.without_majority = None;
    }

    /// An attempt was not won. `None`: the caller gets the error.
    pub(super) fn failed(&mut self, now: Tick, past: &Past, limits: Limits) -> Option<GoesOn> {
        let failure = past.failure;
        if self.is_over(now) {
            return None;
        }
        // A node had changed, and has been met again by now.
        let refresh = past.is_stale && !self.refreshed && failure != Failure::Held;
        if !self.waits() && !refresh {
            return None;
        }
        if failure == Failure::Held {
            self.without_majority = None;
        } else if refresh {
            self.refreshed = true;
        } else if self.gives_up(now, failure, limits) {
            return None;
        }
        let warn = failure == Failure::Quarantined && !self.warned;
        self.warned |= warn;
        Some(GoesOn { refresh, warn })
    }

    /// Returns true if no majority has answered for too long.
    fn gives_up(&mut self, now: Tick, failure: Failure, limits: Limits) -> bool {
        // The first attempt counts as made before the queue, so it does not wait for dead nodes.
        let is_first = self.attempts == 1 || self.refreshed && self.attempts == 2;
        let is_first = is_first && !self.is_in_line;
        let most = match failure {
            Failure::Quarantined => limits.quarantine,
            _ if is_first => Duration::ZERO,
            _ => limits.outage,
        };
        // An outage that follows a quarantine, or the reverse, has a time limit of its own.
        let since = match self.without_majority {
            Some((since, of)) if of == failure => since,
            _ => now,
        };
        self.without_majority = Some((since, failure));
        let has_an_end = self.give_up_at().is_some() && !most.is_zero();
        !has_an_end && now >= since.plus(most)
    }

    /// The time of the next attempt. The rest until then is random, guided by what the nodes said. `up_to(n)` returns a
    /// random number from 0 to n.
    pub(super) fn rest_until(
        &mut self,
        now: Tick,
        past: &Past,
        refresh: bool,
        limits: Limits,
        up_to: impl FnOnce(u64) -> u64,
    ) -> Tick {
        // A process that was paused during the attempt does not rest for as long again.
        let took = past.took.min(limits.node_timeout);
        self.rest = (self.rest * 2)
            .max(took * 2)
            .clamp(SHORTEST_REST, LONGEST_REST);
        let most = u64::try_from(self.rest.as_micros()).unwrap_or(u64::MAX);
        let jittered = Duration::from_micros(most / 4 + up_to(most - most / 4));
        let rest = match (past.failure, past.known) {
            _ if refresh => jittered,
            (Failure::Quarantined, Some(left)) => left.clamp(SHORTEST_REST, QUARANTINE_REST),
            (_, Some(left)) => jittered.min(left + SHORTEST_REST),
            (Failure::NoQuorum, None) => jittered.max(took + SHORTEST_REST),
            (_, None) => jittered,
        };
        let until = now.plus(rest);
        self.give_up_at().map_or(until, |at| until.min(at))
    }
}

impl Limits {
    /// `quarantine` is Z of the greatest terms.
    pub(super) fn new(quarantine: Duration, outage: Duration, node_timeout: Duration) -> Self {
        Self {
            // One whole quarantine, and the handshake that ends it.
            quarantine: quarantine + QUARANTINE_REST + node_timeout,
            outage,
            node_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE_TIMEOUT: Duration = ms(500);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    fn limits() -> Limits {
        Limits::new(ms(35_300), ms(30_000), NODE_TIMEOUT)
    }

    fn past(failure: Failure) -> Past {
        Past {
            failure,
            took: ms(1),
            known: None,
            is_stale: false,
        }
    }

    fn waits(wait: Wait) -> Patience {
        Patience::new(wait, at(0))
    }

    fn for_ever() -> Patience {
        waits(Wait::For(None))
    }

    /// Makes an attempt that fails at this time.
    fn fails(patience: &mut Patience, now: u64, failure: Failure) -> Option<GoesOn> {
        patience.attempt();
        patience.failed(at(now), &past(failure), limits())
    }

    const REST: Option<GoesOn> = Some(GoesOn {
        refresh: false,
        warn: false,
    });
    const WARN: Option<GoesOn> = Some(GoesOn {
        refresh: false,
        warn: true,
    });

    #[test]
    fn a_try_answers_after_one_attempt_for_every_failure() {
        for failure in [
            Failure::Held,
            Failure::NoQuorum,
            Failure::Quarantined,
            Failure::TooSlow,
        ] {
            let mut patience = waits(Wait::Never);
            assert_eq!(fails(&mut patience, 1, failure), None, "{failure:?}");
            assert_eq!(patience.give_up_at(), None);
        }
    }

    #[test]
    fn a_held_lock_is_waited_for_exactly_until_the_wait_ends() {
        let mut patience = waits(Wait::For(Some(ms(50))));
        assert_eq!(fails(&mut patience, 49, Failure::Held), REST);
        let just_before = Tick::from_nanos(at(50).nanos() - 1);
        assert!(!patience.is_over(just_before) && patience.is_over(at(50)));
        let mut patience = for_ever();
        assert_eq!(fails(&mut patience, 10_000_000, Failure::Held), REST);
        assert!(!patience.is_over(at(u64::from(u32::MAX))));
    }

    #[test]
    fn the_first_attempt_does_not_wait_for_dead_nodes() {
        for wait in [Wait::For(None), Wait::For(Some(ms(60_000)))] {
            for failure in [Failure::NoQuorum, Failure::TooSlow] {
                assert_eq!(fails(&mut waits(wait), 1, failure), None);
            }
        }
    }

    #[test]
    fn an_outage_ends_a_wait_without_an_end_after_max_ttl_exactly() {
        let mut patience = for_ever();
        assert_eq!(fails(&mut patience, 0, Failure::Held), REST);
        assert_eq!(fails(&mut patience, 100, Failure::NoQuorum), REST);
        assert_eq!(fails(&mut patience, 30_099, Failure::NoQuorum), REST);
        assert_eq!(fails(&mut patience, 30_100, Failure::NoQuorum), None);
    }

    #[test]
    fn a_refusal_ends_the_time_of_an_outage() {
        let mut patience = for_ever();
        assert_eq!(fails(&mut patience, 0, Failure::Held), REST);
        assert_eq!(fails(&mut patience, 100, Failure::NoQuorum), REST);
        assert_eq!(fails(&mut patience, 200, Failure::Held), REST);
        assert_eq!(fails(&mut patience, 30_100, Failure::NoQuorum), REST);
        assert_eq!(fails(&mut patience, 60_099, Failure::NoQuorum), REST);
        assert_eq!(fails(&mut patience, 60_100, Failure::NoQuorum), None);
    }

    #[test]
    fn a_wait_with_an_end_lasts_through_an_outage_that_came_later() {
        let mut patience = waits(Wait::For(Some(ms(90_000))));
        assert_eq!(fails(&mut patience, 0, Failure::Held), REST);
        assert_eq!(fails(&mut patience, 1, Failure::NoQuorum), REST);
        assert_eq!(fails(&mut patience, 89_999, Failure::NoQuorum), REST);
    }

    #[test]
    fn a_quarantine_is_waited_out_once_and_warned_about_once() {
        // Z, a rest and one answer.
        let most = 35_300 + 500 + 500;
        let mut patience = for_ever();
        assert_eq!(fails(&mut patience, 0, Failure::Quarantined), WARN);
        assert_eq!(fails(&mut patience, most - 1, Failure::Quarantined), REST);
        assert_eq!(fails(&mut patience, most, Failure::Quarantined), None);
    }

    #[test]
    fn an_outage_after_a_quarantine_has_a_time_of_its_own() {
        let mut patience = for_ever();
        assert_eq!(fails(&mut patience, 0, Failure::Quarantined), WARN);
        assert_eq!(fails(&mut patience, 36_000, Failure::NoQuorum), REST);
        assert_eq!(fails(&mut patience, 65_999, Failure::NoQuorum), REST);
        assert_eq!(fails(&mut patience, 66_000, Failure::NoQuorum), None);
    }

    #[test]
    fn even_a_try_asks_once_more_after_nodes_are_met_again() {
        let stale = |failure| Past {
            is_stale: true,
            ..past(failure)
        };
        let refresh = Some(GoesOn {
            refresh: true,
            warn: false,
        });
        for wait in [Wait::Never, Wait::For(None)] {
            let mut patience = waits(wait);
            patience.attempt();
            let next = patience.failed(at(1), &stale(Failure::NoQuorum), limits());
            assert_eq!(next, refresh);
            patience.attempt();
            let next = patience.failed(at(2), &stale(Failure::NoQuorum), limits());
            assert_eq!(next, None, "not twice, and it still counts as the first");
        }
        let mut patience = waits(Wait::Never);
        patience.attempt();
        let next = patience.failed(at(1), &stale(Failure::Held), limits());
        assert_eq!(next, None, "a refusal stands");
    }

    /// In µs: how long it rests after an attempt, with the least and with the most jitter.
    fn rests(patience: &mut Patience, past: &Past, refresh: bool) -> [u64; 2] {
        let rest = patience.rest;
        [0, u64::MAX].map(|random| {
            patience.rest = rest;
            let up_to = |most: u64| random.min(most);
            let until = patience.rest_until(at(0), past, refresh, limits(), up_to);
            u64::try_from(until.since(at(0)).as_micros()).unwrap()
        })
    }

    #[test]
    fn rests_double_from_twice_the_attempt_and_stay_below_100_ms() {
        let patience = &mut for_ever();
        let past = Past {
            took: ms(10),
            ..past(Failure::Held)
        };
        for most in [20_000, 40_000, 80_000, 100_000, 100_000] {
            assert_eq!(rests(patience, &past, false), [most / 4, most]);
        }
        let quick = Past {
            took: Duration::ZERO,
            ..past
        };
        assert_eq!(rests(&mut for_ever(), &quick, false), [500, 2_000]);
        // An attempt during which the process was paused counts as taking no longer than a node may.
        let paused = Past {
            took: ms(3_600_000),
            failure: Failure::NoQuorum,
            ..past
        };
        assert_eq!(rests(&mut for_ever(), &paused, false), [502_000; 2]);
    }

    #[test]
    fn a_rest_is_bounded_by_the_remaining_time_that_nodes_reported() {
        let known = |failure, left| Past {
            took: ms(40),
            known: Some(left),
            ..past(failure)
        };
        let held = known(Failure::Held, ms(30));
        assert_eq!(rests(&mut for_ever(), &held, false), [20_000, 32_000]);
        assert_eq!(rests(&mut for_ever(), &held, true), [20_000, 80_000]);
        for (left, rest) in [(0, 2), (2, 2), (3, 3), (500, 500), (501, 500)] {
            let young = known(Failure::Quarantined, ms(left));
            assert_eq!(rests(&mut for_ever(), &young, false), [rest * 1000; 2]);
        }
    }

    #[test]
    fn no_rest_goes_beyond_the_end() {
        let mut patience = waits(Wait::For(Some(ms(5))));
        let past = Past {
            took: ms(40),
            ..past(Failure::Held)
        };
        assert_eq!(rests(&mut patience, &past, false), [5_000; 2]);
    }
}
