//! The units that one node has given out in one interval of a limit, by bucket. Pure; all times are ms of the node's
//! clock.

use std::{collections::VecDeque, time::Duration};

use super::Stamp;
use crate::{
    base::{
        quota::Window,
        rules::{Rule, Rules},
    },
    node::answer::TakenUnits,
};

/// Older buckets do not count.
const MOST_BUCKETS: usize = 30;

/// The units of one interval that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ledger {
    /// The number of the last bucket. Bucket q ends at q · b.
    top: u64,
    /// The time since which it counts: its first unit, or the last time that the clock went back.
    pub(super) era: u64,
    /// Units by bucket, from the last one back.
    units: VecDeque<u32>,
    /// The time until which it is kept.
    pub(super) until: u64,
}

/// One interval at one instant.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    now: u64,
    kept: u64,
    ahead: u64,
    bucket: u64,
    /// If set, units count until the next multiple of this, in ms: see [`Rule::SlidingInterval`].
    fixed: Option<u64>,
}

impl Scale {
    pub(super) fn new(window: Window, now: u64, rules: Rules) -> Self {
        let slides = rules.hold(Rule::SlidingInterval);
        Self {
            fixed: (!slides).then(|| window.ms()),
            now,
            kept: window.kept(),
            ahead: window.ahead(),
            bucket: window.bucket(),
        }
    }

    /// The last bucket in which a unit can be counted now.
    fn top(self) -> u64 {
        (self.now + self.ahead).div_ceil(self.bucket)
    }

    /// The time at which the units of a bucket are free again.
    fn free_at(self, bucket: u64) -> u64 {
        match self.fixed {
            None => bucket * self.bucket + self.kept,
            Some(period) => (bucket * self.bucket).next_multiple_of(period),
        }
    }
}

impl Ledger {
    /// The ledger at this instant, and true if the clock went back. In that case, units that were counted further ahead
    /// than is possible now count as if they were taken now.
    pub(super) fn at(known: Option<&Self>, scale: Scale) -> (Self, bool) {
        let top = scale.top();
        let Some(known) = known else {
            let new = Self {
                top,
                era: scale.now,
                units: VecDeque::from([0]),
                until: 0,
            };
            return (new, false);
        };
        let mut ledger = known.clone();
        if ledger.top > top {
            // The number of buckets that lie too far ahead.
            let beyond = usize::try_from(ledger.top - top).unwrap_or(usize::MAX);
            let mut merged = 0_u32;
            for _ in 0..=beyond.min(ledger.units.len()) {
                merged = merged.saturating_add(ledger.units.pop_front().unwrap_or(0));
            }
            ledger.units.push_front(merged);
            (ledger.top, ledger.era) = (top, scale.now);
            return (ledger, true);
        }
        let new = usize::try_from(top - ledger.top).unwrap_or(usize::MAX);
        for _ in 0..new.min(MOST_BUCKETS) {
            ledger.units.push_front(0);
        }
        ledger.units.truncate(MOST_BUCKETS);
        ledger.top = top;
        (ledger, false)
    }

    /// The units that count, with the time at which they are free. The earliest comes first.
    fn counting(&self, scale: Scale) -> impl Iterator<Item = (u64, u32)> + '_ {
        let units = self.units.iter().enumerate().rev();
        let units = units.map(move |(back, units)| (self.top.saturating_sub(back as u64), *units));
        units
            .map(move |(bucket, units)| (scale.free_at(bucket), units))
            .filter(move |(free_at, units)| *units > 0 && *free_at > scale.now)
    }

    /// The number of units of this share that are left.
    pub(super) fn room(&self, share: u32, scale: Scale) -> u32 {
        share.saturating_sub(self.sum(scale))
    }

    fn sum(&self, scale: Scale) -> u32 {
        let counting = self.counting(scale);
        counting.fold(0, |sum, (_, units)| sum.saturating_add(units))
    }

    /// The time until this many units of the share are free. None: never.
    pub(super) fn wait(&self, wanted: u32, share: u32, scale: Scale) -> Option<Duration> {
        let most = share.checked_sub(wanted)?;
        let mut taken = self.sum(scale);
        let mut wait = 0;
        for (free_at, units) in self.counting(scale) {
            if taken <= most {
                break;
            }
            taken = taken.saturating_sub(units);
            wait = free_at - scale.now;
        }
        Some(Duration::from_millis(wait))
    }

    /// Counts units that may be used for `age` from now on.
    pub(super) fn spend(&mut self, units: u32, age: u64, scale: Scale) -> Stamp {
        let age = age.min(scale.ahead);
        let bucket = (scale.now + age).div_ceil(scale.bucket);
        if let Some(back) = self.back(bucket) {
            let known = self.units.len().max(back + 1);
            self.units.resize(known, 0);
            if let Some(counted) = self.units.get_mut(back) {
                *counted = counted.saturating_add(units);
            }
        }
        Stamp {
            bucket,
            era: self.era,
        }
    }

    /// Sets the time until which it is kept, counted from this write.
    pub(super) fn written(&mut self, scale: Scale) {
        self.until = scale.free_at(self.top);
    }

    /// Gives back units that were counted there. Returns true if they still count.
    pub(super) fn refund(&mut self, units: u32, stamp: Stamp) -> bool {
        let back = self.back(stamp.bucket).filter(|_| stamp.era == self.era);
        let Some(counted) = back.and_then(|back| self.units.get_mut(back)) else {
            return false;
        };
        *counted = counted.saturating_sub(units);
        true
    }

    /// The units that count, in the order in which they become free.
    pub(super) fn taken(&self, scale: Scale) -> Box<[TakenUnits]> {
        let taken = self.counting(scale).map(|(free_at, units)| TakenUnits {
            left: Duration::from_millis(free_at - scale.now),
            units,
        });
        taken.collect()
    }

    /// The index of a bucket, counted back from the last one.
    fn back(&self, bucket: u64) -> Option<usize> {
        usize::try_from(self.top.checked_sub(bucket)?).ok()
    }
}

#[cfg(test)]
mod tests;
