//! The first limit stands. This is for programs that are made with different limits while nobody resizes: all leases
//! are of one limit once the first holder has had time to tell it to every node.

use super::{Held, Operation, Violation};

/// The limit under which the semaphore is held.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    first: Option<(u32, Operation)>,
}

impl Settled {
    /// Checks a lease of a program that is made with this limit. `within` is the time that it takes to tell every node.
    pub(crate) fn granted(&mut self, lease: &Operation, limit: u32, within: u64) -> Held {
        let Some((first, op)) = &mut self.first else {
            self.first = Some((limit, lease.clone()));
            return Ok(());
        };
        if *first == limit {
            return Ok(());
        }
        let told_at = op.answered_at.unwrap_or(op.asked_at) + within;
        if lease.asked_at < told_at {
            // If both are made at the same time, the smaller limit wins.
            *first = limit.min(*first);
            return Ok(());
        }
        let what = format!("the limit was {first}, and it holds under {limit}");
        Err(Violation::new("the first limit stands", what, &[op, lease]))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_wrong_limit_that_takes_over_is_found() {
        let mut settled = Settled::default();
        assert_eq!(settled.granted(&operation(1, 5, 0, 10), 3, 50), Ok(()));
        assert_eq!(settled.granted(&operation(2, 6, 59, 70), 2, 50), Ok(()));
        assert_eq!(settled.granted(&operation(2, 7, 80, 90), 2, 50), Ok(()));
        assert!(settled.granted(&operation(1, 8, 80, 90), 3, 50).is_err());
    }
}
