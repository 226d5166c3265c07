//! One EXTEND on all nodes.

use super::{
    holding::{Holding, jitter, reason_of},
    repair,
};
use crate::{
    Error, LossReason, Lost, Silence,
    base::{clock::Tick, rules::Rule},
    engine::{net::Net, round},
    lease::{keeper::LeaseId, response::Responder},
    node::{
        answer::Answer,
        request::Verb,
        session::{Purpose, RoundId},
    },
    protocol::ballot::extend::{Ballot, Verdict},
};

/// One extension under way. A renewal has nobody waiting.
pub(super) struct Extension {
    lease: LeaseId,
    ballot: Ballot,
    sent_at: Tick,
    is_renewal: bool,
    reply: Option<Responder<()>>,
    /// What a majority said, once it is counted. Later answers only say where the lease is to be repaired.
    counted: Option<Verdict>,
}

impl Extension {
    pub(super) fn begin(
        net: &mut Net,
        lease: LeaseId,
        holding: &Holding,
        reply: Option<Responder<()>>,
    ) -> (RoundId, Self) {
        let extend = Verb::Extend {
            ttl: holding.node_ttl(),
            window: net.window(),
        };
        let operation = holding.target.ask(&holding.entry, extend);
        let round = net.new_round();
        let mut ballot = Ballot::new(net.total(), net.needed);
        let tag = Purpose::Extend.of(round);
        for (node, silence) in round::ask(net, tag, &operation, 0..net.total()) {
            ballot.vote(node, Err(silence));
        }
        round::arm(net, tag);
        let extension = Self {
            lease,
            ballot,
            sent_at: net.now,
            is_renewal: reply.is_none(),
            reply,
            counted: None,
        };
        (round, extension)
    }

    pub(super) fn lease(&self) -> LeaseId {
        self.lease
    }

    pub(super) fn heard(
        &mut self,
        net: &mut Net,
        mut holding: Option<&mut Holding>,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        let is_lost = answer == Ok(Answer::Lost);
        if let (Ok(Answer::Extended), Some(holding)) = (&answer, holding.as_deref_mut()) {
            holding.found_on(node);
        }
        self.ballot.vote(node, answer);
        let counts = self.counted == Some(Verdict::Extended);
        if let (true, true, Some(holding)) = (counts, is_lost, holding) {
            repair::send(net, self.lease, holding, [node].into_iter());
        }
    }

    /// Answers are due.
    pub(super) fn due(&mut self, net: &mut Net, round: RoundId) {
        let outstanding = self.ballot.answers().outstanding();
        let outstanding = outstanding.map(|node| (node, None));
        for (node, silence) in round::due(net, Purpose::Extend.of(round), outstanding) {
            self.ballot.vote(node, Err(silence));
        }
    }

    /// Whether nothing more follows from it.
    pub(super) fn is_over(&self) -> bool {
        let extended = self.counted == Some(Verdict::Extended);
        self.counted.is_some() && !(extended && self.ballot.answers().waiting() > 0)
    }

    /// Does with the lease what the nodes have said, once, and tells the caller. Whether that was now. `held`:
    /// how many leases there are.
    pub(super) fn decide(
        &mut self,
        net: &mut Net,
        holding: Option<&mut Holding>,
        held: usize,
    ) -> bool {
        let verdict = self.ballot.verdict();
        if self.counted.is_some() || verdict == Verdict::Open {
            return false;
        }
        self.counted = Some(verdict);
        let answer = match holding {
            Some(holding) => self.count(net, holding, held),
            None => Err(over(LossReason::Released)),
        };
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(answer);
        }
        true
    }

    fn count(&self, net: &mut Net, holding: &mut Holding, held: usize) -> Result<(), Error> {
        match self.ballot.verdict() {
            Verdict::Extended => self.extended(net, holding),
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
                if self.is_renewal {
                    // It is tried some 15 times before the lease is lost.
                    let first = holding.upkeep.renewal_failed(net.now);
                    net.journal
                        .renewals
                        .failed(net.now, &holding.shared, first, &error, held);
                }
                Err(error)
            }
        }
    }

    fn extended(&self, net: &mut Net, holding: &mut Holding) -> Result<(), Error> {
        let jitter = jitter(net, holding.upkeep.ttl());
        let (now, shared) = (net.now, &holding.shared);
        // The old validity has to last still: a lease whose time is over stays lost.
        holding
            .upkeep
            .extended(self.sent_at, now, self.is_renewal, jitter);
        let in_time = net.holds(Rule::ExtendInTime);
        let (until, notice) = (holding.upkeep.valid_until(), holding.upkeep.notice());
        if !shared.prolong(until, notice, in_time) {
            return Err(over(reason_of(shared)));
        }
        holding.confirmed();
        holding.lacks.extended();
        repair::send(net, self.lease, holding, self.ballot.gone());
        Ok(())
    }
}

fn over(reason: LossReason) -> Error {
    Lost { reason }.into()
}
