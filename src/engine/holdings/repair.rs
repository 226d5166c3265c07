//! Putting a lease back where it does not stand, or stands with a smaller token (protocol §3, client step 9).
//!
//! The answer is no vote. The node counts from the next EXTEND on, as any other.

use super::holding::Holding;
use crate::{
    base::rules::Rule,
    engine::{net::Net, round},
    lease::keeper::LeaseId,
    node::{
        answer::Answer,
        request::Verb,
        session::{Purpose, RoundId},
    },
};

/// A majority has just extended the lease, and these nodes have lost it.
pub(super) fn send(
    net: &mut Net,
    lease: LeaseId,
    holding: &mut Holding,
    lost: impl Iterator<Item = usize>,
) {
    let due = holding.lacks.due(lost);
    ask(net, lease, holding, due);
}

/// A majority has just granted a slot, and these nodes do not have it for us. Left free there it would be given to others,
/// who stand in each other's way then for as long as it is held.
pub(super) fn complete(
    net: &mut Net,
    lease: LeaseId,
    holding: &mut Holding,
    lacking: impl Iterator<Item = usize>,
) {
    let due = holding.lacks.idle(lacking);
    ask(net, lease, holding, due);
}

fn ask(net: &mut Net, lease: LeaseId, holding: &mut Holding, due: Vec<usize>) {
    // A lease that is over is left to its end.
    let is_over = || holding.shared.validity().is_zero();
    if due.is_empty() || !net.holds(Rule::Repair) || is_over() {
        return;
    }
    let (ttl, token) = (holding.node_ttl(), holding.lacks.token);
    let repair = Verb::Repair { ttl, token };
    let operation = holding.target.ask(&holding.entry, repair);
    // There is one at a time for a node, so its lease says which it is.
    let tag = Purpose::Repair.of(RoundId(lease.0));
    let unasked = round::ask(net, tag, &operation, due.iter().copied());
    for node in due {
        if unasked.iter().all(|(other, _)| *other != node) {
            holding.lacks.sent(node);
            // Its RELEASE has to go there too, from now on.
            if !holding.asked.contains(&node) {
                holding.asked.push(node);
            }
        }
    }
}

/// Of a semaphore: what else of it a node may have is given back, and this slot put in its place.
pub(super) fn instead(net: &mut Net, lease: LeaseId, holding: &mut Holding, node: usize) {
    holding.leave_but_for_this(net, node);
    complete(net, lease, holding, [node].into_iter());
}

/// A node's answer. What was refused, or not answered, is tried again after the next extension. A slot is tried again at
/// once: who has it there wanted another as well, and gives it back within a round trip or two.
pub(super) fn heard(
    net: &mut Net,
    lease: LeaseId,
    holding: &mut Holding,
    node: usize,
    said: Option<&Answer>,
) {
    let stands = said == Some(&Answer::Repaired(true));
    holding.lacks.ended(node, stands);
    if stands {
        holding.held_on(node);
    }
    let refused = said == Some(&Answer::Repaired(false)) && holding.target.slot().is_some();
    if refused && holding.lacks.insists(node) {
        complete(net, lease, holding, [node].into_iter());
    }
}
