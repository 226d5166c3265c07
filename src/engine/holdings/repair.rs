//! Putting a lease back where it does not stand, or stands with a smaller token (protocol §3, client step 9).
//!
//! The answer is no vote. The node counts from the next EXTEND on, as any other.

use super::holding::Holding;
use crate::{
    ballot::answers::Said,
    engine::{
        net::Net,
        round::{self, Request},
    },
    lease::keeper::LeaseId,
    node::session::RoundId,
    rules::Rule,
};

/// A majority has just extended the lease, and these nodes have lost it.
pub(super) fn send(
    net: &mut Net,
    lease: LeaseId,
    holding: &mut Holding,
    lost: impl Iterator<Item = usize>,
) {
    let due = holding.lacks.due(lost);
    // A lease that is over is left to its end.
    let is_over = || holding.shared.validity().is_zero();
    if due.is_empty() || !net.holds(Rule::Repair) || is_over() {
        return;
    }
    let max_ttl = net.fleet().max_ttl();
    let (ttl, token) = (holding.node_ttl(), holding.lacks.token);
    let operation = holding.claim.repair(&holding.entry, ttl, token, max_ttl);
    // There is one at a time for a node, so its lease says which it is.
    let tag = Request::Repair.of(RoundId(lease.0));
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

/// A node's answer. What was refused, or not answered, is tried again after the next extension.
pub(super) fn heard(holding: &mut Holding, node: usize, said: Option<&Said>) {
    let stands = said == Some(&Said::Repaired(true));
    holding.lacks.ended(node, stands);
    if stands {
        holding.is_held_on(node);
    }
}
