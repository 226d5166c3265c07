//! One RELEASE on all nodes, whose answers somebody waits for.

use super::holding::Holding;
use crate::{
    Error, LossReason, Lost, Silence,
    base::{name::Name, rules::Rule},
    engine::{net::Net, round},
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
    /// Where it was asked for, and what is owed there.
    owed: Vec<(usize, DutyId)>,
    ballot: Ballot,
    reply: Responder<()>,
}

impl Release {
    /// Takes a lease back. Where nobody waits for the answers, none are gathered.
    pub(super) fn begin(
        net: &mut Net,
        holding: Holding,
        reply: Option<Responder<()>>,
    ) -> Option<(RoundId, Self)> {
        let release = net.release(holding.lacks.token, holding.waited);
        let operation = holding.target.ask(&holding.entry, release);
        let round = net.new_round();
        let tag = reply.is_some().then(|| Purpose::Release.of(round));
        let until = net.now.plus(holding.stands_for);
        // Also where it was never granted: its owner may stand in line there.
        let told = match net.holds(Rule::LeaveEverywhere) {
            true => &holding.asked,
            false => &holding.held_on,
        };
        let asked = told.iter().copied();
        let owed = round::release(net, tag, &operation, asked, until);
        let reply = reply?;
        let mut ballot = Ballot::new(net.total(), net.needed, holding.held_on);
        for (node, state) in net.states().enumerate() {
            if !holding.asked.contains(&node) {
                let silence = state.silence().unwrap_or(Silence::ConnectionLost);
                ballot.vote(node, Err(silence));
            }
        }
        round::arm(net, Purpose::Release.of(round));
        let release = Self {
            name: holding.shared.name.clone(),
            owed,
            ballot,
            reply,
        };
        Some((round, release))
    }

    pub(super) fn heard(&mut self, node: usize, answer: Result<Answer, Silence>) {
        self.ballot.vote(node, answer);
    }

    /// Answers are due.
    pub(super) fn due(&mut self, net: &mut Net, round: RoundId) {
        let duty = |node| {
            let owed = self.owed.iter().find(|(to, _)| *to == node);
            (node, owed.map(|(_, duty)| *duty))
        };
        let outstanding = self.ballot.answers().outstanding().map(duty);
        for (node, silence) in round::due(net, Purpose::Release.of(round), outstanding) {
            self.ballot.vote(node, Err(silence));
        }
    }

    pub(super) fn is_decided(&self) -> bool {
        self.ballot.verdict() != Verdict::Open
    }

    /// Tells the caller.
    pub(super) fn end(self, net: &Net) {
        let answer = match self.ballot.verdict() {
            Verdict::Released | Verdict::Open => Ok(()),
            Verdict::Gone => Err(Lost {
                reason: LossReason::Evicted,
            }
            .into()),
            Verdict::NoQuorum => {
                let (nodes, again) = (&net.settings.nodes, net.try_again(net.needed));
                let answers = self.ballot.answers();
                let report = answers.report(self.name.as_str(), net.needed, nodes, Some(again));
                Err(Error::NoQuorum(report))
            }
        };
        let _ = self.reply.send(answer);
    }
}
