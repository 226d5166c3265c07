//! Older connections to a node that may still carry what takes a lock. Each is ended on the server by
//! CLIENT KILL before anything is released, or a late ACQUIRE or REPAIR would come after its RELEASE.

use std::collections::BTreeSet;

use super::step::ClientId;
use crate::{node::admission::same_run, owner::Entry};

/// A connection is ended on the server only while it may still carry what takes a lock; more than this
/// many in doubt at once means a server that is gone, not one that is slow.
const MOST: usize = 8;

/// The connections in doubt, oldest first.
#[derive(Default)]
pub(super) struct Doubtful(Vec<Doubt>);

struct Doubt {
    client: ClientId,
    /// The run of the server that gave the id.
    run: String,
    /// For whom it may still take something.
    entries: BTreeSet<Entry>,
}

impl Doubtful {
    /// This connection was lost with something unanswered that takes a lock for each of these.
    pub(super) fn add(&mut self, client: ClientId, run: String, entries: BTreeSet<Entry>) {
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(Doubt {
            client,
            run,
            entries,
        });
    }

    /// Whether a lock may still be taken for this one.
    pub(super) fn may_take(&self, entry: &Entry) -> bool {
        self.0.iter().any(|doubt| doubt.entries.contains(entry))
    }

    /// The server is in this run. Connection ids start again with the server: one of another run is a
    /// stranger's by now.
    pub(super) fn keep_run(&mut self, run: &str) {
        self.0.retain(|doubt| same_run(&doubt.run, run));
    }

    /// The server ended it, or never will.
    pub(super) fn settle(&mut self, client: ClientId) {
        self.0.retain(|doubt| doubt.client != client);
    }

    /// What is to be ended.
    pub(super) fn clients(&self) -> Vec<ClientId> {
        self.0.iter().map(|doubt| doubt.client).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::owner::Label;

    const RUN: &str = "aaaa/00000000/-1";

    fn ids(doubtful: &Doubtful) -> Vec<u64> {
        doubtful.clients().iter().map(|client| client.0).collect()
    }

    #[test]
    fn the_oldest_is_forgotten_where_there_are_too_many() {
        let mut doubtful = Doubtful::default();
        let entry =
            |owner: u64| Entry::new(Uuid::from_u128(owner.into()), &Label::new("a").unwrap());
        for client in 0..10 {
            doubtful.add(ClientId(client), RUN.into(), [entry(client)].into());
        }
        assert_eq!(ids(&doubtful), [2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(doubtful.may_take(&entry(2)) && !doubtful.may_take(&entry(1)));
    }

    #[test]
    fn only_those_of_this_run_stay() {
        let mut doubtful = Doubtful::default();
        doubtful.add(ClientId(1), "bbbb/00000000/-1".into(), BTreeSet::new());
        doubtful.add(ClientId(2), RUN.into(), BTreeSet::new());
        doubtful.add(ClientId(3), RUN.into(), BTreeSet::new());
        doubtful.keep_run(RUN);
        assert_eq!(ids(&doubtful), [2, 3]);
        doubtful.settle(ClientId(2));
        assert_eq!(ids(&doubtful), [3]);
    }
}
