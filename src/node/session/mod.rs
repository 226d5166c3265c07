//! The client's side of one node: what may be sent on its connection, and when (protocol §2). It is pure. Time goes in
//! and effects come out, so the simulation runs the same code.
//!
//! - The handshake comes first on every connection.
//! - A node that may not vote gets nothing but handshakes and RELEASE.
//! - A node that leaves a request unanswered is stalled, and is asked for nothing.
//! - A RELEASE is sent until it is answered, or until what it would free has expired.
//!
//! This file passes the engine's requests and the node's answers to the parts. Each part keeps its own state, and none
//! names the session.

mod clock_rate;
mod doubtful;
mod duty;
mod fault;
mod fleet;
mod handshake;
mod inflight;
mod judge;
mod link;
mod login;
mod requests;
mod rtt;
mod standing;
mod step;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use self::{
    handshake::Handshakes, inflight::What, link::Link, login::Login, requests::Requests,
    standing::Standing, step::ClientId,
};
use crate::{
    Silence,
    base::{clock::Tick, owner::Entry, rules::Rule},
    node::{
        DialError, Disconnected, Fault, Operation, Push, Says, answer::Answered,
        settings::Settings, status::NodeState,
    },
};

pub(crate) use self::{
    duty::DutyId,
    fleet::Fleet,
    link::LAST_BACKOFF,
    standing::Witness,
    step::{Effect, Heard, Purpose, RoundId, Step, Tag},
};

/// One node as this client knows it.
pub(crate) struct Session {
    node: usize,
    link: Link,
    handshakes: Handshakes,
    requests: Requests,
    login: Login,
    note: Option<String>,
    /// Its connection receives the node's pushes.
    hears: bool,
    changed: bool,
}

impl Session {
    pub(crate) fn new(node: usize, now: Tick) -> Self {
        Self {
            node,
            link: Link::new(now),
            handshakes: Handshakes::default(),
            requests: Requests::new(node, now),
            login: Login::default(),
            note: None,
            hears: false,
            changed: true,
        }
    }

    // ---- what the engine asks -------------------------------------------------------------

    /// Asks for a vote. Returns the reason if the node may not be asked now.
    pub(crate) fn ask(
        &mut self,
        step: &mut Step<'_>,
        tag: Tag,
        operation: &Arc<Operation>,
    ) -> Result<(), Silence> {
        let extends = operation.command().extends();
        let unguarded = !step.settings.rules.hold(Rule::Guard) && extends;
        match self.state(step.now, step.fleet).silence() {
            None => {}
            Some(_) if extends && self.votes_but_for_its_clock(step.now, step.fleet) => {}
            Some(Silence::Quarantined(_)) if unguarded => {}
            Some(silence) => return Err(silence),
        }
        self.requests
            .send(step, Arc::clone(operation), What::Vote(tag));
        Ok(())
    }

    /// Asks a node that answers but does not vote. Only a bootstrap does that. Returns false if the node is not met.
    pub(crate) fn ask_unvoting(
        &mut self,
        step: &mut Step<'_>,
        tag: Tag,
        operation: &Arc<Operation>,
    ) -> bool {
        let met = self.is_met();
        if met {
            self.requests
                .send(step, Arc::clone(operation), What::Vote(tag));
        }
        met
    }

    /// Takes back what may stand on the node. The RELEASE is sent until it is answered, or until `until`.
    pub(crate) fn release(
        &mut self,
        step: &mut Step<'_>,
        operation: &Arc<Operation>,
        until: Tick,
        tag: Option<Tag>,
    ) -> DutyId {
        self.requests.release(step, operation, until, tag)
    }

    /// Sends the handshake again now, because the node's record may have changed.
    pub(crate) fn meet_again(&mut self, step: &mut Step<'_>) {
        if self.is_met() {
            self.meet(step);
        }
    }

    /// The quorum ends. A node in quarantine is told the time that was counted since its last handshake. Otherwise a
    /// fleet of short commands would never end a quarantine.
    pub(crate) fn part(&mut self, step: &mut Step<'_>) {
        if self.is_in_quarantine() && !self.is_stalled() {
            self.meet(step);
        }
    }

    // ---- what the world says --------------------------------------------------------------

    /// Something is due. All input that had arrived by `seen` was read.
    pub(crate) fn tick(&mut self, step: &mut Step<'_>, seen: Tick) {
        self.requests.duties.expire(step.now);
        if self.link.dial(step.now) {
            step.effects.push_back(Effect::Dial(self.node));
        } else if self.link.is_up() {
            self.tick_up(step, seen);
        }
    }

    fn tick_up(&mut self, step: &mut Step<'_>, seen: Tick) {
        let silent = self.requests.inflight.silence(seen);
        if silent >= step.settings.silence_limit() {
            return self.close(step, &format!("silent for {silent:.1?}, reconnecting"));
        }
        self.changed |= self.requests.stall(step, seen);
        if self.handshakes.due().is_some_and(|at| at <= step.now) {
            self.meet(step);
        }
        self.requests.retry(step);
        let is_stalled = self.is_stalled();
        self.login.tick(step, self.node, is_stalled);
    }

    /// A connection was opened. `hears` is true if it receives the node's pushes.
    pub(crate) fn connected(
        &mut self,
        step: &mut Step<'_>,
        client_id: u64,
        note: Option<&str>,
        hears: bool,
    ) {
        self.note = note.map(str::to_owned);
        self.hears = hears;
        self.changed = true;
        self.requests.connected(step.now, ClientId(client_id));
        self.handshakes.connected();
        self.link.connected();
        if !step.settings.rules.hold(Rule::HandshakeFirst) && self.handshakes.witness().is_some() {
            // This imitates a client library that reconnects by itself.
            self.link.met(Standing::Fit);
            self.handshakes.retry(step.now);
            return;
        }
        self.meet(step);
    }

    /// No connection was opened.
    pub(crate) fn dial_failed(&mut self, step: &mut Step<'_>, error: &DialError) {
        let (why, unfit) = match error {
            DialError::Unreachable(why) => (why, false),
            DialError::Refused(why) => (why, true),
        };
        self.changed = true;
        self.link.down(step, why, unfit);
    }

    /// The connection is over.
    pub(crate) fn disconnected(&mut self, step: &mut Step<'_>, why: &Disconnected) {
        if !self.link.is_up() {
            // It was closed from here, and the driver had not heard of that.
            return;
        }
        let run = self.handshakes.witness().map(|w| w.record.run.as_str());
        self.requests.lost(step, &why.0, run);
        self.handshakes.clear();
        self.login.clear(step, self.node);
        step.fleet.forget_run(self.node);
        step.fleet.see(step.now, self.node, None);
        self.changed = true;
        self.link.down(step, &why.0, false);
    }

    /// The requests that were sent have left. The time that the node may take begins now.
    pub(crate) fn mark_written(&mut self, now: Tick) {
        self.requests.inflight.mark_written(now);
    }

    /// The connection took back `taken` operations of which no byte was written. `behind` more were asked for since,
    /// which it has not been given yet.
    pub(crate) fn withdrawn(&mut self, step: &mut Step<'_>, taken: usize, behind: usize) {
        let was_meeting = self.is_meeting();
        self.requests.withdrawn(step, taken, behind);
        if was_meeting && !self.is_meeting() {
            self.handshakes.retry(step.now);
        }
        self.changed |= self.requests.inflight.recover(step.now, step.settings);
    }

    /// The node answered the oldest unanswered command.
    pub(crate) fn answered(&mut self, step: &mut Step<'_>, answer: Answered) {
        let Some(sent) = self.requests.inflight.answered(step.now) else {
            return;
        };
        self.changed |= self.requests.inflight.recover(step.now, step.settings);
        // A node that is not counted is met again and again as it is.
        let counted = self.refusal().is_none();
        let over = fault::disowns(sent.operation.command(), &answer)
            .filter(|_| counted)
            .map(str::to_owned);
        match &answer {
            // If the node is known not to vote, this is not news.
            Ok(reply) if reply.is_unadmitted() => {
                if self.state(step.now, step.fleet) == NodeState::Voting {
                    self.changed |= self.link.doubt();
                    self.meet(step);
                }
            }
            Ok(_) => self.link.served(),
            Err(Fault::NotAdmitted) => {
                self.changed |= self.link.doubt();
                self.meet(step);
            }
            Err(Fault::NoScript) => self.requests.load_scripts(step),
            Err(Fault::Error(text)) => self.look_for_a_refused_write(step.now, text),
            Err(Fault::Withheld(_)) => {}
        }
        match sent.what {
            What::Handshake if over.is_some() => {}
            What::Handshake => self.met(step, sent.at, answer),
            _ => self.requests.answered(step, sent, answer),
        }
        match over {
            Some(why) => self.close(step, &why),
            None => self.requests.send_waiting(step),
        }
    }

    /// The connection has logged in, and the login lasts for this long; or the reason why it could not.
    pub(crate) fn logged_in(
        &mut self,
        step: &mut Step<'_>,
        answer: Result<Option<Duration>, String>,
    ) {
        if !self.link.is_up() {
            // It was closed from here, and the driver had not heard of that.
            return;
        }
        self.changed |= self.login.answered(step, self.node, answer);
    }

    /// Handles a push of the node. A push does not answer any request, and does not end a stall. It is ignored before
    /// the first handshake of this connection was read, and while the node is not counted. Otherwise two addresses of
    /// one node would each bring the same push.
    ///
    /// A hand-over counts as a vote, so it has to carry the guard of this node's memory, as every request does. A node
    /// that has become a replica passes on what its new master publishes, on the connections that it still has. Without
    /// the right guard a hand-over only makes the waiter ask, like any other push.
    pub(crate) fn pushed(&mut self, step: &mut Step<'_>, mut push: Push) {
        let is_of_this_memory = match &push.says {
            Says::Granted { guard, .. } => **guard == *self.requests.guard(),
            Says::Called | Says::Free { .. } | Says::Freed | Says::Next { .. } => true,
        };
        if !is_of_this_memory && step.settings.rules.hold(Rule::PushCarriesGuard) {
            push.says = Says::Called;
        }
        if self.link.is_fit() {
            let node = self.node;
            step.heard.push_back(Heard::Push { node, push });
        }
    }

    // ---- inside ---------------------------------------------------------------------------

    /// Sends a handshake, unless one is unanswered.
    fn meet(&mut self, step: &mut Step<'_>) {
        self.handshakes.clear();
        if !self.is_meeting()
            && let Some(operation) = self.handshakes.make(step, self.node)
        {
            self.requests.send(step, operation, What::Handshake);
        }
    }

    fn met(&mut self, step: &mut Step<'_>, sent_at: Tick, answer: Answered) {
        self.changed = true;
        let (standing, run) = self.handshakes.answered(step, self.node, sent_at, answer);
        self.link.met(standing);
        if let Some(witness) = self.handshakes.witness() {
            let guard = witness.record.guard(step.settings.rules);
            self.requests.set_guard(guard);
        }
        if let Some(run) = run {
            self.requests.clean_up(step, &run);
        }
        let state = self.published(step.now, step.fleet);
        self.handshakes.plan(step, &state);
        // If the fleet's terms changed after the handshake was sent, it is sent again.
        if state == NodeState::Connecting && sent_at <= step.fleet.moved_at() {
            self.meet(step);
        }
    }

    /// A server that refuses one write also refuses others. It takes writes again when a handshake says so.
    fn look_for_a_refused_write(&mut self, now: Tick, error: &str) {
        if let Some(why) = fault::refused_write(error) {
            self.changed |= self.handshakes.refused_write.replace(why) != Some(why);
            self.handshakes.hasten(now);
        }
    }

    fn close(&mut self, step: &mut Step<'_>, why: &str) {
        step.effects.push_back(Effect::Close(self.node));
        self.disconnected(step, &Disconnected(why.to_owned()));
    }

    /// Returns true if a handshake is unanswered.
    fn is_meeting(&self) -> bool {
        self.requests.inflight.is_under_way(What::Handshake)
    }

    fn is_stalled(&self) -> bool {
        self.requests.inflight.stalled().is_some()
    }

    fn is_in_quarantine(&self) -> bool {
        self.witness().is_some_and(|read| !read.record.votes())
    }
}

// ---- The state of a node, as the engine sees it

impl Session {
    /// The state of the node now.
    pub(crate) fn state(&self, now: Tick, fleet: &Fleet) -> NodeState {
        match self.requests.inflight.stalled() {
            Some(since) => NodeState::Stalled(now.since(since)),
            None => self.link.state(now, self.handshakes.witness(), fleet),
        }
    }

    /// The state that users see. A node that votes but refuses writes is still asked, because it renews and frees the
    /// locks that are held there. It grants nothing, so users do not see it as voting.
    pub(crate) fn published(&self, now: Tick, fleet: &Fleet) -> NodeState {
        match (self.state(now, fleet), self.handshakes.refused_write) {
            (NodeState::Voting, Some(why)) => NodeState::RefusesWrites(why.to_owned()),
            (state, _) => state,
        }
    }

    /// Returns true if only the node's clock keeps it from voting. Such a node still renews the locks that are held
    /// there, which makes no token.
    fn votes_but_for_its_clock(&self, now: Tick, fleet: &Fleet) -> bool {
        let but_for_its_clock = Standing::Fit.state(now, self.handshakes.witness(), fleet);
        self.link.is_behind() && !self.is_stalled() && but_for_its_clock == NodeState::Voting
    }

    /// The notes for operators: of the connection, of its login, and of the clock.
    pub(crate) fn note(&self) -> Option<String> {
        let clock = self.handshakes.clock_rate.warning();
        let notes = [self.note.as_deref(), self.login.note(), clock];
        let notes: Vec<&str> = notes.into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// Returns true if its connection receives the node's pushes.
    pub(crate) fn hears(&self) -> bool {
        self.hears
    }

    /// The time within which nearly every answer comes, by the answers on this connection.
    pub(crate) fn round_trip(&self, settings: &Settings) -> Option<Duration> {
        self.requests.inflight.round_trip(settings)
    }

    /// The average time of the answers on this connection.
    pub(crate) fn measured_round_trip(&self) -> Option<Duration> {
        self.requests.inflight.measured_round_trip()
    }

    /// Returns true if the state may have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The record that was last read on the living connection, if it is of this fleet.
    pub(crate) fn witness(&self) -> Option<&Witness> {
        let is_mine = self.link.is_fit() || self.link.is_behind();
        self.handshakes.witness().filter(|_| is_mine)
    }

    /// The least age of the memory behind the living connection. It is the time for which it had been watched when its
    /// record was read, plus the time since then, in which it has obeyed the guard of that record.
    pub(crate) fn watched_for(&self, now: Tick) -> Duration {
        self.witness().map_or(Duration::ZERO, |read| {
            Duration::from_millis(read.record.witnessed).saturating_add(now.since(read.read_at))
        })
    }

    /// Returns true if the first handshake of this connection was answered.
    pub(crate) fn is_met(&self) -> bool {
        self.link.is_met()
    }

    /// Returns true if a handshake that was sent at `since` or later has been answered.
    pub(crate) fn was_met_since(&self, since: Tick) -> bool {
        self.handshakes.was_answered_since(since)
    }

    /// Returns true if the first try to reach the node is over, with or without success.
    pub(crate) fn was_tried(&self) -> bool {
        self.link.was_tried()
    }

    /// The reason why the node itself is not counted, regardless of the others.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.link.refusal()
    }

    /// Returns true if its record will be replaced once the clients of another fleet are gone.
    pub(crate) fn is_taken(&self) -> bool {
        self.link.is_taken()
    }

    /// Returns true if another address leads to the same server.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.link.is_duplicate()
    }

    /// Returns true if every RELEASE is confirmed.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.duties.is_empty()
    }

    /// Returns true if the node is connected and answers, and is about to confirm a RELEASE.
    pub(crate) fn is_confirming(&self) -> bool {
        self.requests.is_confirming(self.is_meeting())
    }

    /// The entries that were released and may still stand on the node.
    pub(crate) fn unconfirmed(&self) -> BTreeSet<&Entry> {
        self.requests.duties.entries().collect()
    }

    /// Returns true while a handshake is under way that brings a quarantine nearer to its end.
    pub(crate) fn is_parting(&self) -> bool {
        self.is_in_quarantine() && self.is_meeting() && !self.is_stalled()
    }

    /// The number of unanswered requests.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.inflight.len()
    }

    /// No request to this node counts as late before this time. `None` if the node is stalled or owes nothing, or if
    /// this RELEASE was not sent at once.
    pub(crate) fn patience(&self, release: Option<DutyId>, settings: &Settings) -> Option<Tick> {
        self.requests.patience(release, settings)
    }

    /// The reason why a late request was not answered. After an error a RELEASE is sent again, and the error is the
    /// reason.
    pub(crate) fn why_late(&self, release: Option<DutyId>) -> Silence {
        let error = release.and_then(|id| self.requests.duties.error(id));
        error.map_or(Silence::TimedOut, |error| Silence::Failed(error.clone()))
    }

    /// The time at which a node that does not vote is next dialled or met, if that is planned.
    pub(crate) fn next_try(&self) -> Option<Tick> {
        let due = self.handshakes.due();
        let handshake = due.filter(|_| self.is_met() && !self.is_stalled());
        self.link.dial_at().or(handshake)
    }

    /// The time at which [`tick`](Self::tick) has something to do.
    pub(crate) fn next_tick(&self, settings: &Settings) -> Option<Tick> {
        [
            self.link.dial_at(),
            self.requests.inflight.next_look(settings),
            self.handshakes.due(),
            self.login.due(),
            self.requests.next_retry(),
            self.requests.duties.next_expiry(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The number of requests that were sent since the last [`mark_written`](Self::mark_written).
    pub(crate) fn unwritten(&self) -> usize {
        self.requests.inflight.unwritten()
    }
}
