//! The counters of the locks: `c0` and `c1` of a server (protocol §3). They outlive their locks, and go
//! when nobody has taken the lock for a week or two.

#[cfg(any(test, feature = "test-util"))]
mod by_week;

use std::collections::HashMap;

use crate::{
    name::Name,
    node::kinds::moment::Moment,
    rules::{Rule, Rules},
};

/// The greatest token: 2^53 - 1. Lua counts in doubles, where 2^53 + 1 is 2^53.
pub(super) const MAX_TOKEN: u64 = (1 << 53) - 1;

/// Counters as old as this become the previous ones.
const WEEK_US: u64 = 7 * 24 * 3600 * 1_000_000;

/// All counters of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// `c0`.
    current: Option<Generation>,
    /// `c1`.
    previous: Option<Generation>,
    /// In their place, without [`Rule::RotateByAge`].
    #[cfg(any(test, feature = "test-util"))]
    by_week: by_week::Weeks,
}

/// Counters that were begun together.
#[derive(Clone, Debug, Default)]
pub(super) struct Generation {
    /// `_`: the TIME at which it was begun.
    begun: Option<u64>,
    counters: HashMap<Name, u64>,
}

impl Counters {
    /// The newest token of this name; 0 if none.
    pub(super) fn read(&self, name: &Name, at: Moment) -> u64 {
        let both = [self.current.as_ref(), self.previous.as_ref()];
        #[cfg(any(test, feature = "test-util"))]
        let both = match at.rules.hold(Rule::RotateByAge) {
            true => both,
            false => self.by_week.both(at.time),
        };
        let [current, previous] = both.map(|generation| {
            let counter = generation.and_then(|generation| generation.counters.get(name));
            counter.copied().unwrap_or(0)
        });
        larger(current, previous, at.rules)
    }

    /// Whether the current ones are older than a week.
    pub(super) fn are_old(&self, at: Moment) -> bool {
        let begun = self.current.as_ref().and_then(|current| current.begun);
        begun.is_some_and(|begun| at.time.saturating_sub(begun) > WEEK_US)
    }

    /// Before a grant: counters that are older than a week become the previous ones.
    pub(super) fn begin(&mut self, at: Moment) {
        if self.are_old(at) {
            self.previous = self.current.take();
        }
        self.current(at).begun.get_or_insert(at.time);
    }

    pub(super) fn write(&mut self, name: &Name, token: u64, at: Moment) {
        let written = match at.rules.hold(Rule::AllDigits) {
            true => token,
            false => fourteen_digits(token),
        };
        self.current(at).counters.insert(name.clone(), written);
    }

    /// All that stand there.
    pub(super) fn generations(&self) -> impl Iterator<Item = &Generation> {
        let both = self.current.iter().chain(&self.previous);
        #[cfg(any(test, feature = "test-util"))]
        let both = both.chain(self.by_week.all());
        both
    }

    #[cfg_attr(not(any(test, feature = "test-util")), allow(unused_variables))]
    fn current(&mut self, at: Moment) -> &mut Generation {
        #[cfg(any(test, feature = "test-util"))]
        if !at.rules.hold(Rule::RotateByAge) {
            return self.by_week.current(at.time);
        }
        self.current.get_or_insert_default()
    }
}

/// For tests: as an operator writes them.
#[cfg(any(test, feature = "test-util"))]
impl Counters {
    /// Makes the current counters begin at this TIME.
    pub(crate) fn set_begun(&mut self, time: u64) {
        self.current.get_or_insert_default().begun = Some(time);
    }

    pub(crate) fn set(&mut self, name: &Name, counter: u64) {
        let current = self.current.get_or_insert_default();
        current.counters.insert(name.clone(), counter);
    }
}

impl Generation {
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.counters.keys()
    }
}

/// The greater of two counters.
pub(super) fn larger(a: u64, b: u64, rules: Rules) -> u64 {
    if rules.hold(Rule::NumericCounters) {
        a.max(b)
    } else if a.to_string() > b.to_string() {
        a
    } else {
        b
    }
}

/// What is left of a number that Lua wrote by `tostring`: `%.14g`.
fn fourteen_digits(n: u64) -> u64 {
    let unit = 10_u64.pow(n.checked_ilog10().unwrap_or(0).saturating_sub(13));
    n.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_lua_keeps_fourteen_digits() {
        assert_eq!(fourteen_digits(99_999_999_999_999), 99_999_999_999_999);
        assert_eq!(fourteen_digits(999_999_999_999_996), 1_000_000_000_000_000);
        assert_eq!(fourteen_digits(0), 0);
    }
}
