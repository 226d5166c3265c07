//! A lease that is over stays over.

use super::{Held, Operation, Violation, ms};

/// The last known state of a lease, by its holder's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The instant at which it will be over unless it is prolonged.
    pub(crate) over_at: u64,
    pub(crate) over: bool,
}

impl Seen {
    /// Checks the lease's state at this instant of its holder's clock. It is good or over, and lasts until `over_at`.
    pub(crate) fn observe(
        &mut self,
        lease: &Operation,
        now: u64,
        good: bool,
        over_at: u64,
    ) -> Held {
        let was_over = self.over || now >= self.over_at;
        if good && was_over {
            let what = format!(
                "it was over at {} of its holder's clock and is good at {}",
                ms(self.over_at),
                ms(now)
            );
            return Err(Violation::new("a loss is final", what, &[lease]));
        }
        self.over |= !good;
        if good {
            self.over_at = over_at;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_lost_lease_that_comes_back_is_found() {
        let lease = operation(1, 5, 0, 10);
        let mut seen = Seen {
            over_at: 100,
            over: false,
        };
        assert_eq!(
            seen.observe(&lease, 50, true, 150),
            Ok(()),
            "prolonged in time"
        );
        assert!(
            seen.observe(&lease, 150, true, 300).is_err(),
            "prolonged at its end"
        );
        let mut seen = Seen {
            over_at: 100,
            over: false,
        };
        assert_eq!(seen.observe(&lease, 60, false, 0), Ok(()));
        assert!(
            seen.observe(&lease, 70, true, 300).is_err(),
            "lost before, and good again"
        );
    }
}
