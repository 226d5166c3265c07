//! A semaphore admits no more holders than its limit. At every instant of true time, the number of its slots that are
//! held by good leases, each by its own holder's clock, is at most the limit. While it is resized, it is at most the
//! greatest limit that was asked for.

use super::{Held, Operation, Violation, ms};

/// Checks all leases of one semaphore that are good now, one for each slot.
pub(crate) fn check(now: u64, limit: u32, good: &[&Operation]) -> Held {
    if good.len() <= limit as usize {
        return Ok(());
    }
    let what = format!(
        "at {} there are {} holders, and the limit is {limit}",
        ms(now),
        good.len()
    );
    Err(Violation::new("no more than the limit", what, good))
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn one_holder_too_many_is_found() {
        let (a, b) = (operation(1, 5, 0, 10), operation(2, 6, 5, 20));
        assert_eq!(check(30, 2, &[&a, &b]), Ok(()));
        assert_eq!(check(30, 1, &[&a, &b]).unwrap_err().operations, [a, b]);
    }
}
