//! The number of slots of a semaphore. It may be changed, so it has a version (protocol §6).

#![cfg_attr(not(feature = "unstable-node"), allow(unreachable_pub))]

use crate::base::{
    clock::Tick,
    rules::{Rule, Rules},
};
use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A limit, as it stands on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// 0 is the limit that a program was made with, before a majority has confirmed it. 1 is such a limit once it is
    /// confirmed. A resize makes a greater version.
    pub version: u64,
    /// The number of slots.
    pub slots: u32,
}

impl Limit {
    /// The most slots that a semaphore may have: the bits of its taken slots then fit in 8 KB.
    pub const MOST: u32 = 65_536;

    /// Returns true if this limit replaces the other. The newer one does, and of two of the same version the smaller
    /// one.
    pub(crate) fn beats(self, other: Self, rules: Rules) -> bool {
        let (newer, older) = match rules.hold(Rule::GreaterVersion) {
            true => (self.version > other.version, self.version < other.version),
            false => (false, false),
        };
        newer || !older && self.slots < other.slots
    }

    /// Returns true if a handle that has met the other limit goes on with this one. Version 1 is the limit that
    /// programs were made with, so two different limits of version 1 are a conflict.
    pub(crate) fn follows(self, other: Self, rules: Rules) -> bool {
        let resized = other.version > 0 && (self.version, other.version) != (1, 1);
        resized && self.beats(other, rules)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.slots)
    }
}

/// The limit of a semaphore, as its handles know it.
#[derive(Debug)]
pub(crate) struct Agreed {
    /// The limit that the program was made with.
    made: u32,
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    limit: Limit,
    /// When a majority last answered.
    at: Option<Tick>,
    /// True once a majority has answered.
    has_met: bool,
}

impl Agreed {
    pub(crate) fn new(slots: u32) -> Self {
        let limit = Limit { version: 0, slots };
        Self {
            made: slots,
            known: Mutex::new(Known {
                limit,
                at: None,
                has_met: false,
            }),
        }
    }

    /// The limit that the program was made with.
    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    /// The number of slots, as this process knows it.
    pub(crate) fn slots(&self) -> u32 {
        self.known().limit.slots
    }

    /// The limit to ask with. A limit that nobody has confirmed for `forgotten_after` is forgotten, because the nodes
    /// have forgotten it too.
    pub(crate) fn at(&self, now: Tick, forgotten_after: Duration) -> Limit {
        let mut known = self.known();
        if known.at.is_some_and(|at| at.plus(forgotten_after) <= now) {
            *known = Known {
                limit: Limit {
                    version: 0,
                    slots: self.made,
                },
                at: None,
                has_met: true,
            };
        }
        known.limit
    }

    /// Returns true if a limit was ever met.
    pub(crate) fn has_met(&self) -> bool {
        self.known().has_met
    }

    /// Notes that a majority has answered with this limit.
    pub(crate) fn set(&self, limit: Limit, now: Tick, rules: Rules) {
        let mut known = self.known();
        let is_ours = limit.slots == known.limit.slots && limit.version >= known.limit.version;
        let again = known.has_met && limit.version > 1 && known.limit.version == 0;
        if is_ours || again || limit.follows(known.limit, rules) {
            *known = Known {
                limit,
                at: Some(now),
                has_met: true,
            };
        }
    }

    /// Notes that this process has changed the limit.
    pub(crate) fn changed(&self, limit: Limit, now: Tick) {
        let mut known = self.known();
        if limit.version >= known.limit.version {
            *known = Known {
                limit,
                at: Some(now),
                has_met: true,
            };
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(version: u64, slots: u32) -> Limit {
        Limit { version, slots }
    }

    #[test]
    fn the_newer_limit_wins_and_the_smaller_of_one_version() {
        for (one, other) in [(limit(2, 9), limit(1, 3)), (limit(1, 3), limit(1, 9))] {
            assert!(one.beats(other, Rules::ALL));
            assert!(!other.beats(one, Rules::ALL));
            assert!(!one.beats(one, Rules::ALL));
        }
    }

    #[test]
    fn a_newer_limit_is_followed_and_an_initial_one_is_not() {
        let follows = |one: (u64, u32), other: (u64, u32)| {
            limit(one.0, one.1).follows(limit(other.0, other.1), Rules::ALL)
        };
        assert!(follows((2, 9), (1, 3)) && follows((2, 3), (2, 9)));
        assert!(!follows((2, 9), (0, 3)), "who has met none");
        assert!(!follows((1, 3), (1, 9)), "two at the beginning");
        assert!(!follows((1, 3), (2, 9)), "an older one");
    }

    #[test]
    fn a_limit_not_confirmed_for_long_is_forgotten() {
        let at = |s: u64| Tick::from_nanos(s * 1_000_000_000);
        let agreed = Agreed::new(3);
        let after = Duration::from_secs(10);
        assert_eq!(agreed.at(at(1), after), limit(0, 3));
        agreed.set(limit(4, 7), at(1), Rules::ALL);
        assert_eq!(agreed.at(at(1), after), limit(0, 3), "a conflict");
        agreed.set(limit(1, 3), at(1), Rules::ALL);
        agreed.set(limit(4, 7), at(1), Rules::ALL);
        assert_eq!(agreed.at(at(10), after), limit(4, 7));
        agreed.set(limit(3, 5), at(10), Rules::ALL);
        assert_eq!(agreed.at(at(10), after), limit(4, 7), "an older one");
        assert_eq!(agreed.at(at(11), after), limit(0, 3));
    }
}
