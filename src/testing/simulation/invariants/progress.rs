//! Once the faults are over, every waiter gets the lock, and every client can lock again.

use super::{Held, Operation, Violation};

/// A call that should have been answered by now is still waiting.
pub(crate) fn answered(call: &Operation, now: u64) -> Held {
    let what = format!(
        "the faults are over, and at {} it is still waiting",
        super::ms(now)
    );
    Err(Violation::new("progress", what, &[call]))
}

/// Checks a call after the faults, which must succeed.
pub(crate) fn succeeded(call: &Operation, outcome: Result<(), String>) -> Held {
    outcome.map_err(|why| {
        let what = format!("the faults are over, and it ended with: {why}");
        Violation::new("progress", what, &[call])
    })
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn an_unanswered_call_and_an_error_are_found() {
        let call = operation(1, 0, 100, 0);
        assert!(answered(&call, 500).is_err());
        assert!(succeeded(&call, Err("no quorum".into())).is_err());
        assert_eq!(succeeded(&call, Ok(())), Ok(()));
    }
}
