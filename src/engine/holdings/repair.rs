//! Repairs: puts a lease back on a node that has lost it, or that has too small a counter (protocol §3, client step 9).
//!
//! The answer to a repair is no vote. The node counts from the next EXTEND on, as any other.

use super::held_lease::HeldLease;
use crate::{
    base::rules::Rule,
    engine::{cluster::Cluster, round},
    lease::keeper::LeaseId,
    node::{
        answer::Answer,
        request::Verb,
        session::{Purpose, RoundId},
    },
};

/// A majority has just extended the lease, and these nodes have lost it.
pub(super) fn send(
    cluster: &mut Cluster,
    lease: LeaseId,
    held: &mut HeldLease,
    lost: impl Iterator<Item = usize>,
) {
    let due = held.lacks.due(lost);
    held.owes_limit |= ask(cluster, lease, held, due);
}

/// A majority has just granted a slot, and these nodes do not hold it for this owner. If the slot stayed free there,
/// those nodes would offer it to others, who would collide over it for as long as it is held.
pub(super) fn complete(
    cluster: &mut Cluster,
    lease: LeaseId,
    held: &mut HeldLease,
    lacking: impl Iterator<Item = usize>,
) {
    let due = held.lacks.idle(lacking);
    ask(cluster, lease, held, due);
}

/// Returns true if any node was due.
fn ask(cluster: &mut Cluster, lease: LeaseId, held: &mut HeldLease, due: Vec<usize>) -> bool {
    // A lease that is over is not repaired.
    let is_over = || held.shared.validity().is_zero();
    if due.is_empty() || !cluster.rule_holds(Rule::Repair) || is_over() {
        return false;
    }
    let (ttl, token) = (held.node_ttl(), held.lacks.token);
    let repair = Verb::Repair { ttl, token };
    let operation = held.target.operation(&held.entry, repair);
    // Only one repair is under way for a node and a lease, so the lease's id serves as the round.
    let tag = Purpose::Repair.of(RoundId(lease.0));
    let unasked = round::ask(cluster, tag, &operation, due.iter().copied());
    for node in due {
        if unasked.iter().all(|(other, _)| *other != node) {
            held.lacks.sent(node);
            // From now on the RELEASE has to go to this node too.
            if !held.asked.contains(&node) {
                held.asked.push(node);
            }
        }
    }
    true
}

/// For a semaphore: gives back anything else that a node may have of this owner, and puts this slot in its place.
pub(super) fn instead(cluster: &mut Cluster, lease: LeaseId, held: &mut HeldLease, node: usize) {
    held.leave_but_for_this(cluster, node);
    complete(cluster, lease, held, [node].into_iter());
}

/// Handles a node's answer. A repair that was refused or not answered is tried again after the next extension. A slot
/// is tried again at once: the owner that has it there wanted another slot as well, and gives this one back within a
/// round trip or two.
pub(super) fn heard(
    cluster: &mut Cluster,
    lease: LeaseId,
    held: &mut HeldLease,
    node: usize,
    said: Option<&Answer>,
) {
    let stands = said == Some(&Answer::Repaired(true));
    held.lacks.ended(node, stands);
    if stands {
        held.add_held(node);
    }
    let refused = said == Some(&Answer::Repaired(false)) && held.target.slot().is_some();
    if refused && held.lacks.insists(node) {
        complete(cluster, lease, held, [node].into_iter());
    }
}
