//! Bootstrap: admits brand-new nodes without their quarantine, and raises the terms of nodes that vote
//! (protocol §2).

mod decide;
mod poll;

use std::{iter, mem, time::Duration};

pub(crate) use self::decide::patience;
use self::{
    decide::{Next, SUBJECT, decide, long_enough, longest_wait},
    poll::Poll,
};
use super::net::{Net, vote_of};
use crate::{
    Error, Report, Silence, Vote,
    base::clock::Tick,
    lease::response::Responder,
    node::{
        admission::{self, BootRecord, Mode},
        answer::Answer,
        session::RoundId,
        status::NodeState,
    },
};

/// The one bootstrap that may be under way.
#[derive(Default)]
pub(super) struct Bootstrap(Option<Running>);

struct Running {
    deadline: Tick,
    /// For how long a raise may lack what it needs.
    within: Duration,
    /// What the caller says of the nodes: `Raise` admits none that does not vote.
    mode: Mode,
    stage: Stage,
    /// Only what nodes were asked from here on counts: what was read before may be long over.
    since: Tick,
    /// What the last round of handshakes said, node by node.
    met: Vec<Seen>,
    reply: Responder<()>,
}

enum Stage {
    /// Until two rounds of handshakes said the same.
    Meeting,
    /// Has any node given out a token?
    Surveying(Poll),
    /// Before a raise: until every node has been watched for long enough for the greater terms. None
    /// is in quarantine then when it learns them from a client, should the raise break off.
    Lifting(Poll),
    /// Writing.
    Admitting(Poll),
    /// Of a bootstrap, not of a raise: until every node votes.
    Confirming,
}

/// What two handshakes of a node have to agree in.
#[derive(PartialEq, Eq)]
struct Seen {
    record: BootRecord,
    /// It votes, or was watched for long enough to hear from every living client.
    settled: bool,
}

impl Bootstrap {
    pub(super) fn begin(
        &mut self,
        net: &mut Net,
        within: Duration,
        mode: Mode,
        reply: Responder<()>,
    ) {
        self.end_if_dropped(net);
        if self.0.is_some() {
            let why = "another bootstrap of this quorum is under way";
            let _ = reply.send(Err(Error::Invalid(why.into())));
            return;
        }
        let more = match mode {
            Mode::New => patience(net.settings.node_timeout),
            Mode::Forced | Mode::Raise => Duration::ZERO,
        };
        net.fleet_mut().force(mode == Mode::Forced);
        self.0 = Some(Running {
            deadline: net.now.plus(within).plus(more),
            within,
            mode,
            stage: Stage::Meeting,
            since: net.now,
            met: Vec::new(),
            reply,
        });
    }

    /// A node's answer; looked at with everything else, by [`look`](Self::look).
    pub(super) fn heard(&mut self, round: RoundId, node: usize, answer: Result<Answer, Silence>) {
        let Some(Running {
            stage: Stage::Surveying(poll) | Stage::Lifting(poll) | Stage::Admitting(poll),
            ..
        }) = &mut self.0
        else {
            return;
        };
        if poll.round == round {
            poll.heard(node, answer);
        }
    }

    /// Looks what can be done next, until nothing can.
    pub(super) fn look(&mut self, net: &mut Net) {
        self.end_if_dropped(net);
        while let Some(mut running) = self.0.take() {
            let before = mem::discriminant(&running.stage);
            match running.step(net) {
                Ok(Some(stage)) if running.deadline > net.now => {
                    let moved = mem::discriminant(&stage) != before;
                    running.stage = stage;
                    self.0 = Some(running);
                    if !moved {
                        return;
                    }
                }
                Ok(Some(_)) => {
                    let report = match running.mode {
                        Mode::Raise => raise_report(net),
                        Mode::New | Mode::Forced => net.state_report(SUBJECT, net.total()),
                    };
                    return running.end(net, Err(Error::NoQuorum(report)));
                }
                Ok(None) => return running.end(net, Ok(())),
                Err(error) => return running.end(net, Err(error)),
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.0.as_ref().map(|running| running.deadline)
    }

    /// The engine ends: the caller finds its channel closed.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Nobody waits for it any more: nothing else is asked or written.
    fn end_if_dropped(&mut self, net: &mut Net) {
        let dropped = |running: &mut Running| running.reply.is_closed();
        if self.0.take_if(dropped).is_some() {
            net.fleet_mut().force(false);
        }
    }
}

impl Running {
    fn end(self, net: &mut Net, answer: Result<(), Error>) {
        net.fleet_mut().force(false);
        let _ = self.reply.send(answer);
    }

    /// The next stage, or the one that it is in; none: done.
    fn step(&mut self, net: &mut Net) -> Result<Option<Stage>, Error> {
        match mem::replace(&mut self.stage, Stage::Meeting) {
            Stage::Meeting => self.meet(net),
            Stage::Surveying(poll) => self.survey(net, poll),
            Stage::Lifting(poll) => self.lift(net, poll),
            Stage::Admitting(poll) => self.admit(net, poll),
            Stage::Confirming => {
                let voting = net.states().all(|s| s == NodeState::Voting);
                Ok((!voting).then_some(Stage::Confirming))
            }
        }
    }

    /// All nodes are met again, and what there is to do is looked at anew.
    fn anew(&mut self, now: Tick) -> Stage {
        self.since = now;
        self.met.clear();
        Stage::Meeting
    }

    /// Every node has to answer. All are met anew, twice: what was read of a neighbour before may be
    /// from a time when it did not vote yet, and two rounds alike are one view of all nodes.
    fn meet(&mut self, net: &mut Net) -> Result<Option<Stage>, Error> {
        let mut nodes = net.sessions().iter().zip(&net.settings.nodes);
        if let Some((session, name)) = nodes.find(|(session, _)| session.is_duplicate()) {
            let why = session.refusal().unwrap_or_default();
            return Err(Error::Invalid(format!("{name}: {why}")));
        }
        let raises = self.mode == Mode::Raise;
        if raises && !net.fleet().has_less() {
            // A majority has what this client asks for, or learns it while it does not vote yet.
            return Ok((!majority_answers(net)).then_some(Stage::Meeting));
        }
        let g = long_enough(net.settings.node_timeout).as_millis();
        let g = u64::try_from(g).unwrap_or(u64::MAX);
        if !self.all_met(net, g)? {
            return Ok(Some(Stage::Meeting));
        }
        let records = net.sessions().iter().filter_map(|s| s.witness());
        let records = records.map(|witness| witness.record.clone());
        let nodes: Vec<_> = net.settings.nodes.iter().cloned().zip(records).collect();
        let (own, rules) = (net.settings.terms, net.settings.rules);
        let next = decide(&nodes, own, self.mode, g, rules).map_err(Error::Invalid)?;
        Ok(match next {
            Next::Done => None,
            Next::Wait => {
                if raises {
                    // Nothing is missing: a quarantine has a known end.
                    self.deadline = net.now.plus(self.within);
                }
                Some(Stage::Meeting)
            }
            Next::Survey => Some(Stage::Surveying(Poll::survey(net))),
            Next::Admit(Mode::Raise) => Some(Stage::Lifting(Poll::admit(net, Mode::Raise, true))),
            Next::Admit(mode) => Some(Stage::Admitting(Poll::admit(net, mode, false))),
        })
    }

    /// Whether every node was met twice with the same result. Those for which that is not so are met again.
    fn all_met(&mut self, net: &mut Net, g: u64) -> Result<bool, Error> {
        let (mut met, mut stale, mut missing) = (Vec::new(), Vec::new(), false);
        for (node, session) in net.sessions().iter().enumerate() {
            let fresh = session.was_met_since(self.since);
            match (session.witness(), session.refusal()) {
                // Asked again, it may say something else: this client vouches now.
                (None, Some(_)) if session.is_met() && !fresh => stale.push(node),
                (None, Some(_)) if self.mode != Mode::Raise => {
                    let report = net.state_report(SUBJECT, net.total());
                    return Err(Error::NoQuorum(report));
                }
                (None, _) => missing = true,
                (Some(_), _) if !fresh => stale.push(node),
                (Some(witness), _) => {
                    let record = BootRecord {
                        witnessed: 0,
                        ..witness.record.clone()
                    };
                    let settled = witness.record.votes() || witness.record.witnessed >= g;
                    met.push(Seen { record, settled });
                }
            }
        }
        let all = !missing && stale.is_empty();
        if all && met != self.met {
            stale.extend(0..met.len());
            self.met = met;
            self.since = net.now;
        }
        for node in &stale {
            net.session(*node, |session, step| session.meet_again(step));
        }
        Ok(!missing && stale.is_empty())
    }

    fn survey(&mut self, net: &mut Net, poll: Poll) -> Result<Option<Stage>, Error> {
        poll.refuse_used(net)?;
        let surveyed =
            |reply: &admission::Reply| matches!(reply, admission::Reply::Surveyed { .. });
        if poll.answers.count(surveyed) < net.total() {
            poll.fail_if_silent(net)?;
            return Ok(Some(Stage::Surveying(poll)));
        }
        Ok(Some(Stage::Admitting(Poll::admit(net, Mode::New, false))))
    }

    fn lift(&mut self, net: &mut Net, poll: Poll) -> Result<Option<Stage>, Error> {
        self.admitted(net, poll, Stage::Lifting, |_, net| {
            Stage::Admitting(Poll::admit(net, Mode::Raise, false))
        })
    }

    fn admit(&mut self, net: &mut Net, poll: Poll) -> Result<Option<Stage>, Error> {
        self.admitted(net, poll, Stage::Admitting, |running, net| {
            if running.mode == Mode::Raise {
                // All have the terms now, so there is nothing left to raise, and a majority is enough.
                return running.anew(net.now);
            }
            net.every_session(|session, step| session.meet_again(step));
            Stage::Confirming
        })
    }

    /// Stays in this stage until every node was admitted, and goes on `then`.
    fn admitted(
        &mut self,
        net: &mut Net,
        poll: Poll,
        stage: impl FnOnce(Poll) -> Stage,
        then: impl FnOnce(&mut Self, &mut Net) -> Stage,
    ) -> Result<Option<Stage>, Error> {
        let said = |admitted| {
            let reply = admission::Reply::Admitted(admitted);
            poll.answers.count(|r| *r == reply)
        };
        let refused = said(false) > 0;
        if self.mode == Mode::Raise && (refused || poll.answers.is_any_silent()) {
            // Another client raises too, or a node was lost.
            return Ok(Some(self.anew(net.now)));
        }
        if refused {
            // A memory changed meanwhile, or a client came that knows this fleet as one in use: tried
            // again, it is told which.
            return Err(poll.error(net));
        }
        if said(true) < net.total() {
            poll.fail_if_silent(net)?;
            return Ok(Some(stage(poll)));
        }
        Ok(Some(then(self, net)))
    }
}

fn majority_answers(net: &Net) -> bool {
    let answers = |s: &NodeState| matches!(s, NodeState::Voting | NodeState::Quarantined(_));
    net.published().filter(answers).count() >= net.needed
}

/// Why a raise has not come about. That a node is not counted because this client asks for more
/// than the fleet has is no news here: what the node itself is decides.
fn raise_report(net: &Net) -> Report {
    let raises = net.fleet().has_less();
    let nodes = net.sessions().iter().zip(net.published());
    let votes = nodes.map(
        |(session, state)| match session.witness().filter(|_| raises) {
            Some(witness) if witness.record.votes() => Vote::Confirmed,
            Some(witness) => {
                let left = longest_wait(iter::once(&witness.record));
                Vote::None(Silence::Quarantined(Duration::from_millis(left)))
            }
            None => vote_of(&state),
        },
    );
    let needed = match raises {
        true => net.total(),
        false => net.needed,
    };
    let votes = votes.collect();
    net.report("raise_terms", needed, votes, net.try_again(needed))
}
