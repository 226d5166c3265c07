//! Rounds: one request that is put to the nodes. All requests to nodes go through this file.

use std::sync::Arc;

use super::{
    cluster::{Cluster, Late, Outstanding},
    timers::Key,
};
use crate::{
    Silence,
    base::clock::Tick,
    node::{
        Operation,
        session::{DutyId, Tag},
    },
};

/// Asks these nodes for their votes. Returns the nodes that cannot be asked now, with the reason.
pub(super) fn ask(
    cluster: &mut Cluster,
    tag: Tag,
    operation: &Arc<Operation>,
    nodes: impl IntoIterator<Item = usize>,
) -> Vec<(usize, Silence)> {
    let mut unasked = Vec::new();
    for node in nodes {
        debug_assert!(node < cluster.total(), "no such node");
        let asked = cluster.session(node, |session, step| session.ask(step, tag, operation));
        if let Some(Err(silence)) = asked {
            unasked.push((node, silence));
        }
    }
    unasked
}

/// Sends every node its operation, even if the node does not vote. A node that is not met is not asked.
pub(super) fn put_to_all(
    cluster: &mut Cluster,
    tag: Tag,
    operation: impl Fn(usize) -> Arc<Operation>,
) {
    for node in 0..cluster.total() {
        let operation = operation(node);
        cluster.session(node, |session, step| {
            session.ask_unvoting(step, tag, &operation)
        });
    }
}

/// Sends a release to these nodes. Each is sent again until the node answers, or until `until`.
pub(super) fn release(
    cluster: &mut Cluster,
    tag: Option<Tag>,
    operation: &Arc<Operation>,
    nodes: impl IntoIterator<Item = usize>,
    until: Tick,
) -> Vec<(usize, DutyId)> {
    let mut sent = Vec::with_capacity(cluster.total());
    for node in nodes {
        let duty = cluster.session(node, |session, step| {
            session.release(step, operation, until, tag)
        });
        sent.extend(duty.map(|duty| (node, duty)));
    }
    sent
}

/// The answers to a round are due. Returns the nodes that are not waited for any more. If others are left, sets the
/// timer again.
pub(super) fn due(
    cluster: &mut Cluster,
    tag: Tag,
    outstanding: impl IntoIterator<Item = Outstanding>,
) -> Vec<(usize, Silence)> {
    let Late { silent, until } = cluster.late(outstanding);
    if let Some(at) = until {
        cluster.timers.at(Key::of(tag), at);
    }
    silent
}

/// Sets the timer for the answers to a request that was just sent. They are due after the node timeout.
pub(super) fn arm(cluster: &mut Cluster, tag: Tag) -> Tick {
    let at = cluster.now.plus(cluster.settings.node_timeout);
    cluster.timers.at(Key::of(tag), at);
    at
}
