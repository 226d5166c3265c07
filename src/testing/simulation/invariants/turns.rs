//! Nobody is overtaken: while a waiter stands in the queue on a majority of the nodes, always the same ones, nobody who
//! asked later gets the lock.
//!
//! To stand on a node means to wait there or to hold there. Protocol §5 allows some events to take that from a waiter,
//! and they end the promise to it. The waiter left. Its node lost its memory or its queue. Its hand-over or its
//! reservation ran out, or nobody heard it: then the waiter comes back with its old ticket, and its place is promised
//! again from then on.

use std::collections::BTreeMap;

use super::{Held, Operation, Violation, ms};

/// The queue of one name.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// By entry and node: since when the entry stands there.
    since: BTreeMap<String, Vec<Option<u64>>>,
}

impl Turns {
    /// Notes the entries that stand on a node now.
    pub(crate) fn stand(&mut self, now: u64, node: usize, nodes: usize, standing: &[&str]) {
        for (entry, since) in &mut self.since {
            if let Some(at) = since.get_mut(node)
                && !standing.contains(&entry.as_str())
            {
                *at = None;
            }
        }
        for entry in standing {
            let since = self.since.entry((*entry).to_owned());
            let since = since.or_insert_with(|| vec![None; nodes]);
            if let Some(at) = since.get_mut(node) {
                at.get_or_insert(now);
            }
        }
        let stands = |since: &Vec<Option<u64>>| since.iter().any(Option::is_some);
        self.since.retain(|_, since| stands(since));
    }

    /// Checks a grant: no entry stands on a majority since before this one was asked for.
    pub(crate) fn granted(&self, lease: &Operation, needed: usize) -> Held {
        let before = |at: &&Option<u64>| at.is_some_and(|at| at < lease.asked_at);
        let overtaken = |since: &Vec<Option<u64>>| since.iter().filter(before).count() >= needed;
        match self.since.iter().find(|(_, since)| overtaken(since)) {
            None => Ok(()),
            Some((entry, since)) => {
                let since: Vec<String> = since.iter().map(|at| at.map_or("-".into(), ms)).collect();
                let what = format!("{entry} stands before it, since {}", since.join(", "));
                Err(Violation::new("nobody is overtaken", what, &[lease]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn an_overtaken_waiter_is_found() {
        let mut turns = Turns::default();
        turns.stand(10, 0, 3, &["a"]);
        turns.stand(20, 1, 3, &["a", "b"]);
        assert_eq!(
            turns.granted(&operation(1, 5, 15, 30), 2),
            Ok(()),
            "one of three"
        );
        assert_eq!(
            turns.granted(&operation(1, 5, 20, 30), 2),
            Ok(()),
            "no later"
        );
        assert!(turns.granted(&operation(1, 5, 21, 30), 2).is_err());
        turns.stand(25, 0, 3, &[]);
        turns.stand(26, 2, 3, &["a"]);
        assert_eq!(turns.granted(&operation(1, 5, 21, 30), 2), Ok(()), "others");
        assert!(turns.granted(&operation(1, 5, 27, 30), 2).is_err());
    }
}
