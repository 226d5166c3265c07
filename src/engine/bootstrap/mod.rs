//! Bootstrap: admits brand-new nodes without their quarantine, and raises the terms of nodes that vote (protocol §2).

mod decide;
mod poll;

use std::{iter, mem, time::Duration};

pub(crate) use self::decide::patience;
use self::{
    decide::{Next, SUBJECT, decide, long_enough, longest_wait},
    poll::Poll,
};
use super::cluster::{Cluster, vote_of};
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

/// The bootstrap that is under way, if there is one.
#[derive(Default)]
pub(super) struct Bootstrap(Option<Running>);

struct Running {
    deadline: Tick,
    /// For how long a raise may go without what it needs.
    within: Duration,
    /// The caller's statement about the nodes. `Raise` admits no node that does not vote.
    mode: Mode,
    stage: Stage,
    /// Only answers to requests from this time on count. Earlier answers may be long out of date.
    since: Tick,
    /// The result of the last round of handshakes, by node.
    met: Vec<Seen>,
    reply: Responder<()>,
}

enum Stage {
    /// Waits until two rounds of handshakes said the same.
    Meeting,
    /// Asks the nodes if they have given out a token.
    Surveying(Poll),
    /// First round of a raise: sets w of every node to what the greater terms ask for. If the raise breaks off, no node
    /// is then sent into quarantine when it learns the terms from a client.
    Lifting(Poll),
    /// Writes the terms.
    Admitting(Poll),
    /// Waits until every node votes. For a bootstrap only, not for a raise.
    Confirming,
}

/// The part of a handshake in which two rounds have to agree.
#[derive(PartialEq, Eq)]
struct Seen {
    record: BootRecord,
    settled: bool,
}

impl Bootstrap {
    pub(super) fn begin(
        &mut self,
        cluster: &mut Cluster,
        within: Duration,
        mode: Mode,
        reply: Responder<()>,
    ) {
        self.end_if_dropped(cluster);
        if self.0.is_some() {
            let why = "another bootstrap of this quorum is under way";
            let _ = reply.send(Err(Error::Invalid(why.into())));
            return;
        }
        let more = match mode {
            Mode::New => patience(cluster.settings.node_timeout),
            Mode::Forced | Mode::Raise => Duration::ZERO,
        };
        cluster.fleet_mut().force(mode == Mode::Forced);
        self.0 = Some(Running {
            deadline: cluster.now.plus(within).plus(more),
            within,
            mode,
            stage: Stage::Meeting,
            since: cluster.now,
            met: Vec::new(),
            reply,
        });
    }

    /// Records a node's answer. [`look`](Self::look) decides what follows.
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

    /// Takes one step after the other, until it has to wait.
    pub(super) fn look(&mut self, cluster: &mut Cluster) {
        self.end_if_dropped(cluster);
        while let Some(mut running) = self.0.take() {
            let before = mem::discriminant(&running.stage);
            match running.step(cluster) {
                Ok(Some(stage)) if running.deadline > cluster.now => {
                    let moved = mem::discriminant(&stage) != before;
                    running.stage = stage;
                    self.0 = Some(running);
                    if !moved {
                        return;
                    }
                }
                Ok(Some(_)) => {
                    let report = match running.mode {
                        Mode::Raise => raise_report(cluster),
                        Mode::New | Mode::Forced => cluster.state_report(SUBJECT, cluster.total()),
                    };
                    return running.end(cluster, Err(Error::NoQuorum(report)));
                }
                Ok(None) => return running.end(cluster, Ok(())),
                Err(error) => return running.end(cluster, Err(error)),
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.0.as_ref().map(|running| running.deadline)
    }

    /// The engine ends. The caller finds its channel closed.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Ends the bootstrap if its caller is gone. Nothing more is asked or written then.
    fn end_if_dropped(&mut self, cluster: &mut Cluster) {
        let dropped = |running: &mut Running| running.reply.is_closed();
        if self.0.take_if(dropped).is_some() {
            cluster.fleet_mut().force(false);
        }
    }
}

impl Running {
    fn end(self, cluster: &mut Cluster, answer: Result<(), Error>) {
        cluster.fleet_mut().force(false);
        let _ = self.reply.send(answer);
    }

    /// The next stage, or the same one. `None` when it is done.
    fn step(&mut self, cluster: &mut Cluster) -> Result<Option<Stage>, Error> {
        match mem::replace(&mut self.stage, Stage::Meeting) {
            Stage::Meeting => self.meet(cluster),
            Stage::Surveying(poll) => self.survey(cluster, poll),
            Stage::Lifting(poll) => self.lift(cluster, poll),
            Stage::Admitting(poll) => self.admit(cluster, poll),
            Stage::Confirming => {
                let voting = cluster.states().all(|s| s == NodeState::Voting);
                Ok((!voting).then_some(Stage::Confirming))
            }
        }
    }

    /// Starts again: all nodes are met again, and the next step is decided from the result.
    fn anew(&mut self, now: Tick) -> Stage {
        self.since = now;
        self.met.clear();
        Stage::Meeting
    }

    /// Waits until every node has answered. All are met twice. An earlier record of a node may be from a time when it
    /// did not vote yet. Two rounds that agree are one view of all nodes.
    fn meet(&mut self, cluster: &mut Cluster) -> Result<Option<Stage>, Error> {
        let mut nodes = cluster.sessions().iter().zip(&cluster.settings.nodes);
        if let Some((session, name)) = nodes.find(|(session, _)| session.is_duplicate()) {
            let why = session.refusal().unwrap_or_default();
            return Err(Error::Invalid(format!("{name}: {why}")));
        }
        let raises = self.mode == Mode::Raise;
        if raises && !cluster.fleet().has_less() {
            // A majority has the terms that this client asks for, or learns them while it does not vote yet.
            return Ok((!majority_answers(cluster)).then_some(Stage::Meeting));
        }
        let g = long_enough(cluster.settings.node_timeout).as_millis();
        let g = u64::try_from(g).unwrap_or(u64::MAX);
        if !self.all_met(cluster, g)? {
            return Ok(Some(Stage::Meeting));
        }
        let records = cluster.sessions().iter().filter_map(|s| s.witness());
        let records = records.map(|witness| witness.record.clone());
        let nodes: Vec<_> = cluster
            .settings
            .nodes
            .iter()
            .cloned()
            .zip(records)
            .collect();
        let (own, rules) = (cluster.settings.terms, cluster.settings.rules);
        let next = decide(&nodes, own, self.mode, g, rules).map_err(Error::Invalid)?;
        Ok(match next {
            Next::Done => None,
            Next::Wait => {
                if raises {
                    // Nothing is missing: a quarantine has a known end.
                    self.deadline = cluster.now.plus(self.within);
                }
                Some(Stage::Meeting)
            }
            Next::Survey => Some(Stage::Surveying(Poll::survey(cluster))),
            Next::Admit(Mode::Raise) => {
                Some(Stage::Lifting(Poll::admit(cluster, Mode::Raise, true)))
            }
            Next::Admit(mode) => Some(Stage::Admitting(Poll::admit(cluster, mode, false))),
        })
    }

    /// Returns true if every node was met twice with the same result. The other nodes are met again.
    fn all_met(&mut self, cluster: &mut Cluster, g: u64) -> Result<bool, Error> {
        let (mut met, mut stale, mut missing) = (Vec::new(), Vec::new(), false);
        for (node, session) in cluster.sessions().iter().enumerate() {
            let fresh = session.was_met_since(self.since);
            match (session.witness(), session.refusal()) {
                // It may answer differently when it is asked again, because this client vouches now.
                (None, Some(_)) if session.is_met() && !fresh => stale.push(node),
                (None, Some(_)) if self.mode != Mode::Raise => {
                    let report = cluster.state_report(SUBJECT, cluster.total());
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
            self.since = cluster.now;
        }
        for node in &stale {
            cluster.session(*node, |session, step| session.meet_again(step));
        }
        Ok(!missing && stale.is_empty())
    }

    fn survey(&mut self, cluster: &mut Cluster, poll: Poll) -> Result<Option<Stage>, Error> {
        poll.refuse_used(cluster)?;
        let surveyed =
            |reply: &admission::Reply| matches!(reply, admission::Reply::Surveyed { .. });
        if poll.answers.count(surveyed) < cluster.total() {
            poll.fail_if_silent(cluster)?;
            return Ok(Some(Stage::Surveying(poll)));
        }
        Ok(Some(Stage::Admitting(Poll::admit(
            cluster,
            Mode::New,
            false,
        ))))
    }

    fn lift(&mut self, cluster: &mut Cluster, poll: Poll) -> Result<Option<Stage>, Error> {
        self.admitted(cluster, poll, Stage::Lifting, |_, cluster| {
            Stage::Admitting(Poll::admit(cluster, Mode::Raise, false))
        })
    }

    fn admit(&mut self, cluster: &mut Cluster, poll: Poll) -> Result<Option<Stage>, Error> {
        self.admitted(cluster, poll, Stage::Admitting, |running, cluster| {
            if running.mode == Mode::Raise {
                // All nodes have the terms now. So nothing is left to raise, and a majority is enough.
                return running.anew(cluster.now);
            }
            cluster.every_session(|session, step| session.meet_again(step));
            Stage::Confirming
        })
    }

    /// Stays in this stage until every node was admitted, then enters the stage that `then` returns.
    fn admitted(
        &mut self,
        cluster: &mut Cluster,
        poll: Poll,
        stage: impl FnOnce(Poll) -> Stage,
        then: impl FnOnce(&mut Self, &mut Cluster) -> Stage,
    ) -> Result<Option<Stage>, Error> {
        let said = |admitted| {
            let reply = admission::Reply::Admitted(admitted);
            poll.answers.count(|r| *r == reply)
        };
        let refused = said(false) > 0;
        if self.mode == Mode::Raise && (refused || poll.answers.is_any_silent()) {
            // Another client raises the terms too, or a node was lost.
            return Ok(Some(self.anew(cluster.now)));
        }
        if refused {
            // A node's memory has changed meanwhile, or a client came that knows this fleet as one in use. If the
            // caller tries again, the error says which.
            return Err(poll.error(cluster));
        }
        if said(true) < cluster.total() {
            poll.fail_if_silent(cluster)?;
            return Ok(Some(stage(poll)));
        }
        Ok(Some(then(self, cluster)))
    }
}

fn majority_answers(cluster: &Cluster) -> bool {
    let answers = |s: &NodeState| matches!(s, NodeState::Voting | NodeState::Quarantined(_));
    cluster.published().filter(answers).count() >= cluster.needed
}

/// The reason why a raise has not succeeded. A node that is not counted because this client asks for more than the
/// fleet has is not reported for that reason. Its own state is reported.
fn raise_report(cluster: &Cluster) -> Report {
    let raises = cluster.fleet().has_less();
    let nodes = cluster.sessions().iter().zip(cluster.published());
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
        true => cluster.total(),
        false => cluster.needed,
    };
    let votes = votes.collect();
    cluster.report("raise_terms", needed, votes, cluster.try_again(needed))
}
