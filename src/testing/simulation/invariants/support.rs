//! A token that is given to a caller stood on a majority of nodes, with exactly this value, under an entry of its
//! holder that is not being taken back.

use std::collections::{BTreeMap, BTreeSet};

use super::{Held, Operation, Violation};

/// For each entry and counter, the nodes that named this counter in answer to a grant or a raise.
#[derive(Debug, Default)]
pub(crate) struct Support(BTreeMap<(String, u64), BTreeSet<usize>>);

impl Support {
    /// A node named this counter to this entry.
    pub(crate) fn stood(&mut self, node: usize, entry: &str, counter: u64) {
        self.0
            .entry((entry.to_owned(), counter))
            .or_default()
            .insert(node);
    }

    /// Checks a lease with this token, of a client that has these entries.
    pub(crate) fn granted(&self, lease: &Operation, entries: &[String], needed: usize) -> Held {
        let token = lease.token.unwrap_or(0);
        let on = |entry: &String| self.0.get(&(entry.clone(), token)).map_or(0, BTreeSet::len);
        let most = entries.iter().map(on).max().unwrap_or(0);
        if most >= needed {
            return Ok(());
        }
        let what = format!("its token stood on {most} nodes, not on {needed}");
        Err(Violation::new(
            "a token stands on a majority",
            what,
            &[lease],
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_token_on_a_minority_is_found() {
        let mut support = Support::default();
        let entries = ["x".to_owned(), "y".to_owned()];
        support.stood(0, "x", 5);
        support.stood(1, "x", 6);
        support.stood(1, "y", 5);
        let lease = operation(1, 5, 0, 10);
        assert!(support.granted(&lease, &entries, 2).is_err());
        support.stood(2, "x", 5);
        assert_eq!(support.granted(&lease, &entries, 2), Ok(()));
    }
}
