//! A renewed lease outlives servers that restart one after the other. Each of them restarts only when the one before
//! votes and knows the lease again.

use super::{Held, Operation, Violation, ms};

/// The number of these restarts since the lease was granted. `None` if a restart was so shortly before or after the
/// grant that the lease may stand on too few servers.
pub(crate) fn restarts(lease: &Operation, now: u64, restarts: &[u64], age: u64) -> Option<u64> {
    let granted = lease.answered_at.unwrap_or(lease.asked_at);
    let is_near = |at: &u64| at.abs_diff(granted) < age;
    let seen = restarts.iter().filter(|at| (granted..now).contains(*at));
    (!restarts.iter().any(is_near)).then(|| seen.count() as u64)
}

/// A lease is over although its holder wants it.
pub(crate) fn check(lease: &Operation, now: u64, restarts: Option<u64>) -> Held {
    match restarts {
        Some(restarts) => {
            let what = format!("after {restarts} restarts it is over at {}", ms(now));
            Err(Violation::new("a lease outlives restarts", what, &[lease]))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_lease_that_did_not_outlive_restarts_is_found() {
        let lease = operation(1, 5, 0, 10);
        assert_eq!(restarts(&lease, 50, &[4, 16, 40, 60], 6), Some(2));
        assert_eq!(restarts(&lease, 50, &[4, 15, 40, 60], 6), None, "young");
        assert_eq!(
            restarts(&lease, 50, &[5, 16, 40, 60], 6),
            None,
            "just before"
        );
        assert_eq!(restarts(&lease, 50, &[], 20), Some(0));
        assert!(check(&lease, 50, Some(0)).is_err());
        assert_eq!(check(&lease, 50, None), Ok(()));
    }
}
