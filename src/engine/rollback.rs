//! Taking back what an attempt may have left on the nodes (protocol §3, client step 5).

use std::{sync::Arc, time::Duration};

use super::{net::Net, patience::LONGEST_REST, round};
use crate::{
    base::{owner::Entry, rules::Rule},
    node::{Operation, request::Target},
};

/// Sends the release to every node that was asked and has not refused: a grant may still come. One that refused has answered, and
/// is not asked a second time by this entry. `life` is how long a part of the acquisition may stand on a node.
pub(super) fn roll_back(
    net: &mut Net,
    release: &Arc<Operation>,
    life: Duration,
    asked: impl Iterator<Item = usize>,
    granted: impl Iterator<Item = usize>,
) {
    let until = net.now.plus(life);
    if net.holds(Rule::ReleaseEverywhere) {
        round::release(net, None, release, asked, until);
    } else {
        round::release(net, None, release, granted, until);
    }
}

/// Ends a wait for this side of a read-write lock: on these nodes it keeps no reader out any more.
pub(super) fn stop_waiting(
    net: &mut Net,
    target: &Target,
    waited: &Entry,
    nodes: impl IntoIterator<Item = usize>,
) {
    let operation = target.ask(waited, net.release(0, Some(waited.clone())));
    round::release(net, None, &operation, nodes, net.now.plus(wait_life(net)));
}

/// For how long nodes know that somebody waits for a read-write lock: three times as long as its next attempt may take to come.
pub(super) fn wait_life(net: &Net) -> Duration {
    (LONGEST_REST + net.settings.node_timeout) * 3
}
