//! In every interval of a limit's length, wherever it begins by an outside clock, at most as many units are used as the
//! limit says. If programs have different limits, it is the greatest of those by which units of that interval were used.

use std::collections::VecDeque;

use super::{Held, Operation, Violation, ms};

/// The units of one interval.
#[derive(Debug)]
pub(crate) struct Spent {
    period: u64,
    used: VecDeque<Used>,
}

#[derive(Debug)]
struct Used {
    at: u64,
    units: u32,
    /// The limit of the program that used them.
    limit: u32,
    op: Operation,
}

impl Spent {
    /// `period`: in ns.
    pub(crate) fn new(period: u64) -> Self {
        Self {
            period,
            used: VecDeque::new(),
        }
    }

    /// Units are used now, by a program that has this limit.
    pub(crate) fn used(&mut self, now: u64, units: u32, limit: u32, op: &Operation) -> Held {
        // Units that are a whole interval older share no interval with these.
        while self
            .used
            .front()
            .is_some_and(|used| used.at + self.period <= now)
        {
            self.used.pop_front();
        }
        self.used.push_back(Used {
            at: now,
            units,
            limit,
            op: op.clone(),
        });
        // From the newest back: each interval that ends now, however long it is up to `period`. It may begin behind the
        // last units of a greater limit.
        let (mut sum, mut most) = (0, 0);
        let mut used = self.used.iter().rev().peekable();
        while let Some(one) = used.next() {
            sum += one.units;
            most = most.max(one.limit);
            // Units of the same instant are in the same intervals.
            let begins = used.peek().is_none_or(|before| before.at < one.at);
            if begins && sum > most {
                let what = format!(
                    "at {} {sum} units were used within {}, and the greatest limit is {most}",
                    ms(now),
                    ms(self.period),
                );
                let ops: Vec<&Operation> = self.used.iter().map(|used| &used.op).collect();
                return Err(Violation::new("no more units than the limit", what, &ops));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn one_unit_too_many_in_any_interval_is_found() {
        let op = operation(1, 5, 0, 10);
        let mut spent = Spent::new(100);
        assert_eq!(spent.used(0, 2, 3, &op), Ok(()));
        assert_eq!(spent.used(60, 1, 3, &op), Ok(()));
        // The interval [60, 160) does not begin at a multiple of the length.
        assert_eq!(spent.used(100, 2, 3, &op), Ok(()));
        assert!(spent.used(159, 1, 3, &op).is_err());
    }

    #[test]
    fn units_a_whole_interval_apart_do_not_count_together() {
        let op = operation(1, 5, 0, 10);
        let mut spent = Spent::new(100);
        assert_eq!(spent.used(0, 1, 1, &op), Ok(()));
        assert!(spent.used(99, 1, 1, &op).is_err());
        let mut spent = Spent::new(100);
        assert_eq!(spent.used(0, 1, 1, &op), Ok(()));
        assert_eq!(spent.used(100, 1, 1, &op), Ok(()));
    }

    #[test]
    fn two_limits_allow_the_greater_while_both_are_used() {
        let op = operation(1, 5, 0, 10);
        let mut spent = Spent::new(100);
        assert_eq!(spent.used(0, 5, 5, &op), Ok(()));
        assert!(spent.used(50, 1, 3, &op).is_err(), "6 of 5");
        let mut spent = Spent::new(100);
        assert_eq!(spent.used(0, 2, 5, &op), Ok(()));
        assert_eq!(spent.used(10, 3, 3, &op), Ok(()));
        assert!(spent.used(20, 1, 3, &op).is_err());
    }

    #[test]
    fn behind_the_last_unit_of_a_greater_limit_the_smaller_one_holds() {
        let op = operation(1, 5, 0, 10);
        let mut spent = Spent::new(100);
        assert_eq!(spent.used(0, 1, 20, &op), Ok(()));
        assert_eq!(spent.used(10, 3, 3, &op), Ok(()));
        // Within (0, 20] four units of the limit of 3 were used, though 5 of 20 within [0, 20].
        assert!(spent.used(20, 1, 3, &op).is_err());
        // At one instant the two limits have no interval between them.
        let mut spent = Spent::new(100);
        assert_eq!(spent.used(0, 1, 20, &op), Ok(()));
        assert_eq!(spent.used(0, 4, 3, &op), Ok(()));
    }
}
