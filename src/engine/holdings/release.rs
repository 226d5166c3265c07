//! One RELEASE on all nodes, for which a caller waits.

use super::held_lease::HeldLease;
use crate::{
    Error, LossReason, Lost, Silence,
    base::{name::Name, rules::Rule},
    engine::{cluster::Cluster, round},
    lease::response::Responder,
    node::{
        answer::Answer,
        session::{DutyId, Purpose, RoundId},
    },
    protocol::ballot::release::{Ballot, Verdict},
};

/// A release under way.
pub(super) struct Release {
    name: Name,
    /// The nodes that were asked, with the duty to release there.
    owed: Vec<(usize, DutyId)>,
    ballot: Ballot,
    reply: Responder<()>,
}

impl Release {
    /// Releases a lease. If no caller waits for the answers, they are not collected.
    pub(super) fn begin(
        cluster: &mut Cluster,
        held: HeldLease,
        reply: Option<Responder<()>>,
    ) -> Option<(RoundId, Self)> {
        let release = cluster.release_verb(held.lacks.token, held.waited);
        let operation = held.target.operation(&held.entry, release);
        let round = cluster.new_round();
        let tag = reply.is_some().then(|| Purpose::Release.of(round));
        let until = cluster.now.plus(held.stands_for);
        // It goes to nodes that never granted it too, because its owner may be in the queue there.
        let told = match cluster.rule_holds(Rule::LeaveEverywhere) {
            true => &held.asked,
            false => &held.held_on,
        };
        let asked = told.iter().copied();
        let owed = round::release(cluster, tag, &operation, asked, until);
        let reply = reply?;
        let mut ballot = Ballot::new(cluster.total(), cluster.needed, held.held_on);
        for (node, state) in cluster.states().enumerate() {
            if !held.asked.contains(&node) {
                let silence = state.silence().unwrap_or(Silence::ConnectionLost);
                ballot.vote(node, Err(silence));
            }
        }
        round::arm(cluster, Purpose::Release.of(round));
        let release = Self {
            name: held.shared.name.clone(),
            owed,
            ballot,
            reply,
        };
        Some((round, release))
    }

    pub(super) fn heard(&mut self, node: usize, answer: Result<Answer, Silence>) {
        self.ballot.vote(node, answer);
    }

    /// The answers are due.
    pub(super) fn due(&mut self, cluster: &mut Cluster, round: RoundId) {
        let duty = |node| {
            let owed = self.owed.iter().find(|(to, _)| *to == node);
            (node, owed.map(|(_, duty)| *duty))
        };
        let outstanding = self.ballot.answers().outstanding().map(duty);
        for (node, silence) in round::due(cluster, Purpose::Release.of(round), outstanding) {
            self.ballot.vote(node, Err(silence));
        }
    }

    pub(super) fn is_decided(&self) -> bool {
        self.ballot.verdict() != Verdict::Open
    }

    /// Answers the caller.
    pub(super) fn end(self, cluster: &Cluster) {
        let answer = match self.ballot.verdict() {
            Verdict::Released | Verdict::Open => Ok(()),
            Verdict::Gone => Err(Lost {
                reason: LossReason::Evicted,
            }
            .into()),
            Verdict::NoQuorum => {
                let (nodes, again) = (&cluster.settings.nodes, cluster.try_again(cluster.needed));
                let answers = self.ballot.answers();
                let report = answers.report(self.name.as_str(), cluster.needed, nodes, Some(again));
                Err(Error::NoQuorum(report))
            }
        };
        let _ = self.reply.send(answer);
    }
}
