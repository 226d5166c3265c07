//! "Held by another" is said only where a majority of nodes answered; an error reply is no answer.

use super::{Held, Operation, Violation};

/// A call was told that the lock is held; this many nodes had answered it.
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
    fn it_sees_a_refusal_that_no_majority_said() {
        let call = operation(1, 0, 100, 0);
        assert_eq!(check(&call, 2, 2), Ok(()));
        assert!(check(&call, 1, 2).is_err());
    }
}
