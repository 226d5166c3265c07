//! Counters that go by the calendar, which [`Rule::RotateByAge`](crate::base::rules::Rule) forbids. They exist for the
//! simulation, which has to find the mistake.

use std::collections::BTreeMap;

use super::{Generation, TWO_DAYS_US};

/// By the index of each period of two days.
#[derive(Clone, Debug, Default)]
pub(super) struct Periods(BTreeMap<u64, Generation>);

impl Periods {
    pub(super) fn current(&mut self, time: u64) -> &mut Generation {
        self.0.entry(time / TWO_DAYS_US).or_default()
    }

    pub(super) fn both(&self, time: u64) -> [Option<&Generation>; 2] {
        let period = time / TWO_DAYS_US;
        [period, period.saturating_sub(1)].map(|period| self.0.get(&period))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Generation> {
        self.0.values()
    }
}
