//! One EXTEND on all nodes.

use super::holding::{Holding, jitter, reason_of};
use crate::{
    Error, LossReason, Lost, Silence,
    ballot::{
        answers::Said,
        extend::{Ballot, Verdict},
    },
    clock::Tick,
    engine::{
        net::Net,
        round::{self, Request},
    },
    lease::keeper::LeaseId,
    node::session::RoundId,
    response::Responder,
    rules::Rule,
};

/// One extension under way. A renewal has nobody waiting.
pub(super) struct Extension {
    lease: LeaseId,
    ballot: Ballot,
    sent_at: Tick,
    reply: Option<Responder<()>>,
}

impl Extension {
    pub(super) fn begin(
        net: &mut Net,
        lease: LeaseId,
        holding: &Holding,
        reply: Option<Responder<()>>,
    ) -> (RoundId, Self) {
        let operation = holding.claim.extend(&holding.entry, holding.node_ttl());
        let round = net.new_round();
        let mut ballot = Ballot::new(net.total(), net.needed);
        for &node in &holding.gone {
            ballot.vote(node, Ok(Said::Lost));
        }
        let nodes = (0..net.total()).filter(|node| !holding.gone.contains(node));
        let tag = Request::Extend.of(round);
        for (node, silence) in round::ask(net, tag, &operation, nodes) {
            ballot.vote(node, Err(silence));
        }
        round::begin(net, round);
        let extension = Self {
            lease,
            ballot,
            sent_at: net.now,
            reply,
        };
        (round, extension)
    }

    pub(super) fn lease(&self) -> LeaseId {
        self.lease
    }

    pub(super) fn heard(&mut self, node: usize, answer: Result<Said, Silence>) {
        self.ballot.vote(node, answer);
    }

    /// Answers are due.
    pub(super) fn due(&mut self, net: &mut Net, round: RoundId) {
        let outstanding = self.ballot.answers().outstanding();
        let outstanding = outstanding.map(|node| (node, None));
        for (node, silence) in round::due(net, round, outstanding) {
            self.ballot.vote(node, Err(silence));
        }
    }

    pub(super) fn is_decided(&self) -> bool {
        self.ballot.verdict() != Verdict::Open
    }

    /// Does with the lease what the nodes said, then tells the caller: one that is told of a loss finds its
    /// lease lost. `held`: how many leases there are.
    pub(super) fn end(self, net: &mut Net, holding: Option<&mut Holding>, held: usize) {
        let is_renewal = self.reply.is_none();
        let answer = match holding {
            Some(holding) => self.count(net, holding, is_renewal, held),
            None => Err(over(LossReason::Released)),
        };
        if let Some(reply) = self.reply {
            let _ = reply.send(answer);
        }
    }

    fn count(
        &self,
        net: &mut Net,
        holding: &mut Holding,
        is_renewal: bool,
        held: usize,
    ) -> Result<(), Error> {
        holding.gone.extend(self.ballot.gone());
        holding.gone.sort_unstable();
        holding.gone.dedup();
        match self.ballot.verdict() {
            Verdict::Extended => self.extended(net, holding, is_renewal),
            Verdict::Evicted => {
                holding.lose(LossReason::Evicted);
                Err(over(LossReason::Evicted))
            }
            Verdict::Failed | Verdict::Open => {
                let (name, nodes) = (&holding.shared.name, &net.settings.nodes);
                let again = net.try_again(net.needed);
                let answers = self.ballot.answers();
                let report = answers.report(name.as_str(), net.needed, nodes, Some(again));
                let error = Error::NoQuorum(report);
                if is_renewal {
                    // It is tried some 15 times before the lease is lost.
                    let first = holding.upkeep.renewal_failed(net.now);
                    let lease = (name, holding.shared.validity());
                    net.journal
                        .renewal_failed(net.now, lease, first, &error, held);
                }
                Err(error)
            }
        }
    }

    fn extended(
        &self,
        net: &mut Net,
        holding: &mut Holding,
        is_renewal: bool,
    ) -> Result<(), Error> {
        let jitter = jitter(net, holding.upkeep.ttl());
        let (now, shared) = (net.now, &holding.shared);
        // The old validity has to last still: a lease whose time is over stays lost.
        holding
            .upkeep
            .extended(self.sent_at, now, is_renewal, jitter);
        let in_time = net.holds(Rule::ExtendInTime);
        match shared.prolong(holding.upkeep.valid_until(), in_time) {
            true => Ok(()),
            false => Err(over(reason_of(shared))),
        }
    }
}

fn over(reason: LossReason) -> Error {
    Lost { reason }.into()
}
