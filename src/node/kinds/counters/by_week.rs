//! Counters that go by the number of the week: what [`Rule::RotateByAge`](crate::rules::Rule) stands
//! against. For the simulation, which has to find the mistake.

use std::collections::BTreeMap;

use super::{Generation, WEEK_US};

/// By the number of the week.
#[derive(Clone, Debug, Default)]
pub(super) struct Weeks(BTreeMap<u64, Generation>);

impl Weeks {
    pub(super) fn current(&mut self, time: u64) -> &mut Generation {
        self.0.entry(time / WEEK_US).or_default()
    }

    pub(super) fn both(&self, time: u64) -> [Option<&Generation>; 2] {
        let week = time / WEEK_US;
        [week, week.saturating_sub(1)].map(|week| self.0.get(&week))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Generation> {
        self.0.values()
    }
}
