//! Older connections to a node that may still carry what takes a lock. Each is ended on the server by
//! CLIENT KILL before anything is released, or a late ACQUIRE or REPAIR would come after its RELEASE. Where that is not
//! permitted it stays in doubt: what takes a slot of a semaphore also gives up another, and that may come late.

use std::collections::BTreeSet;

use super::step::ClientId;
use crate::{base::owner::Entry, node::admission::same_run};

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
    /// The server does not permit us to end it.
    is_withheld: bool,
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
            is_withheld: false,
        });
    }

    /// Whether a lock may still be taken for this one, and that can be ended.
    pub(super) fn may_take(&self, entry: &Entry) -> bool {
        let doubts = self.0.iter().filter(|doubt| !doubt.is_withheld);
        doubts
            .into_iter()
            .any(|doubt| doubt.entries.contains(entry))
    }

    /// Whether what the node says of this one's slot may still be undone.
    pub(super) fn may_undo(&self, entry: &Entry) -> bool {
        self.0.iter().any(|doubt| doubt.entries.contains(entry))
    }

    /// The server is in this run. Connection ids start again with the server: one of another run is a
    /// stranger's by now.
    pub(super) fn keep_run(&mut self, run: &str) {
        self.0.retain(|doubt| same_run(&doubt.run, run));
    }

    /// The server will not end it for us.
    pub(super) fn withhold(&mut self, client: ClientId) {
        let all = self.0.iter_mut().filter(|doubt| doubt.client == client);
        all.for_each(|doubt| doubt.is_withheld = true);
    }

    /// The server ended it.
    pub(super) fn settle(&mut self, client: ClientId) {
        self.0.retain(|doubt| doubt.client != client);
    }

    /// What is to be ended.
    pub(super) fn clients(&self) -> Vec<ClientId> {
        let doubts = self.0.iter().filter(|doubt| !doubt.is_withheld);
        doubts.map(|doubt| doubt.client).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::base::owner::Label;

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
    fn what_may_not_be_ended_stays_in_doubt_for_slots_alone() {
        let mut doubtful = Doubtful::default();
        let entry = Entry::new(Uuid::from_u128(1), &Label::new("a").unwrap());
        doubtful.add(ClientId(1), RUN.into(), [entry.clone()].into());
        assert!(doubtful.may_take(&entry) && doubtful.may_undo(&entry));
        doubtful.withhold(ClientId(1));
        assert!(!doubtful.may_take(&entry) && doubtful.may_undo(&entry));
        assert_eq!(ids(&doubtful), [0; 0], "it is not tried again");
        doubtful.keep_run("bbbb/00000000/-1");
        assert!(!doubtful.may_undo(&entry));
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
