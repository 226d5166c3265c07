//! No key is left: when nobody holds or wants anything any more, no lock stands on any node.

use super::{Held, Violation};

/// Checks the locks that stand on a node.
pub(crate) fn check(node: usize, locks: &[String]) -> Held {
    match locks.first() {
        None => Ok(()),
        Some(lock) => {
            let what = format!("node {node} still keeps {lock}, {} in all", locks.len());
            Err(Violation::new("no key left", what, &[]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leftover_key_is_found() {
        assert_eq!(check(0, &[]), Ok(()));
        assert!(check(0, &["a".into()]).unwrap_err().what.contains("node 0"));
    }
}
