//! In every interval of a limit's length, wherever it begins by an outside clock, at most as many units are used as the
//! limit says.

use std::collections::VecDeque;

use super::{Held, Operation, Violation, ms};

/// The units of one limit in one interval.
#[derive(Debug)]
pub(crate) struct Spent {
    limit: u32,
    period: u64,
    used: VecDeque<(u64, u32, Operation)>,
}

impl Spent {
    /// `period`: in ns.
    pub(crate) fn new(limit: u32, period: u64) -> Self {
        Self {
            limit,
            period,
            used: VecDeque::new(),
        }
    }

    /// Units are used now.
    pub(crate) fn used(&mut self, now: u64, units: u32, op: &Operation) -> Held {
        // Units that are a whole interval older share no interval with these.
        while self
            .used
            .front()
            .is_some_and(|(at, ..)| at + self.period <= now)
        {
            self.used.pop_front();
        }
        self.used.push_back((now, units, op.clone()));
        let sum: u32 = self.used.iter().map(|(_, units, _)| units).sum();
        if sum <= self.limit {
            return Ok(());
        }
        let what = format!(
            "at {} {sum} units were used within {}, and the limit is {}",
            ms(now),
            ms(self.period),
            self.limit
        );
        let ops: Vec<&Operation> = self.used.iter().map(|(.., op)| op).collect();
        Err(Violation::new("no more units than the limit", what, &ops))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn one_unit_too_many_in_any_interval_is_found() {
        let op = operation(1, 5, 0, 10);
        let mut spent = Spent::new(3, 100);
        assert_eq!(spent.used(0, 2, &op), Ok(()));
        assert_eq!(spent.used(60, 1, &op), Ok(()));
        // The interval [60, 160) does not begin at a multiple of the length.
        assert_eq!(spent.used(100, 2, &op), Ok(()));
        assert!(spent.used(159, 1, &op).is_err());
    }

    #[test]
    fn units_a_whole_interval_apart_do_not_count_together() {
        let op = operation(1, 5, 0, 10);
        let mut spent = Spent::new(1, 100);
        assert_eq!(spent.used(0, 1, &op), Ok(()));
        assert!(spent.used(99, 1, &op).is_err());
        let mut spent = Spent::new(1, 100);
        assert_eq!(spent.used(0, 1, &op), Ok(()));
        assert_eq!(spent.used(100, 1, &op), Ok(()));
    }
}
