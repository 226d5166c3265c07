//! A holder learns within one ttl that an operator freed the name: no extension succeeds any more.

use super::{Held, Operation, Violation, ms};

/// A lease that is good, and when it should have been over because of an eviction.
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
    fn it_sees_a_lease_outlive_its_eviction() {
        let lease = operation(1, 5, 0, 10);
        assert_eq!(check(&lease, 50, None), Ok(()));
        assert_eq!(check(&lease, 50, Some(50)), Ok(()));
        assert!(check(&lease, 51, Some(50)).is_err());
    }
}
