//! Older connections to a node that may still carry what takes a lock. Each is ended on the server by
//! CLIENT KILL before anything is released, or a late ACQUIRE would come after its RELEASE.

use super::step::ClientId;
use crate::node::admission::same_run;

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
}

impl Doubtful {
    /// This connection was lost with something unanswered that takes a lock.
    pub(super) fn add(&mut self, client: ClientId, run: String) {
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(Doubt { client, run });
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
    use super::*;

    const RUN: &str = "aaaa/00000000/-1";

    fn ids(doubtful: &Doubtful) -> Vec<u64> {
        doubtful.clients().iter().map(|client| client.0).collect()
    }

    #[test]
    fn the_oldest_is_forgotten_where_there_are_too_many() {
        let mut doubtful = Doubtful::default();
        for client in 0..10 {
            doubtful.add(ClientId(client), RUN.into());
        }
        assert_eq!(ids(&doubtful), [2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn only_those_of_this_run_stay() {
        let mut doubtful = Doubtful::default();
        doubtful.add(ClientId(1), "bbbb/00000000/-1".into());
        doubtful.add(ClientId(2), RUN.into());
        doubtful.add(ClientId(3), RUN.into());
        doubtful.keep_run(RUN);
        assert_eq!(ids(&doubtful), [2, 3]);
        doubtful.settle(ClientId(2));
        assert_eq!(ids(&doubtful), [3]);
    }
}
