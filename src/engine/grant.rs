//! What was won for a wish: by an attempt, or in line.

use std::time::Duration;

use super::{event::Wish, net::Net, rollback::roll_back};
use crate::{
    base::{clock::Tick, owner::Entry},
    lease::upkeep::Good,
    node::{request::Target, session::RoundId},
};

/// A lock that is held on a majority, with one token.
pub(super) struct Grant {
    pub(super) wish: Wish,
    pub(super) target: Target,
    /// By which it was won: its late answers find the lease.
    pub(super) round: RoundId,
    pub(super) entry: Entry,
    pub(super) token: u64,
    /// Who waited for a read-write lock, and is known to the nodes by this.
    pub(super) waited: Option<Entry>,
    /// Since when it counts as held.
    pub(super) since: Tick,
    pub(super) good: Good,
    /// For how long something of it may stand on a node that was asked.
    pub(super) stands_for: Duration,
    /// The nodes that were asked.
    pub(super) asked: Vec<usize>,
    /// The nodes that granted, and their counters.
    pub(super) held: Vec<(usize, u64)>,
    /// The nodes that were asked to raise their counters, or to grant, and have not answered.
    pub(super) raising: Vec<usize>,
    /// The nodes that have something else of it.
    pub(super) lacking: Vec<usize>,
}

impl Grant {
    /// Nobody can have it any more.
    pub(super) fn take_back(self, net: &mut Net) {
        let release = net.release(self.token, self.waited);
        let granted = self.held.iter().map(|(node, _)| *node);
        let release = self.target.ask(&self.entry, release);
        roll_back(
            net,
            &release,
            self.stands_for,
            self.asked.into_iter(),
            granted,
        );
    }
}
