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

/// What is to be put right on the nodes, for one lease. Pure.
#[derive(Debug)]
pub(super) struct Repairs {
    token: u64,
    /// Granted with a smaller token.
    behind: Vec<usize>,
    /// Repairs that are not answered yet.
    under_way: Vec<usize>,
}

impl Repairs {
    pub(super) fn new(token: u64) -> Self {
        Self {
            token,
            behind: Vec::new(),
            under_way: Vec::new(),
        }
    }

    /// It stands there, with this counter.
    pub(super) fn granted(&mut self, node: usize, counter: u64) {
        self.behind.retain(|other| *other != node);
        if counter < self.token {
            self.behind.push(node);
        }
    }

    /// Who is to be repaired now that a majority has extended the lease, these having lost it: nobody twice at
    /// a time.
    fn due(&self, lost: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut due: Vec<usize> = lost.chain(self.behind.iter().copied()).collect();
        due.sort_unstable();
        due.dedup();
        due.retain(|node| !self.under_way.contains(node));
        due
    }

    fn sent(&mut self, node: usize) {
        self.under_way.push(node);
    }

    /// It was answered, or will not be.
    fn ended(&mut self, node: usize, stands: bool) {
        self.under_way.retain(|other| *other != node);
        if stands {
            self.behind.retain(|other| *other != node);
        }
    }
}

/// A majority has just extended the lease, and these nodes have lost it.
pub(super) fn send(
    net: &mut Net,
    lease: LeaseId,
    holding: &mut Holding,
    lost: impl Iterator<Item = usize>,
) {
    let due = holding.repairs.due(lost);
    // A lease that is over is left to its end.
    let is_over = || holding.shared.validity().is_zero();
    if due.is_empty() || !net.holds(Rule::Repair) || is_over() {
        return;
    }
    let max_ttl = net.fleet().max_ttl();
    let (ttl, token) = (holding.node_ttl(), holding.repairs.token);
    let operation = holding.claim.repair(&holding.entry, ttl, token, max_ttl);
    // There is one at a time for a node, so its lease says which it is.
    let tag = Request::Repair.of(RoundId(lease.0));
    let unasked = round::ask(net, tag, &operation, due.iter().copied());
    for node in due {
        if unasked.iter().all(|(other, _)| *other != node) {
            holding.repairs.sent(node);
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
    holding.repairs.ended(node, stands);
    if stands && !holding.held_on.contains(&node) {
        holding.held_on.push(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(repairs: &Repairs, lost: &[usize]) -> Vec<usize> {
        repairs.due(lost.iter().copied())
    }

    #[test]
    fn who_lost_it_and_who_is_behind_is_repaired_once_at_a_time() {
        let mut repairs = Repairs::new(7);
        for (node, counter) in [(0, 7), (1, 6), (2, 8)] {
            repairs.granted(node, counter);
        }
        assert_eq!(due(&repairs, &[]), [1]);
        assert_eq!(due(&repairs, &[3, 1]), [1, 3]);
        repairs.sent(1);
        repairs.sent(3);
        assert_eq!(due(&repairs, &[3, 4]), [4], "they are being repaired");
        repairs.ended(1, false);
        repairs.ended(3, true);
        assert_eq!(due(&repairs, &[]), [1], "it was not done there");
        assert_eq!(due(&repairs, &[3]), [1, 3], "lost again");
        repairs.sent(1);
        repairs.ended(1, true);
        assert_eq!(due(&repairs, &[]), [0; 0]);
    }

    #[test]
    fn who_was_raised_is_behind_no_more() {
        let mut repairs = Repairs::new(7);
        repairs.granted(1, 6);
        repairs.granted(1, 7);
        assert_eq!(due(&repairs, &[]), [0; 0]);
    }
}
