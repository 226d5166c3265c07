//! One EXTEND on all nodes.

use super::{
    held_lease::{HeldLease, jitter, reason_of},
    repair,
};
use crate::{
    Error, LossReason, Lost, Silence,
    base::{clock::Tick, rules::Rule},
    engine::{cluster::Cluster, round},
    lease::{keeper::LeaseId, response::Responder},
    node::{
        answer::Answer,
        request::Verb,
        session::{Purpose, RoundId},
    },
    protocol::ballot::extend::{Ballot, Verdict},
};

/// An extension under way. For a renewal no caller waits.
pub(super) struct Extension {
    lease: LeaseId,
    ballot: Ballot,
    sent_at: Tick,
    is_renewal: bool,
    reply: Option<Responder<()>>,
    /// The verdict of a majority, once it is counted. Later answers only show where the lease has to be repaired.
    counted: Option<Verdict>,
}

impl Extension {
    pub(super) fn begin(
        cluster: &mut Cluster,
        lease: LeaseId,
        held: &HeldLease,
        reply: Option<Responder<()>>,
    ) -> (RoundId, Self) {
        let extend = Verb::Extend {
            ttl: held.node_ttl(),
            window: cluster.window(),
        };
        let operation = held.target.operation(&held.entry, extend);
        let round = cluster.new_round();
        let mut ballot = Ballot::new(cluster.total(), cluster.needed);
        let tag = Purpose::Extend.of(round);
        for (node, silence) in round::ask(cluster, tag, &operation, 0..cluster.total()) {
            ballot.vote(node, Err(silence));
        }
        round::arm(cluster, tag);
        let extension = Self {
            lease,
            ballot,
            sent_at: cluster.now,
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
        cluster: &mut Cluster,
        mut held: Option<&mut HeldLease>,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        let is_lost = answer == Ok(Answer::Lost);
        if let (Ok(Answer::Extended), Some(held)) = (&answer, held.as_deref_mut()) {
            held.found_on(node);
        }
        self.ballot.vote(node, answer);
        let counts = self.counted == Some(Verdict::Extended);
        if let (true, true, Some(held)) = (counts, is_lost, held) {
            repair::send(cluster, self.lease, held, [node].into_iter());
        }
    }

    /// The answers are due.
    pub(super) fn due(&mut self, cluster: &mut Cluster, round: RoundId) {
        let outstanding = self.ballot.answers().outstanding();
        let outstanding = outstanding.map(|node| (node, None));
        for (node, silence) in round::due(cluster, Purpose::Extend.of(round), outstanding) {
            self.ballot.vote(node, Err(silence));
        }
    }

    /// Returns true if nothing more follows from it.
    pub(super) fn is_over(&self) -> bool {
        let extended = self.counted == Some(Verdict::Extended);
        self.counted.is_some() && !(extended && self.ballot.answers().waiting() > 0)
    }

    /// Applies the nodes' verdict to the lease and answers the caller, once. Returns true if it did so now. `leases` is
    /// the number of leases, for the log.
    pub(super) fn decide(
        &mut self,
        cluster: &mut Cluster,
        held: Option<&mut HeldLease>,
        leases: usize,
    ) -> bool {
        let verdict = self.ballot.verdict();
        if self.counted.is_some() || verdict == Verdict::Open {
            return false;
        }
        self.counted = Some(verdict);
        debug_assert!(
            self.reply.is_some() != self.is_renewal,
            "it is answered twice"
        );
        let answer = match held {
            Some(held) => self.count(cluster, held, leases),
            None => Err(over(LossReason::Released)),
        };
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(answer);
        }
        true
    }

    fn count(
        &self,
        cluster: &mut Cluster,
        held: &mut HeldLease,
        leases: usize,
    ) -> Result<(), Error> {
        match self.ballot.verdict() {
            Verdict::Extended => self.extended(cluster, held),
            Verdict::Evicted => {
                held.lose(LossReason::Evicted);
                Err(over(LossReason::Evicted))
            }
            Verdict::Failed | Verdict::Open => {
                let (name, nodes) = (&held.shared.name, &cluster.settings.nodes);
                let again = cluster.try_again(cluster.needed);
                let answers = self.ballot.answers();
                let report = answers.report(name.as_str(), cluster.needed, nodes, Some(again));
                let error = Error::NoQuorum(report);
                if self.is_renewal {
                    // A renewal is tried some 15 times before the lease is lost.
                    let first = held.upkeep.renewal_failed(cluster.now);
                    cluster.journal.renewals.failed(
                        cluster.now,
                        &held.shared,
                        first,
                        &error,
                        leases,
                    );
                }
                Err(error)
            }
        }
    }

    fn extended(&self, cluster: &mut Cluster, held: &mut HeldLease) -> Result<(), Error> {
        let jitter = jitter(cluster, held.upkeep.ttl());
        let (now, shared) = (cluster.now, &held.shared);
        // The old validity must not have ended yet: a lease whose time is over stays lost.
        held.upkeep
            .extended(self.sent_at, now, self.is_renewal, jitter);
        let in_time = cluster.rule_holds(Rule::ExtendInTime);
        let (until, notice) = (held.upkeep.valid_until(), held.upkeep.notice());
        if !shared.prolong(until, notice, in_time) {
            return Err(over(reason_of(shared)));
        }
        held.confirmed();
        held.lacks.extended();
        repair::send(cluster, self.lease, held, self.ballot.gone());
        Ok(())
    }
}

fn over(reason: LossReason) -> Error {
    Lost { reason }.into()
}
