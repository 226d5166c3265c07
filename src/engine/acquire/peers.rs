//! State that the acquisitions of one quorum share.

use super::{
    contended::Contended,
    rwlock_waiters::RwlockWaiters,
    throttle::Throttle,
    waiter::{Counts, Waiter},
};
use crate::engine::cluster::Cluster;

#[derive(Default)]
pub(super) struct Peers {
    pub(super) throttle: Throttle,
    pub(super) rwlock_waiters: RwlockWaiters,
    pub(super) contended: Contended,
    /// The greatest ticket that was given to a waiter for a mutex, or that a node has named.
    pub(super) last_ticket: u64,
    pub(super) last_slot_ticket: u64,
}

impl Peers {
    /// A node has named this ticket.
    pub(super) fn saw_ticket(&mut self, ticket: u64) {
        self.last_ticket = self.last_ticket.max(ticket);
    }

    /// From now on it does not count among the acquisitions that make attempts.
    pub(super) fn stop_asking(&mut self, waiter: &mut Waiter) {
        if let Some(target) = waiter.counts_no_more(Counts::Asks) {
            self.throttle.done(&target);
        }
    }

    /// From now on it does not count among the acquisitions that join a queue.
    pub(super) fn stop_joining(&mut self, waiter: &mut Waiter) {
        if let Some(target) = waiter.counts_no_more(Counts::Joins) {
            self.throttle.joined(&target);
        }
    }

    /// The wait is over, and nothing was granted.
    pub(super) fn forget(&mut self, cluster: &mut Cluster, waiter: &mut Waiter) {
        self.rwlock_waiters.give_up(cluster, waiter);
        self.stop_asking(waiter);
        debug_assert!(waiter.counts == Counts::Not, "it counts as joining");
    }
}
