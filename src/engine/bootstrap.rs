//! Bootstrap: admits brand-new nodes without their quarantine, and raises the terms of nodes that vote
//! (protocol §2).

use std::{iter, mem, sync::Arc, time::Duration};

use super::{
    Reply as Answer,
    core::{CLOSED, Core},
};
use crate::{
    Error, NodeReport, Report, Silence, Vote,
    ballot::answers::{Answers, Heard},
    clock::Tick,
    node::{
        Operation, Reply,
        admission::{self, Admit, BootRecord, Mode, Terms},
        session::{LAST_BACKOFF, RoundId, Tag},
        status::NodeState,
    },
    report::{said, seconds},
    rules::{Rule, Rules},
};

/// What its reports are about.
const SUBJECT: &str = "bootstrap";

/// One bootstrap under way.
pub(super) struct Bootstrap {
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
    reply: Answer<()>,
}

impl Bootstrap {
    pub(super) fn deadline(&self) -> Tick {
        self.deadline
    }

    /// All nodes are met again, and what there is to do is looked at anew.
    fn anew(&mut self, now: Tick) -> Stage {
        self.since = now;
        self.met.clear();
        Stage::Meeting
    }
}

enum Stage {
    /// Until two rounds of handshakes said the same.
    Meeting,
    /// Has any node given out a token?
    Surveying(u64),
    /// Before a raise: until every node has been watched for long enough for the greater terms. None
    /// is in quarantine then when it learns them from a client, should the raise break off.
    Lifting(u64),
    /// Writing.
    Admitting(u64),
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

/// What follows from nodes that were met twice and said the same.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Every node votes on these terms.
    Done,
    /// Nothing can be said before more time has passed.
    Wait,
    /// They look new: ask whether they were used.
    Survey,
    Admit(Mode),
}

/// G: by then every living client that reaches any of these nodes has told it that the fleet is in
/// use: the longest back-off, one answer, and a handshake a second later.
pub(crate) fn long_enough(node_timeout: Duration) -> Duration {
    LAST_BACKOFF + node_timeout + Duration::from_secs(1)
}

/// The decision. `nodes`: their names and records; `g` is G in ms.
fn decide(
    nodes: &[(Arc<str>, BootRecord)],
    own: Terms,
    mode: Mode,
    g: u64,
    rules: Rules,
) -> Result<Next, String> {
    let wanted = greatest(nodes.iter().map(|(_, record)| record), own);
    let voting = nodes.iter().find(|(_, record)| record.votes());
    if nodes.iter().all(|(_, record)| record.votes()) {
        let raises = nodes.iter().any(|(_, record)| record.terms != wanted);
        return Ok(match raises {
            true => Next::Admit(Mode::Raise),
            false => Next::Done,
        });
    }
    match mode {
        Mode::New => {}
        Mode::Forced => return Ok(Next::Admit(Mode::Forced)),
        Mode::Raise => return Ok(Next::Wait),
    }
    let left = longest_wait(nodes.iter().map(|(_, record)| record));
    let wait = by_themselves(left);
    if let Some((node, _)) = voting
        && rules.hold(Rule::BootstrapOnlyNew)
    {
        // A quarantine that is shorter than the wait of a bootstrap just ends.
        return match left <= g {
            true => Ok(Next::Wait),
            false => Err(format!(
                "{node} votes already, so the others are not new: they restarted, and {wait}"
            )),
        };
    }
    // Every client that sees a voter says u, this one too: only what skips both rules shows the first.
    if voting.is_some() || !rules.hold(Rule::BootstrapUnused) {
        return Ok(Next::Admit(Mode::Forced));
    }
    if let Some((node, _)) = nodes.iter().find(|(_, record)| record.used) {
        return Err(format!(
            "{node} was told by a client, or remembers, that this fleet has been in use, so these \
             masters are not new: they restarted, and {wait}"
        ));
    }
    let settled = nodes.iter().all(|(_, record)| record.witnessed >= g);
    Ok(if settled { Next::Survey } else { Next::Wait })
}

/// In ms: until the last of them votes, if they are watched until then.
fn longest_wait<'r>(records: impl Iterator<Item = &'r BootRecord>) -> u64 {
    let left = records.map(|r| r.terms.quarantine().saturating_sub(r.witnessed));
    left.max().unwrap_or(0)
}

fn by_themselves(left: u64) -> String {
    format!(
        "they vote by themselves in {} (force it only if every client has been stopped for longer than \
         max_ttl)",
        seconds(Duration::from_millis(left))
    )
}

fn greatest<'r>(records: impl Iterator<Item = &'r BootRecord>, own: Terms) -> Terms {
    records.fold(own, |terms, record| terms.join(record.terms))
}

impl Core {
    pub(super) fn bootstrap(&mut self, now: Tick, within: Duration, mode: Mode, reply: Answer<()>) {
        if self.admin.is_closed() {
            let _ = reply.send(Err(CLOSED));
            return;
        }
        self.end_dropped_bootstrap();
        if self.admin.bootstrap.is_some() {
            let why = "another bootstrap of this quorum is under way";
            let _ = reply.send(Err(Error::Invalid(why.into())));
            return;
        }
        let patience = match mode {
            Mode::New => long_enough(self.settings.node_timeout),
            Mode::Forced | Mode::Raise => Duration::ZERO,
        };
        self.fleet().force(mode == Mode::Forced);
        self.admin.bootstrap = Some(Bootstrap {
            deadline: now.plus(within).plus(patience),
            within,
            mode,
            stage: Stage::Meeting,
            since: now,
            met: Vec::new(),
            reply,
        });
    }

    /// Nobody waits for it any more: nothing else is asked or written.
    fn end_dropped_bootstrap(&mut self) {
        let dropped = |bootstrap: &mut Bootstrap| bootstrap.reply.is_closed();
        if let Some(bootstrap) = self.admin.bootstrap.take_if(dropped) {
            self.forget(&bootstrap.stage);
            self.fleet().force(false);
        }
    }

    pub(super) fn bootstrap_due(&mut self, now: Tick) {
        self.end_dropped_bootstrap();
        let Some(mut bootstrap) = self.admin.bootstrap.take() else {
            return;
        };
        let step = match bootstrap.stage {
            Stage::Meeting => self.all_met(now, &mut bootstrap),
            Stage::Surveying(ticket) => self.all_surveyed(now, ticket),
            Stage::Lifting(ticket) => self.all_admitted(now, &mut bootstrap, ticket, true),
            Stage::Admitting(ticket) => self.all_admitted(now, &mut bootstrap, ticket, false),
            Stage::Confirming => {
                let voting = self.states(now).iter().all(|s| *s == NodeState::Voting);
                Ok((!voting).then_some(Stage::Confirming))
            }
        };
        let answer = match step {
            Ok(Some(stage)) if bootstrap.deadline > now => {
                let moved = mem::discriminant(&stage) != mem::discriminant(&bootstrap.stage);
                bootstrap.stage = stage;
                self.admin.bootstrap = Some(bootstrap);
                if moved {
                    self.bootstrap_due(now);
                }
                return;
            }
            Ok(Some(stage)) => {
                self.forget(&stage);
                Err(Error::NoQuorum(match bootstrap.mode {
                    Mode::Raise => self.raise_report(now),
                    Mode::New | Mode::Forced => {
                        self.state_report(now, SUBJECT, self.settings.total())
                    }
                }))
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        self.forget(&bootstrap.stage);
        self.fleet().force(false);
        let _ = bootstrap.reply.send(answer);
    }

    /// Nobody looks at the answers of this stage any more.
    fn forget(&mut self, stage: &Stage) {
        if let Stage::Surveying(ticket) | Stage::Lifting(ticket) | Stage::Admitting(ticket) = stage
        {
            self.take(*ticket);
        }
    }

    /// Every node has to answer. All are met anew, twice: what was read of a neighbour before may be
    /// from a time when it did not vote yet, and two rounds alike are one view of all nodes.
    fn all_met(&mut self, now: Tick, bootstrap: &mut Bootstrap) -> Result<Option<Stage>, Error> {
        let mut nodes = self.sessions().iter().zip(&self.settings.nodes);
        if let Some((session, name)) = nodes.find(|(session, _)| session.is_duplicate()) {
            let why = session.refusal().unwrap_or_default();
            return Err(Error::Invalid(format!("{name}: {why}")));
        }
        let raises = bootstrap.mode == Mode::Raise;
        if raises && !self.fleet().has_less() {
            // A majority has what this client asks for, or learns it while it does not vote yet.
            return Ok((!self.majority_answers(now)).then_some(Stage::Meeting));
        }
        let g = long_enough(self.settings.node_timeout).as_millis();
        let g = u64::try_from(g).unwrap_or(u64::MAX);
        let (mut met, mut stale, mut missing) = (Vec::new(), Vec::new(), false);
        for (node, session) in self.sessions().iter().enumerate() {
            let fresh = session.was_met_since(bootstrap.since);
            match (session.witness(), session.refusal()) {
                // Asked again, it may say something else: this client vouches now.
                (None, Some(_)) if session.is_met() && !fresh => stale.push(node),
                (None, Some(_)) if !raises => {
                    let report = self.state_report(now, SUBJECT, self.settings.total());
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
        if all && met != bootstrap.met {
            stale.extend(0..met.len());
            bootstrap.met = met;
            bootstrap.since = now;
        }
        for node in &stale {
            self.session(now, *node, |session, step| session.meet_again(step));
        }
        if missing || !stale.is_empty() {
            return Ok(Some(Stage::Meeting));
        }
        let records = self.sessions().iter().filter_map(|s| s.witness());
        let records = records.map(|witness| witness.record.clone());
        let nodes: Vec<_> = self.settings.nodes.iter().cloned().zip(records).collect();
        let (own, rules) = (self.settings.terms, self.settings.rules);
        let next = decide(&nodes, own, bootstrap.mode, g, rules).map_err(Error::Invalid)?;
        Ok(match next {
            Next::Done => None,
            Next::Wait => {
                if raises {
                    // Nothing is missing: a quarantine has a known end.
                    bootstrap.deadline = now.plus(bootstrap.within);
                }
                Some(Stage::Meeting)
            }
            Next::Survey => Some(Stage::Surveying(
                self.put_to_all(now, |_| admission::Command::Survey),
            )),
            Next::Admit(Mode::Raise) => {
                Some(Stage::Lifting(self.admit_all(now, Mode::Raise, true)))
            }
            Next::Admit(mode) => Some(Stage::Admitting(self.admit_all(now, mode, false))),
        })
    }

    fn all_surveyed(&mut self, now: Tick, ticket: u64) -> Result<Option<Stage>, Error> {
        let Some(answers) = self.polled(ticket) else {
            return Ok(Some(Stage::Meeting));
        };
        let nodes = self.settings.nodes.iter();
        let used = nodes
            .zip(answers.iter())
            .find_map(|(node, heard)| match heard {
                Heard::Said(Reply::Admission(admission::Reply::Surveyed { used: true, lock })) => {
                    Some((node, lock))
                }
                _ => None,
            });
        if let Some((node, lock)) = used {
            let witnesses = self.sessions().iter().filter_map(|s| s.witness());
            let wait = by_themselves(longest_wait(witnesses.map(|witness| &witness.record)));
            let which = match lock {
                Some(name) => format!("\"{}\" is one of them", said(name)),
                // It does not know HRANDFIELD, or its ACL withholds it: only this text needs it.
                None => format!("HKEYS {}:c0 there names them", self.settings.prefix),
            };
            return Err(Error::Invalid(format!(
                "{node} holds counters, so it has given out locks ({which}), and these masters are not \
                 new: {wait}"
            )));
        }
        if answers.count(|r| matches!(r, Reply::Admission(admission::Reply::Surveyed { .. })))
            < self.settings.total()
        {
            return self
                .polled_all(now, ticket)
                .map(|()| Some(Stage::Surveying(ticket)));
        }
        self.take(ticket);
        Ok(Some(Stage::Admitting(self.admit_all(
            now,
            Mode::New,
            false,
        ))))
    }

    /// `lifts`: every node keeps the terms it has, and only w becomes what the greater ones ask for.
    fn admit_all(&mut self, now: Tick, mode: Mode, lifts: bool) -> u64 {
        let sessions = self.sessions().iter();
        let records: Vec<Option<BootRecord>> = sessions
            .map(|session| Some(session.witness()?.record.clone()))
            .collect();
        let greatest = greatest(records.iter().flatten(), self.settings.terms);
        // New nodes have no history to wait for.
        let witnessed = match mode {
            Mode::New => greatest.history(),
            Mode::Raise | Mode::Forced => greatest.quarantine(),
        };
        let settings = Arc::clone(&self.settings);
        self.put_to_all(now, |node| {
            let (run, id, own) = match records.get(node) {
                Some(Some(record)) => (record.run.clone(), record.id.clone(), record.terms),
                // It went away meanwhile: it is not asked.
                _ => Default::default(),
            };
            admission::Command::Admit(Admit {
                masters: settings.total() as u64,
                list: settings.list.clone(),
                run,
                id,
                terms: if lifts { own } else { greatest },
                witnessed,
                mode,
            })
        })
    }

    fn all_admitted(
        &mut self,
        now: Tick,
        bootstrap: &mut Bootstrap,
        ticket: u64,
        lifts: bool,
    ) -> Result<Option<Stage>, Error> {
        let Some(answers) = self.polled(ticket) else {
            return Ok(Some(Stage::Meeting));
        };
        let refused =
            answers.count(|r| *r == Reply::Admission(admission::Reply::Admitted(false))) > 0;
        if bootstrap.mode == Mode::Raise && (refused || self.polled_all(now, ticket).is_err()) {
            // Another client raises too, or a node was lost.
            self.take(ticket);
            return Ok(Some(bootstrap.anew(now)));
        }
        if refused {
            // A memory changed meanwhile, or a client came that knows this fleet as one in use: tried
            // again, it is told which.
            return Err(self.polled_error(now, answers));
        }
        if answers.count(|r| *r == Reply::Admission(admission::Reply::Admitted(true)))
            < self.settings.total()
        {
            return self.polled_all(now, ticket).map(|()| {
                Some(match lifts {
                    true => Stage::Lifting(ticket),
                    false => Stage::Admitting(ticket),
                })
            });
        }
        self.take(ticket);
        if lifts {
            let ticket = self.admit_all(now, Mode::Raise, false);
            return Ok(Some(Stage::Admitting(ticket)));
        }
        if bootstrap.mode == Mode::Raise {
            // All have the terms now, so there is nothing left to raise, and a majority is enough.
            return Ok(Some(bootstrap.anew(now)));
        }
        for node in 0..self.settings.total() {
            self.session(now, node, |session, step| session.meet_again(step));
        }
        Ok(Some(Stage::Confirming))
    }

    fn majority_answers(&self, now: Tick) -> bool {
        let states = self.states(now);
        let answers = |s: &&NodeState| matches!(s, NodeState::Voting | NodeState::Quarantined(_));
        states.iter().filter(answers).count() >= self.needed
    }

    /// Why a raise has not come about. That a node is not counted because this client asks for more
    /// than the fleet has is no news here: what the node itself is decides.
    fn raise_report(&mut self, now: Tick) -> Report {
        let raises = self.fleet().has_less();
        let states = self.states(now);
        let nodes = self.settings.nodes.iter().zip(self.sessions()).zip(states);
        let nodes = nodes.map(|((node, session), state)| NodeReport {
            node: Arc::clone(node),
            vote: match session.witness().filter(|_| raises) {
                Some(witness) if witness.record.votes() => Vote::Confirmed,
                Some(witness) => {
                    let left = longest_wait(iter::once(&witness.record));
                    Vote::None(Silence::Quarantined(Duration::from_millis(left)))
                }
                None => state.silence().map_or(Vote::Confirmed, Vote::None),
            },
            holder: None,
        });
        let needed = match raises {
            true => self.settings.total(),
            false => self.needed,
        };
        let nodes = nodes.collect();
        let again = self.try_again(now, needed);
        Report::new("raise_terms", needed, nodes, Some(again))
    }

    /// Puts a command to every node, whether it votes or not.
    fn put_to_all(&mut self, now: Tick, command: impl Fn(usize) -> admission::Command) -> u64 {
        let ticket = self.new_ticket();
        let tag = Tag {
            round: RoundId(ticket),
            request: 0,
        };
        for node in 0..self.settings.total() {
            let operation = Operation::new(command(node));
            self.session(now, node, |session, step| {
                session.ask_unvoting(step, tag, &operation)
            });
        }
        self.poll_task(ticket);
        ticket
    }

    /// A node that failed to answer ends the bootstrap; one that has not answered yet does not.
    fn polled_all(&self, now: Tick, ticket: u64) -> Result<(), Error> {
        match self.polled(ticket) {
            Some(answers) if answers.is_any_silent() => Err(self.polled_error(now, answers)),
            _ => Ok(()),
        }
    }

    fn polled_error(&self, now: Tick, answers: &Answers<Reply>) -> Error {
        let total = self.settings.total();
        let again = self.try_again(now, total);
        Error::NoQuorum(answers.report(SUBJECT, total, &self.settings.nodes, Some(again)))
    }
}

#[cfg(test)]
mod tests;
