//! Rounds: one request put to the nodes. Here alone every node is asked.

use std::sync::Arc;

use super::{
    net::{Late, Net, Outstanding},
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

/// Asks these nodes for their votes. Returns those that cannot be asked now, and why.
pub(super) fn ask(
    net: &mut Net,
    tag: Tag,
    operation: &Arc<Operation>,
    nodes: impl IntoIterator<Item = usize>,
) -> Vec<(usize, Silence)> {
    let mut unasked = Vec::new();
    for node in nodes {
        let asked = net.session(node, |session, step| session.ask(step, tag, operation));
        if let Some(Err(silence)) = asked {
            unasked.push((node, silence));
        }
    }
    unasked
}

/// Puts to every node what is meant for it, whether it votes or not. One that is not met is not asked.
pub(super) fn put_to_all(net: &mut Net, tag: Tag, operation: impl Fn(usize) -> Arc<Operation>) {
    for node in 0..net.total() {
        let operation = operation(node);
        net.session(node, |session, step| {
            session.ask_unvoting(step, tag, &operation)
        });
    }
}

/// Takes back on these nodes what the operation frees: it is sent until it is answered, or until the end.
pub(super) fn release(
    net: &mut Net,
    tag: Option<Tag>,
    operation: &Arc<Operation>,
    nodes: impl IntoIterator<Item = usize>,
    until: Tick,
) -> Vec<(usize, DutyId)> {
    let mut sent = Vec::with_capacity(net.total());
    for node in nodes {
        let duty = net.session(node, |session, step| {
            session.release(step, operation, until, tag)
        });
        sent.extend(duty.map(|duty| (node, duty)));
    }
    sent
}

/// The time has come when answers are due. Returns who is waited for no more; for the others the timer is set
/// again.
pub(super) fn due(
    net: &mut Net,
    tag: Tag,
    outstanding: impl IntoIterator<Item = Outstanding>,
) -> Vec<(usize, Silence)> {
    let Late { silent, until } = net.late(outstanding);
    if let Some(at) = until {
        net.timers.at(Key::of(tag), at);
    }
    silent
}

/// Answers to what was just asked are due after the node timeout.
pub(super) fn arm(net: &mut Net, tag: Tag) -> Tick {
    let at = net.now.plus(net.settings.node_timeout);
    net.timers.at(Key::of(tag), at);
    at
}
