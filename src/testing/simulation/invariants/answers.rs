//! Every call is answered within its stated time. The time for which its process stands still does not count.

use super::{Held, Operation, Violation, ms};

/// Checks a call that is not answered yet.
pub(crate) fn check(call: &Operation, now: u64, paused: u64, bound: u64) -> Held {
    let waited = now.saturating_sub(call.asked_at).saturating_sub(paused);
    if waited <= bound {
        return Ok(());
    }
    let what = format!(
        "unanswered at {}: after {}, within {} was stated",
        ms(now),
        ms(waited),
        ms(bound)
    );
    Err(Violation::new("answers in time", what, &[call]))
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_late_answer_is_found() {
        let call = operation(1, 0, 100, 0);
        assert_eq!(check(&call, 150, 0, 50), Ok(()));
        assert!(check(&call, 151, 0, 50).is_err());
        assert_eq!(check(&call, 151, 1, 50), Ok(()), "it stood still");
    }
}
