//! No place is left: when nobody waits any more, no node has a waiter in its queue. Waiters whose process died are the
//! exception, but they are gone after their life.

use super::{Held, Violation};

/// Checks the waiters that stand on a node although their processes live.
pub(crate) fn check(node: usize, waiters: &[String]) -> Held {
    match waiters.first() {
        None => Ok(()),
        Some(waiter) => {
            let what = format!(
                "on node {node} still waits {waiter}, {} in all",
                waiters.len()
            );
            Err(Violation::new("no place left", what, &[]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leftover_waiter_is_found() {
        assert_eq!(check(0, &[]), Ok(()));
        assert!(check(0, &["a".into()]).unwrap_err().what.contains("node 0"));
    }
}
