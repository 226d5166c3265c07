//! A token that is given out stood on a majority of nodes, exactly, under an entry of its holder that
//! nobody is taking back.

use std::collections::{BTreeMap, BTreeSet};

use super::{Held, Operation, Violation};

/// Where each entry's counter stood: as the nodes said it to a grant or a raise.
#[derive(Debug, Default)]
pub(crate) struct Support(BTreeMap<(String, u64), BTreeSet<usize>>);

impl Support {
    /// A node said so to this entry.
    pub(crate) fn stood(&mut self, node: usize, entry: &str, counter: u64) {
        self.0
            .entry((entry.to_owned(), counter))
            .or_default()
            .insert(node);
    }

    /// A lease with this token, by a client whose entries these are.
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
    fn it_sees_a_token_on_a_minority() {
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
