//! A holder learns within one ttl that an operator freed the name, because its extensions do not succeed any more.

use super::{Held, Operation, Violation, ms};

/// Checks a lease that is good. `over_by` says when it should have ended because of an eviction.
pub(crate) fn check(lease: &Operation, now: u64, over_by: Option<u64>) -> Held {
    match over_by {
        Some(at) if now > at => {
            let what = format!("evicted, to be over by {}, and good at {}", ms(at), ms(now));
            Err(Violation::new("an eviction is noticed", what, &[lease]))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_lease_that_outlives_its_eviction_is_found() {
        let lease = operation(1, 5, 0, 10);
        assert_eq!(check(&lease, 50, None), Ok(()));
        assert_eq!(check(&lease, 50, Some(50)), Ok(()));
        assert!(check(&lease, 51, Some(50)).is_err());
    }
}
