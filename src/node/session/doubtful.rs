//! Older connections to a node that may still carry a request that takes a lock. Each is ended on the server by CLIENT
//! KILL before anything is released, because otherwise a late ACQUIRE or REPAIR could come after its RELEASE. If CLIENT
//! KILL is not permitted, the connection stays in doubt. A request that takes a slot of a semaphore also gives up
//! another slot, and may come late.

use std::{collections::BTreeSet, mem};

use super::step::ClientId;
use crate::{base::owner::Entry, node::admission::same_run};

/// The greatest number of connections to end. A connection is only in doubt while it may still carry a request that
/// takes a lock. More than this many at once mean that the server is gone, not that it is slow.
const MOST: usize = 8;

/// At least this many entries are remembered of connections that are not ended, and at most twice as many.
const REMEMBERED: usize = 32_768;

/// The connections in doubt.
#[derive(Default)]
pub(super) struct Doubtful {
    /// Those that have to be ended, oldest first.
    to_end: Vec<Doubt>,
    withheld: Withheld,
}

struct Doubt {
    client: ClientId,
    /// The run of the server that gave the id.
    run: String,
    /// The entries for which it may still take something.
    entries: BTreeSet<Entry>,
}

/// The entries of connections that are not ended: the server does not permit it, or there are too many. They rotate as
/// counters do, so that connections which are lost again and again cost bounded memory and two look-ups.
#[derive(Default)]
struct Withheld {
    run: String,
    newer: BTreeSet<Entry>,
    older: BTreeSet<Entry>,
}

impl Withheld {
    fn add(&mut self, mut doubt: Doubt) {
        self.keep_run(&doubt.run);
        self.run = doubt.run;
        if self.newer.len() + doubt.entries.len() > REMEMBERED {
            self.older = mem::take(&mut self.newer);
        }
        self.newer.append(&mut doubt.entries);
    }

    fn contains(&self, entry: &Entry) -> bool {
        self.newer.contains(entry) || self.older.contains(entry)
    }

    fn keep_run(&mut self, run: &str) {
        if !same_run(&self.run, run) {
            *self = Self::default();
        }
    }
}

impl Doubtful {
    /// This connection was lost with unanswered requests that take something for these entries.
    pub(super) fn add(&mut self, client: ClientId, run: String, entries: BTreeSet<Entry>) {
        if self.to_end.len() == MOST {
            self.withheld.add(self.to_end.remove(0));
        }
        self.to_end.push(Doubt {
            client,
            run,
            entries,
        });
    }

    /// Returns true if something may still be taken for this entry, by a connection that can be ended.
    pub(super) fn may_take(&self, entry: &Entry) -> bool {
        let mut doubts = self.to_end.iter();
        doubts.any(|doubt| doubt.entries.contains(entry))
    }

    /// Returns true if the node's answer about this entry's slot may still be undone.
    pub(super) fn may_undo(&self, entry: &Entry) -> bool {
        self.may_take(entry) || self.withheld.contains(entry)
    }

    /// The server is in this run. Connection ids start again with the server, so an id from another run may belong to
    /// somebody else by now.
    pub(super) fn keep_run(&mut self, run: &str) {
        self.to_end.retain(|doubt| same_run(&doubt.run, run));
        self.withheld.keep_run(run);
    }

    /// The server does not permit this client to end it.
    pub(super) fn withhold(&mut self, client: ClientId) {
        for doubt in self.to_end.extract_if(.., |doubt| doubt.client == client) {
            self.withheld.add(doubt);
        }
    }

    /// The server has ended it.
    pub(super) fn settle(&mut self, client: ClientId) {
        self.to_end.retain(|doubt| doubt.client != client);
    }

    /// The connections that have to be ended.
    pub(super) fn clients(&self) -> Vec<ClientId> {
        self.to_end.iter().map(|doubt| doubt.client).collect()
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
    fn the_oldest_is_not_killed_if_there_are_too_many_and_stays_doubtful_for_slots() {
        let mut doubtful = Doubtful::default();
        let entry =
            |owner: u64| Entry::new(Uuid::from_u128(owner.into()), &Label::new("a").unwrap());
        for client in 0..10 {
            doubtful.add(ClientId(client), RUN.into(), [entry(client)].into());
        }
        assert_eq!(ids(&doubtful), [2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(doubtful.may_take(&entry(2)) && !doubtful.may_take(&entry(1)));
        assert!(doubtful.may_undo(&entry(1)) && doubtful.may_undo(&entry(9)));
        assert!(!doubtful.may_undo(&entry(10)));
    }

    #[test]
    fn the_entries_in_doubt_are_bounded() {
        let mut doubtful = Doubtful::default();
        let label = Label::new("a").unwrap();
        let entries = |from: u128, n: usize| -> BTreeSet<Entry> {
            let owners = (from..).take(n).map(Uuid::from_u128);
            owners.map(|owner| Entry::new(owner, &label)).collect()
        };
        let (old, new) = (entries(0, REMEMBERED), entries(1_000_000, REMEMBERED));
        let [oldest, newest] = [&old, &new].map(|entries| entries.first().unwrap().clone());
        for (client, entries) in [(1, old), (2, new), (3, entries(2_000_000, 1))] {
            doubtful.add(ClientId(client), RUN.into(), entries);
        }
        for client in [1, 2] {
            doubtful.withhold(ClientId(client));
            assert!(doubtful.may_undo(&oldest));
        }
        assert!(doubtful.may_undo(&newest));
        doubtful.withhold(ClientId(3));
        assert!(!doubtful.may_undo(&oldest) && doubtful.may_undo(&newest));
    }

    #[test]
    fn a_connection_that_may_not_be_killed_stays_doubtful_for_slots() {
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
    fn only_connections_of_the_current_run_stay_doubtful() {
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
