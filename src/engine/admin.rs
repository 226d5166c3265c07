//! Coming up, bootstrap, shutting down.

use std::{mem, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    Reply as Answer,
    core::{CLOSED, Core},
    holding::Holding,
};
use crate::{
    Error, NodeReport, Report, Vote,
    clock::Tick,
    node::{
        Batch, Command, Reply,
        admission::quarantine,
        status::{NodeState, NodeStatus},
    },
    rules::Rule,
};

/// A caller of `connect` waits for all nodes this long at most once a majority is there or cannot be:
/// so that two addresses of one server are told at once, an error knows of every node, and a dead
/// node costs little.
const LONGEST_GRACE: Duration = Duration::from_millis(200);
const SHORTEST_GRACE: Duration = Duration::from_millis(50);

/// What is asked about the quorum as a whole.
#[derive(Default)]
pub(super) struct Admin {
    closed: bool,
    gave_up: bool,
    ready: Vec<Ready>,
    bootstrap: Option<Bootstrap>,
    shutdowns: Vec<Shutdown>,
    traced: Vec<NodeState>,
}

struct Ready {
    since: Tick,
    deadline: Tick,
    grace_until: Option<Tick>,
    reply: Answer<()>,
}

struct Bootstrap {
    deadline: Tick,
    force: bool,
    stage: Stage,
    /// Only what nodes were asked from here on counts: what was read before may be long over.
    since: Tick,
    /// Run and record of every node, as the last round of handshakes read them.
    met: Vec<(String, String)>,
    reply: Answer<()>,
}

enum Stage {
    /// Until every node was met twice, and was the same.
    Meeting,
    /// Is a lock held anywhere?
    Surveying(u64),
    /// Writing.
    Admitting(u64),
    /// Until every node votes.
    Confirming,
}

struct Shutdown {
    deadline: Tick,
    reply: oneshot::Sender<Vec<String>>,
}

impl Admin {
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// The time for a clean end is over.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    pub(super) fn next_tick(&self) -> Option<Tick> {
        let ready = self
            .ready
            .iter()
            .map(|r| r.grace_until.unwrap_or(r.deadline))
            .min();
        let bootstrap = self.bootstrap.as_ref().map(|b| b.deadline);
        let shutdown = self.shutdowns.iter().map(|s| s.deadline).min();
        [ready, bootstrap, shutdown].into_iter().flatten().min()
    }

    /// Tells operators what changed: a state at INFO, a quarantine at WARN.
    pub(super) fn trace_changes(&mut self, nodes: &[NodeStatus]) {
        self.traced.resize(nodes.len(), NodeState::Connecting);
        for (node, traced) in nodes.iter().zip(&mut self.traced) {
            if mem::discriminant(&node.state) == mem::discriminant(traced) {
                continue;
            }
            match &node.state {
                NodeState::Quarantined(_) => tracing::warn!(%node, "a node is quarantined"),
                _ => tracing::info!(%node, "a node's state changed"),
            }
            *traced = node.state.clone();
        }
    }
}

impl Core {
    pub(super) fn ready(&mut self, now: Tick, within: Duration, reply: Answer<()>) {
        let ready = Ready {
            since: now,
            deadline: now.plus(within),
            grace_until: None,
            reply,
        };
        self.admin.ready.push(ready);
    }

    pub(super) fn bootstrap(
        &mut self,
        now: Tick,
        within: Duration,
        force: bool,
        reply: Answer<()>,
    ) {
        if self.admin.bootstrap.is_some() {
            let why = "another bootstrap of this quorum is under way";
            let _ = reply.send(Err(Error::Invalid(why.into())));
            return;
        }
        let deadline = now.plus(within);
        let (stage, met) = (Stage::Meeting, Vec::new());
        self.admin.bootstrap = Some(Bootstrap {
            deadline,
            force,
            stage,
            since: now,
            met,
            reply,
        });
    }

    pub(super) fn shutdown(
        &mut self,
        now: Tick,
        within: Duration,
        reply: oneshot::Sender<Vec<String>>,
    ) {
        self.close_wishes(now);
        for ready in mem::take(&mut self.admin.ready) {
            let _ = ready.reply.send(Err(CLOSED));
        }
        let deadline = now.plus(within);
        self.admin.shutdowns.push(Shutdown { deadline, reply });
    }

    /// Looks whether anybody who waits can be told.
    pub(super) fn admin_due(&mut self, now: Tick) {
        if !self.admin.ready.is_empty() {
            self.ready_due(now);
        }
        if self.admin.bootstrap.is_some() {
            self.bootstrap_due(now);
        }
        let late = |s: &Shutdown| s.deadline <= now;
        if !self.admin.shutdowns.is_empty()
            && (self.is_clean() || self.admin.shutdowns.iter().any(late))
        {
            let name = |holding: &Holding| holding.shared.name.as_str().to_owned();
            let held: Vec<String> = self.leases.values().map(name).collect();
            self.admin.gave_up = true;
            for shutdown in mem::take(&mut self.admin.shutdowns) {
                let _ = shutdown.reply.send(held.clone());
            }
        }
    }

    // ---- coming up ------------------------------------------------------------------------

    fn ready_due(&mut self, now: Tick) {
        let verdict = self.readiness(now);
        let mut waiting = Vec::new();
        for mut ready in mem::take(&mut self.admin.ready) {
            let told = match &verdict {
                Some((answer, true)) => Some(answer.clone()),
                Some((answer, false)) => {
                    let took = now.since(ready.since);
                    let grace = (took * 2).clamp(SHORTEST_GRACE, LONGEST_GRACE);
                    let until = *ready.grace_until.get_or_insert(now.plus(grace));
                    (until <= now).then(|| answer.clone())
                }
                None => {
                    ready.grace_until = None;
                    (ready.deadline <= now)
                        .then(|| Err(Error::NoQuorum(self.state_report(now, "connect"))))
                }
            };
            match told {
                Some(answer) => drop(ready.reply.send(answer)),
                None => waiting.push(ready),
            }
        }
        self.admin.ready.append(&mut waiting);
    }

    /// A majority answers, or there is no hope; and whether nothing more can be learnt: all nodes
    /// were tried.
    fn readiness(&self, now: Tick) -> Option<(Result<(), Error>, bool)> {
        let states = self.states(now);
        let duplicate = self.sessions().iter().position(|s| s.is_duplicate());
        if let Some((node, NodeState::Refused(why))) =
            duplicate.and_then(|i| Some((self.settings.nodes.get(i)?, states.get(i)?)))
        {
            return Some((Err(Error::Invalid(format!("{node}: {why}"))), true));
        }
        let answers = |s: &&NodeState| matches!(s, NodeState::Voting | NodeState::Quarantined(_));
        let refused = states
            .iter()
            .filter(|s| matches!(s, NodeState::Refused(_)))
            .count();
        let all_tried = self.sessions().iter().all(|s| s.was_tried());
        if states.iter().filter(answers).count() >= self.needed {
            Some((Ok(()), all_tried))
        } else if states.len() - refused < self.needed {
            Some((
                Err(Error::NoQuorum(self.state_report(now, "connect"))),
                all_tried,
            ))
        } else {
            None
        }
    }

    fn state_report(&self, now: Tick, subject: &str) -> Report {
        let states = self.states(now);
        let nodes = self
            .settings
            .nodes
            .iter()
            .zip(&states)
            .map(|(node, state)| NodeReport {
                node: Arc::clone(node),
                vote: match state {
                    NodeState::Quarantined(_) => Vote::Confirmed,
                    state => state.silence().map_or(Vote::Confirmed, Vote::None),
                },
            });
        Report::new(subject, self.needed, nodes.collect(), None)
    }

    // ---- bootstrap ------------------------------------------------------------------------

    fn bootstrap_due(&mut self, now: Tick) {
        let Some(mut bootstrap) = self.admin.bootstrap.take() else {
            return;
        };
        let step = match bootstrap.stage {
            Stage::Meeting => self.all_met(now, &mut bootstrap),
            Stage::Surveying(ticket) => self.all_surveyed(now, ticket, bootstrap.force),
            Stage::Admitting(ticket) => self.all_admitted(now, ticket),
            Stage::Confirming => {
                let voting = self.states(now).iter().all(|s| *s == NodeState::Voting);
                if voting {
                    Ok(None)
                } else {
                    Ok(Some(Stage::Confirming))
                }
            }
        };
        match step {
            Ok(Some(stage)) if bootstrap.deadline > now => {
                let moved = mem::discriminant(&stage) != mem::discriminant(&bootstrap.stage);
                bootstrap.stage = stage;
                self.admin.bootstrap = Some(bootstrap);
                if moved {
                    self.bootstrap_due(now);
                }
            }
            Ok(Some(stage)) => {
                self.forget(&stage);
                self.forget(&bootstrap.stage);
                let _ = bootstrap
                    .reply
                    .send(Err(Error::NoQuorum(self.state_report(now, "bootstrap"))));
            }
            Ok(None) => drop(bootstrap.reply.send(Ok(()))),
            Err(why) => {
                self.forget(&bootstrap.stage);
                let _ = bootstrap.reply.send(Err(Error::Invalid(why)));
            }
        }
    }

    /// Nobody looks at the answers of this stage any more.
    fn forget(&mut self, stage: &Stage) {
        if let Stage::Surveying(ticket) | Stage::Admitting(ticket) = stage {
            self.take(*ticket);
        }
    }

    /// Every node has to answer, and none may vote already: one that restarted empty looks new, and
    /// only its voting neighbours tell. All are met anew, twice: what was read of a neighbour before
    /// may be from a time when it did not vote yet, and two rounds alike are one view of all nodes.
    fn all_met(&mut self, now: Tick, bootstrap: &mut Bootstrap) -> Result<Option<Stage>, String> {
        let force = bootstrap.force;
        let wanted = self.settings.max_ttl;
        let margin = self.settings.margin;
        let (mut ripe, mut low, mut voting) = (0, 0, None);
        let (mut met, mut stale) = (Vec::new(), Vec::new());
        for (session, node) in self.sessions().iter().zip(&self.settings.nodes) {
            let state = session.state(now);
            let Some(record) = session.record() else {
                if let NodeState::Refused(why) = state {
                    return Err(format!("{node} cannot be bootstrapped: {why}"));
                }
                return Ok(Some(Stage::Meeting));
            };
            match state {
                NodeState::Refused(_) if record.max_ttl < wanted => {}
                NodeState::Refused(why) => {
                    return Err(format!("{node} cannot be bootstrapped: {why}"));
                }
                NodeState::Voting | NodeState::Quarantined(_) => {}
                _ => return Ok(Some(Stage::Meeting)),
            }
            met.push((record.run.clone(), record.id.clone()));
            if record.asked_at < bootstrap.since {
                stale.push(met.len() - 1);
            }
            low += usize::from(record.max_ttl < wanted);
            if record.witnessed >= quarantine(record.max_ttl, margin) {
                ripe += 1;
                voting.get_or_insert(node);
            }
        }
        if stale.is_empty() && met != bootstrap.met {
            stale.extend(0..met.len());
            bootstrap.met = met;
            bootstrap.since = now;
        }
        if !stale.is_empty() {
            for node in stale {
                self.session(now, node, |session, step| session.meet_again(step));
            }
            return Ok(Some(Stage::Meeting));
        }
        let total = self.settings.total();
        if ripe == total && low == 0 {
            return Ok(None);
        }
        let only_new = self.settings.rules.hold(Rule::BootstrapOnlyNew) && !force;
        match voting {
            Some(node) if ripe < total && only_new => Err(format!(
                "{node} votes already, so the others are not new: they restarted, and vote by \
                 themselves once their quarantine is over (force it only if no client is running)"
            )),
            // All vote, and max_ttl is to be raised on all of them.
            Some(_) if ripe == total => Ok(Some(self.admit_all(now))),
            _ => Ok(Some(Stage::Surveying(
                self.put_to_all(now, |_| Command::Survey),
            ))),
        }
    }

    fn all_surveyed(
        &mut self,
        now: Tick,
        ticket: u64,
        force: bool,
    ) -> Result<Option<Stage>, String> {
        let Some(answers) = self.polled(ticket) else {
            return Ok(Some(Stage::Meeting));
        };
        if answers.count(|r| *r == Reply::Surveyed(true)) > 0 && !force {
            return Err(
                "a lock is held on a node already, so this fleet is not new: wait for its \
                        quarantine (force it only if no client is running)"
                    .into(),
            );
        }
        if answers.count(|r| matches!(r, Reply::Surveyed(_))) < self.settings.total() {
            return self
                .polled_all(ticket)
                .map(|()| Some(Stage::Surveying(ticket)));
        }
        self.take(ticket);
        Ok(Some(self.admit_all(now)))
    }

    fn admit_all(&mut self, now: Tick) -> Stage {
        let stored = self
            .sessions()
            .iter()
            .filter_map(|s| s.record())
            .map(|r| r.max_ttl)
            .max();
        let max_ttl = stored.unwrap_or_default().max(self.settings.max_ttl);
        let witnessed = quarantine(max_ttl, self.settings.margin);
        let records: Vec<(String, String)> = self
            .sessions()
            .iter()
            .map(|s| {
                s.record()
                    .map(|r| (r.run.to_owned(), r.id.to_owned()))
                    .unwrap_or_default()
            })
            .collect();
        self.fleet().learn(max_ttl);
        Stage::Admitting(self.put_to_all(now, |node| {
            let (run, id) = records.get(node).cloned().unwrap_or_default();
            Command::Admit {
                run,
                id,
                max_ttl,
                witnessed,
            }
        }))
    }

    fn all_admitted(&mut self, now: Tick, ticket: u64) -> Result<Option<Stage>, String> {
        let Some(answers) = self.polled(ticket) else {
            return Ok(Some(Stage::Meeting));
        };
        if answers.count(|r| *r == Reply::Admitted(false)) > 0 {
            return Err("a node's memory changed meanwhile: look at nodes(), and try again".into());
        }
        if answers.count(|r| *r == Reply::Admitted(true)) < self.settings.total() {
            return self
                .polled_all(ticket)
                .map(|()| Some(Stage::Admitting(ticket)));
        }
        self.take(ticket);
        for node in 0..self.settings.total() {
            self.session(now, node, |session, step| session.meet_again(step));
        }
        Ok(Some(Stage::Confirming))
    }

    /// Puts a command to every node, whether it votes or not.
    fn put_to_all(&mut self, now: Tick, command: impl Fn(usize) -> Command) -> u64 {
        let ticket = self.new_ticket();
        for node in 0..self.settings.total() {
            let batch = Batch::one(command(node), self.guard());
            self.session(now, node, |session, step| {
                session.ask_unvoting(step, ticket, &batch)
            });
        }
        self.poll_task(ticket);
        ticket
    }

    /// A node that failed to answer ends the bootstrap; one that has not answered yet does not.
    fn polled_all(&mut self, ticket: u64) -> Result<(), String> {
        let nodes = Arc::clone(&self.settings);
        let Some(answers) = self.polled(ticket) else {
            return Ok(());
        };
        match answers.silences(&nodes.nodes).next() {
            Some((node, silence)) => Err(format!("{node} did not answer the bootstrap: {silence}")),
            None => Ok(()),
        }
    }
}
