//! No place left: when nobody waits any more, nobody stands in line on any node, but those whose process died, and
//! these no longer than they live.

use super::{Held, Violation};

/// Those who stand on a node though their processes live, for people.
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
    fn it_sees_who_stands_there() {
        assert_eq!(check(0, &[]), Ok(()));
        assert!(check(0, &["a".into()]).unwrap_err().what.contains("node 0"));
    }
}
