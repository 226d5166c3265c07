//! The handshakes with one node: when the next one is due, what it brings, and what the last one read.

use std::{sync::Arc, time::Duration};

use super::{
    clock_rate::ClockRate,
    fault,
    judge::judge,
    standing::{Standing, Witness},
    step::Step,
};
use crate::{
    Error,
    base::{clock::Tick, logs, rules::Rule},
    node::{
        Fault, Operation,
        admission::{self, Handshake, Meeting, record::VISIT},
        answer::{Answer, Answered},
        status::NodeState,
    },
};

/// How often a node that votes is met.
const WHILE_VOTING: Duration = Duration::from_secs(5);
/// How often any other node is met, at least.
const OTHERWISE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Handshakes {
    /// When the next handshake is due. `None` while that is not known, or without a connection.
    due: Option<Tick>,
    /// The time at which the handshake was sent that was answered last on this connection.
    answered: Option<Tick>,
    witness: Option<Witness>,
    /// The record of another fleet, which gives way once that fleet's clients are gone.
    taken: Option<Taken>,
    /// This client's wall clock in µs when the last handshake was sent.
    sent_at_us: u64,
    /// The rate of the node's clock, measured on this connection.
    pub(super) clock_rate: ClockRate,
    /// The reason why the server refuses writes, from the last handshake or a later request.
    pub(super) refused_write: Option<&'static str>,
}

impl Handshakes {
    pub(super) fn due(&self) -> Option<Tick> {
        self.due
    }

    /// Returns true if a handshake that was sent at `since` or later has been answered on this connection.
    pub(super) fn was_answered_since(&self, since: Tick) -> bool {
        self.answered.is_some_and(|at| at >= since)
    }

    /// The last record that was read, on this connection or an older one.
    pub(super) fn witness(&self) -> Option<&Witness> {
        self.witness.as_ref()
    }

    /// A new connection was opened. Nothing was answered on it yet.
    pub(super) fn connected(&mut self) {
        self.answered = None;
        self.taken = None;
        self.refused_write = None;
        self.clock_rate = ClockRate::default();
    }

    /// No handshake is due: it is being sent, or the connection is over.
    pub(super) fn clear(&mut self) {
        self.due = None;
    }

    /// Makes the next handshake due within a second, because the node has said something that only a handshake can take
    /// back.
    pub(super) fn hasten(&mut self, now: Tick) {
        let soon = now.plus(OTHERWISE);
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Makes the next handshake due soon.
    pub(super) fn retry(&mut self, now: Tick) {
        self.due = Some(now.plus(OTHERWISE));
    }

    /// The next handshake, to be sent now. Returns `None` if there are no random bits for it. It is then tried again.
    pub(super) fn make(&mut self, step: &mut Step<'_>, node: usize) -> Option<Arc<Operation>> {
        self.sent_at_us = step.clock.wall_us();
        match bring(step, node, self.witness.as_ref(), self.taken.as_ref()) {
            Ok(handshake) => Some(Operation::new(admission::Command::Handshake(handshake))),
            Err(_) => {
                self.retry(step.now);
                None
            }
        }
    }

    /// Handles the answer to the handshake that was sent at `sent_at`. Returns what the node is, and its run. An error
    /// does not name the run, and the run that was read before may be gone.
    pub(super) fn answered(
        &mut self,
        step: &mut Step<'_>,
        node: usize,
        sent_at: Tick,
        answer: Answered,
    ) -> (Standing, Option<String>) {
        self.answered = Some(sent_at);
        let standing = match answer {
            Ok(Answer::Admission(admission::Reply::Met(meeting))) => {
                let (standing, witness) = judge(
                    step,
                    node,
                    &meeting,
                    self.sent_at_us,
                    step.now.since(sent_at),
                );
                if let Some(reason) = self.clock_rate.read(sent_at, step.now, meeting.time) {
                    let node = step.settings.nodes.get(node).map(|node| &**node);
                    logs::warn!(node, reason, "a node's clock is off");
                }
                self.taken = taken(self.taken.take(), &standing, &meeting, step.now);
                match &meeting.write {
                    Some(Ok(())) => self.refused_write = None,
                    Some(Err(error)) => self.refused_write = fault::refused_write(error),
                    // No write was tried, because the record is not of this fleet.
                    None => {}
                }
                if witness.is_some() {
                    self.witness = witness;
                }
                return (standing, Some(meeting.server.run));
            }
            Ok(other) => Standing::Unfit(format!("it answered the handshake with {other:?}")),
            Err(Fault::Withheld(why) | Fault::Error(why)) => fault::at_handshake(&why, step.fleet),
            Err(fault) => Standing::Unfit(format!("it answered the handshake with {fault:?}")),
        };
        (standing, None)
    }

    /// Sets when the next handshake is due: soon, unless the node votes.
    pub(super) fn plan(&mut self, step: &mut Step<'_>, state: &NodeState) {
        let wait = match state {
            NodeState::Voting => WHILE_VOTING,
            NodeState::Quarantined(left) => (*left).min(OTHERWISE),
            _ => OTHERWISE,
        };
        let jitter = step.jitter(wait / 10);
        self.due = Some(step.now.plus(wait).plus(jitter));
    }
}

/// A record of another fleet that nobody vouched for.
struct Taken {
    run: String,
    id: String,
    /// Since when such a record has been seen here without a gap.
    since: Tick,
}

fn taken(
    before: Option<Taken>,
    standing: &Standing,
    meeting: &Meeting,
    now: Tick,
) -> Option<Taken> {
    let Standing::Taken(_) = standing else {
        return None;
    };
    let record = meeting.stored.record()?;
    Some(Taken {
        run: record.run.clone(),
        id: record.id.clone(),
        since: before.map_or(now, |before| before.since),
    })
}

/// The content of the handshake. x is the w that was read, plus the time that this clock has counted since then while
/// this client saw a majority.
fn bring(
    step: &mut Step<'_>,
    node: usize,
    witness: Option<&Witness>,
    taken: Option<&Taken>,
) -> Result<Handshake, Error> {
    let terms = step.fleet.terms_to_bring();
    let since = step.fleet.witnesses_since(node);
    let (mut known, mut witnessed) = (None, 0);
    if let (
        Some(Witness {
            record, read_at, ..
        }),
        Some(since),
    ) = (witness, since)
    {
        let passed = step.now.since(since.max(*read_at)).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        known = Some((record.run.clone(), record.id.clone()));
        witnessed = record.witnessed.saturating_add(passed);
        if !step.settings.rules.hold(Rule::Quarantine) {
            witnessed = terms.join(record.terms).quarantine();
        }
        if step.settings.is_throwaway() {
            witnessed = terms.join(record.terms).history();
        }
    }
    // Once this client has been here for as long as a visit lasts, it may replace the record. A client that only looks
    // is gone by then, and leaves what another fleet has counted.
    if let Some(taken) = taken
        && step.now.since(taken.since) >= VISIT
    {
        (known, witnessed) = (Some((taken.run.clone(), taken.id.clone())), 0);
    }
    Ok(Handshake {
        masters: step.settings.total() as u64,
        list: step.settings.list.clone(),
        terms,
        vouch: step.fleet.vouch(),
        used: step.fleet.was_used(),
        known,
        witnessed,
        nonce: format!("{:032x}", step.chance.bits()?),
    })
}
