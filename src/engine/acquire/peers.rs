//! State that the acquisitions of one quorum share.

use super::{
    contended::Contended,
    rwlock_waiters::RwlockWaiters,
    table::{Row, Stage},
    throttle::Throttle,
    waiter::Waiter,
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

    /// An acquisition has come to its stage with a permit to make attempts, or to join a queue. Wherever it needs none,
    /// the permit is given back.
    pub(super) fn settle_permit(&mut self, row: &mut Row) {
        let (waiter, stage) = row.parts();
        let needs_it = match (stage, &mut waiter.permit) {
            (_, None) => return,
            (Stage::Begins | Stage::Asks | Stage::Attempt(_) | Stage::Rest(_), Some(permit)) => {
                self.throttle.makes_attempts(permit);
                true
            }
            (Stage::Joins { .. } | Stage::JoinsLast, Some(permit)) => permit.is_joining(),
            (Stage::Queued(queued), Some(permit)) => permit.is_joining() && !queued.has_joined(),
            (Stage::Enters | Stage::Throttled | Stage::AwaitsTurn, Some(_)) => {
                debug_assert!(false, "it needs no permit here");
                false
            }
        };
        if !needs_it {
            self.give_back(waiter);
        }
    }

    pub(super) fn give_back(&mut self, waiter: &mut Waiter) {
        if let Some(permit) = waiter.permit.take() {
            self.throttle.give_back(permit);
        }
    }

    /// The wait is over, and nothing was granted.
    pub(super) fn forget(&mut self, cluster: &mut Cluster, waiter: &mut Waiter) {
        self.rwlock_waiters.give_up(cluster, waiter);
        self.give_back(waiter);
    }
}
