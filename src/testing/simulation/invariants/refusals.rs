//! "Held by another" is reported only where a majority of nodes answered. An error reply does not count as an answer.

use super::{Held, Operation, Violation};

/// Checks a call that was told that the lock is held. This many nodes had answered it.
pub(crate) fn check(call: &Operation, answered: usize, needed: usize) -> Held {
    if answered >= needed {
        return Ok(());
    }
    let what = format!("told that it is held, and {answered} nodes had answered, not {needed}");
    Err(Violation::new("refusals are answers", what, &[call]))
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_refusal_without_a_majority_is_found() {
        let call = operation(1, 0, 100, 0);
        assert_eq!(check(&call, 2, 2), Ok(()));
        assert!(check(&call, 1, 2).is_err());
    }
}
