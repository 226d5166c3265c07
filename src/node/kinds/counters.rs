//! The counters of everything that can be held: `c0` and `c1` of a server (protocol §3). A counter outlives what it
//! counts for. It goes when nobody has taken that for two to four days.

#[cfg(any(test, feature = "test-util"))]
mod by_calendar;

use std::collections::HashMap;

use super::moment::Moment;
use crate::{
    base::{
        name::Name,
        rules::{Rule, Rules},
    },
    node::{fault::Fault, request::Pool, wire::ms},
};

/// The greatest token: 2^53 - 1. Lua counts in doubles, where 2^53 + 1 is 2^53.
pub(crate) const MAX_TOKEN: u64 = (1 << 53) - 1;

/// How much further a RAISE may go than an ACQUIRE.
const MINUTE_US: u64 = 60_000_000;

/// The age at which `c0` becomes `c1`.
const TWO_DAYS_US: u64 = 2 * 24 * 3600 * 1_000_000;

/// The lock or slot that a counter belongs to. It is a field of the two hashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Counted {
    /// The lock of this name.
    Mutex(Name),
    /// The read-write lock of this name.
    Rwlock(Name),
    /// A slot.
    Slot(Pool, u32),
}

/// All counters of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// `c0`.
    current: Option<Generation>,
    /// `c1`.
    previous: Option<Generation>,
    /// True for counters that are stored beside their slots. They go together with the slots, and not by age.
    are_beside_slots: bool,
    /// Used in their place when [`Rule::RotateByAge`] is off.
    #[cfg(any(test, feature = "test-util"))]
    by_calendar: by_calendar::Periods,
}

/// Makes the next token.
#[derive(Debug)]
pub(crate) struct Mint<'c> {
    /// p, cut to the cap.
    pub(crate) floor: u64,
    pub(crate) counters: &'c mut Counters,
}

/// Counters that were begun together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generation {
    /// `_`: the TIME at which it was begun.
    begun: Option<u64>,
    counters: HashMap<Counted, u64>,
}

impl Counters {
    /// The counters of a pool whose tokens nobody is shown.
    pub(crate) fn beside_slots() -> Self {
        Self {
            are_beside_slots: true,
            ..Self::default()
        }
    }

    /// The newest token; 0 if there is none.
    pub(crate) fn read(&self, of: &Counted, at: Moment) -> u64 {
        let both = [self.current.as_ref(), self.previous.as_ref()];
        #[cfg(any(test, feature = "test-util"))]
        let both = match at.rules.hold(Rule::RotateByAge) {
            true => both,
            false => self.by_calendar.both(at.time),
        };
        let [current, previous] = both.map(|generation| {
            let counter = generation.and_then(|generation| generation.counters.get(of));
            counter.copied().unwrap_or(0)
        });
        larger(current, previous, at.rules)
    }

    /// Raises the counter to the token, or to the cap of a RAISE if that is less. Returns the new counter.
    pub(crate) fn raise(&mut self, of: &Counted, token: u64, at: Moment) -> Result<u64, Fault> {
        let counter = self.read(of, at);
        let raised = larger(counter, token.min(raise_cap(at)), at.rules);
        if raised != counter {
            at.may_write()?;
            self.write(of, raised, at);
        }
        Ok(raised)
    }

    /// Raises the counter to the token, and fails if the token is beyond the cap of a RAISE. Returns true if the
    /// counter was less.
    pub(crate) fn bring_to(&mut self, of: &Counted, token: u64, at: Moment) -> Result<bool, Fault> {
        let counter = self.read(of, at);
        let raised = larger(counter, token, at.rules);
        if raised == counter {
            return Ok(false);
        }
        if token > raise_cap(at) {
            return Err(Fault::Error(
                "AHEAD the token is further ahead than a counter may be".into(),
            ));
        }
        at.may_write()?;
        self.write(of, raised, at);
        Ok(true)
    }

    /// Called before a grant: counters older than two days become the previous ones.
    pub(crate) fn begin(&mut self, at: Moment) {
        if self.are_old(at) {
            self.previous = self.current.take();
        }
        self.current(at).begun.get_or_insert(at.time);
    }

    pub(crate) fn write(&mut self, of: &Counted, token: u64, at: Moment) {
        let written = match at.rules.hold(Rule::AllDigits) {
            true => token,
            false => fourteen_digits(token),
        };
        self.current(at).counters.insert(of.clone(), written);
    }

    /// Returns true if any token was given out.
    pub(crate) fn is_used(&self) -> bool {
        self.generations().next().is_some()
    }

    /// The name of something that has a counter. A server picks any. This picks the first, so that a seed replays the
    /// same texts.
    pub(crate) fn one_name(&self) -> Option<&Name> {
        self.generations()
            .find_map(|generation| generation.counters.keys().map(Counted::name).min())
    }

    /// True if the current counters are older than two days.
    fn are_old(&self, at: Moment) -> bool {
        let begun = self.current.as_ref().and_then(|current| current.begun);
        !self.are_beside_slots
            && begun.is_some_and(|begun| at.time.saturating_sub(begun) > TWO_DAYS_US)
    }

    /// All counters that exist.
    pub(crate) fn generations(&self) -> impl Iterator<Item = &Generation> {
        let both = self.current.iter().chain(&self.previous);
        #[cfg(any(test, feature = "test-util"))]
        let both = both.chain(self.by_calendar.all());
        both
    }

    #[cfg_attr(not(any(test, feature = "test-util")), allow(unused_variables))]
    fn current(&mut self, at: Moment) -> &mut Generation {
        #[cfg(any(test, feature = "test-util"))]
        if !at.rules.hold(Rule::RotateByAge) {
            return self.by_calendar.current(at.time);
        }
        self.current.get_or_insert_default()
    }
}

impl<'c> Mint<'c> {
    /// A p far ahead is cut, never ignored.
    pub(crate) fn new(floor: u64, counters: &'c mut Counters, at: Moment) -> Self {
        let floor = match ahead(at) {
            cap if floor <= cap => floor,
            cap if at.rules.hold(Rule::ProposalCapped) => cap,
            _ => 0,
        };
        Self { floor, counters }
    }

    /// The next token, for a caller that has written nothing before it.
    pub(crate) fn token(&mut self, of: &Counted, at: Moment) -> Result<u64, Fault> {
        let counter = self.counters.read(of, at);
        let token = larger(counter.saturating_add(1), self.floor, at.rules);
        if token > MAX_TOKEN {
            return exhausted();
        }
        // UNLINK of old counters is then the first write, and a full server permits it.
        match self.counters.are_old(at) {
            true => at.may_delete()?,
            false => at.may_write()?,
        }
        self.counters.begin(at);
        self.counters.write(of, token, at);
        Ok(token)
    }
}

/// For tests: changes that an operator could make.
#[cfg(any(test, feature = "test-util"))]
impl Counters {
    /// Makes the current counters begin at this TIME.
    pub(crate) fn set_begun(&mut self, time: u64) {
        self.current.get_or_insert_default().begun = Some(time);
    }

    pub(crate) fn set(&mut self, of: Counted, counter: u64) {
        let current = self.current.get_or_insert_default();
        current.counters.insert(of, counter);
    }
}

impl Counted {
    fn name(&self) -> &Name {
        match self {
            Self::Mutex(name) | Self::Rwlock(name) | Self::Slot(Pool { name, .. }, _) => name,
        }
    }
}

/// The greatest value to which a RAISE may bring a counter.
fn raise_cap(at: Moment) -> u64 {
    ahead(at).saturating_add(MINUTE_US)
}

/// The greatest value to which an ACQUIRE may bring a counter, unless the counter is there already.
fn ahead(at: Moment) -> u64 {
    let ahead = ms(at.max_ttl()).saturating_mul(1000);
    at.time.saturating_add(ahead)
}

pub(crate) fn exhausted<T>() -> Result<T, Fault> {
    Err(Fault::Error("EXHAUSTED the counter is at 2^53 - 1".into()))
}

/// The greater of two counters.
pub(crate) fn larger(a: u64, b: u64, rules: Rules) -> u64 {
    if rules.hold(Rule::NumericCounters) {
        a.max(b)
    } else if a.to_string() > b.to_string() {
        a
    } else {
        b
    }
}

/// The value that is left of a number that Lua wrote with `tostring`, which uses `%.14g`.
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
