//! An acquisition that is queued on the nodes: for a mutex (protocol §5), or for a slot of a semaphore (§6).
//!
//! [`protocol::queue`](crate::protocol::queue) and [`protocol::slots`](crate::protocol::slots) make the decisions. This
//! module turns their decisions into requests, and the answers into their input.

mod common;
mod mutex;
mod slot;

pub(super) use self::{
    common::{Common, Outcome},
    mutex::MutexQueue,
    slot::SlotSearch,
};
use super::waiter::Waiter;
use crate::{
    Silence,
    base::owner::Entry,
    engine::cluster::Cluster,
    node::{Says, answer::Answer, session::Purpose},
};

pub(super) enum Queued {
    Mutex(Box<MutexQueue>),
    Slot(Box<SlotSearch>),
}

impl Queued {
    pub(super) fn common(&self) -> &Common {
        match self {
            Self::Mutex(one) => &one.common,
            Self::Slot(one) => &one.common,
        }
    }

    /// Returns true if it no longer has to come behind all others, so that others may make attempts.
    pub(super) fn has_joined(&self) -> bool {
        match self {
            Self::Mutex(one) => !one.place.only_last,
            Self::Slot(one) => one.is_in_line,
        }
    }

    /// Handles a node's answer to a request with this purpose. Returns the ticket that the node named, of the last
    /// waiter or of the holder, or 0.
    pub(super) fn answered(
        &mut self,
        cluster: &Cluster,
        waiter: &Waiter,
        purpose: Purpose,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> u64 {
        match (self, purpose) {
            (Self::Mutex(one), Purpose::Raise) => one.raised(cluster, waiter, node, answer),
            (Self::Mutex(one), _) => return one.joined(cluster, waiter, node, answer),
            (Self::Slot(one), Purpose::Raise) => one.raised(cluster, node, &answer),
            (Self::Slot(one), Purpose::GiveBack) => one.yielded(cluster, node, &answer),
            (Self::Slot(one), _) => one.took(cluster, waiter, node, answer),
        }
        0
    }

    /// Handles a push from a node.
    pub(super) fn pushed(&mut self, cluster: &Cluster, waiter: &Waiter, node: usize, says: &Says) {
        match self {
            Self::Mutex(one) => one.pushed(cluster, waiter, node, says),
            Self::Slot(one) => one.pushed(cluster, node, says),
        }
    }

    /// The node may be asked, perhaps again. It does not know this acquisition any more.
    pub(super) fn node_came_back(&mut self, cluster: &Cluster, node: usize) {
        let common = match self {
            Self::Mutex(one) => {
                one.place.came_back(cluster.now, node);
                &mut one.common
            }
            Self::Slot(one) => {
                one.seat.came_back(cluster.now, node);
                &mut one.common
            }
        };
        common.reach.last.asked_again(node);
    }

    /// The node does not vote any more.
    pub(super) fn node_went(&mut self, node: usize) {
        match self {
            Self::Mutex(one) => one.place.went(node),
            Self::Slot(one) => one.seat.went(node),
        }
    }

    /// The answers are due.
    pub(super) fn answers_due(&mut self, cluster: &mut Cluster) {
        match self {
            // The place itself says which nodes have to be asked again.
            Self::Mutex(_) => {}
            Self::Slot(one) => one.answers_due(cluster),
        }
    }

    /// Does everything that can be done now.
    pub(super) fn advance(&mut self, cluster: &mut Cluster, waiter: &mut Waiter) -> Outcome {
        match self {
            Self::Mutex(one) => one.advance(cluster, waiter),
            Self::Slot(one) => one.advance(cluster, waiter),
        }
    }

    /// Begins again under a new owner. It was rolled back before.
    pub(super) fn set_owner(&mut self, cluster: &mut Cluster, waiter: &mut Waiter, owner: Entry) {
        match self {
            Self::Mutex(one) => one.set_owner(cluster, owner),
            Self::Slot(one) => one.set_owner(cluster, waiter, owner),
        }
    }

    /// Takes back everything that may stand on the nodes.
    pub(super) fn roll_back(&self, cluster: &mut Cluster, waiter: &Waiter) {
        match self {
            Self::Mutex(one) => one.roll_back(cluster, waiter),
            Self::Slot(one) => one.roll_back(cluster, waiter),
        }
    }
}
