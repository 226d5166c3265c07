//! Takes back what an attempt may have left on the nodes (protocol §3, client step 5).

use std::{sync::Arc, time::Duration};

use super::{acquire::patience::LONGEST_REST, cluster::Cluster, round};
use crate::{
    base::{owner::Entry, rules::Rule},
    node::{Operation, request::Target},
};

/// Sends the release to every node that was asked and has not refused, because a grant may still come. A node that
/// refused has answered, and this entry does not ask it again. `life` is how long a part of the acquisition may stand
/// on a node.
pub(super) fn roll_back(
    cluster: &mut Cluster,
    release: &Arc<Operation>,
    life: Duration,
    asked: impl Iterator<Item = usize>,
    granted: impl Iterator<Item = usize>,
) {
    let until = cluster.now.plus(life);
    if cluster.rule_holds(Rule::ReleaseEverywhere) {
        round::release(cluster, None, release, asked, until);
    } else {
        round::release(cluster, None, release, granted, until);
    }
}

/// Ends the wait for this side of a read-write lock. From then on it keeps no reader out on these nodes.
pub(super) fn stop_waiting(
    cluster: &mut Cluster,
    target: &Target,
    waited: &Entry,
    nodes: impl IntoIterator<Item = usize>,
) {
    let operation = target.operation(waited, cluster.release_verb(0, Some(waited.clone())));
    round::release(
        cluster,
        None,
        &operation,
        nodes,
        cluster.now.plus(wait_life(cluster)),
    );
}

/// How long nodes remember a wait for a read-write lock. It is three times the longest time until its next attempt.
pub(super) fn wait_life(cluster: &Cluster) -> Duration {
    (LONGEST_REST + cluster.settings.node_timeout) * 3
}
