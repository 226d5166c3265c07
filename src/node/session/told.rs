//! What a session tells the engine of its node.

use std::{collections::BTreeSet, time::Duration};

use super::{DutyId, Fleet, Session, Witness, standing::Standing};
use crate::{
    Silence,
    base::{clock::Tick, owner::Entry},
    node::{settings::Settings, status::NodeState},
};

impl Session {
    /// What the node is now.
    pub(crate) fn state(&self, now: Tick, fleet: &Fleet) -> NodeState {
        match self.requests.inflight.stalled() {
            Some(since) => NodeState::Stalled(now.since(since)),
            None => self.link.state(now, self.handshakes.witness(), fleet),
        }
    }

    /// The state that users see. A node that votes and refuses writes is asked as before, because it renews and frees the
    /// locks that are held there. It grants nothing, so users do not see it as voting.
    pub(crate) fn published(&self, now: Tick, fleet: &Fleet) -> NodeState {
        match (self.state(now, fleet), self.handshakes.refused_write) {
            (NodeState::Voting, Some(why)) => NodeState::RefusesWrites(why.to_owned()),
            (state, _) => state,
        }
    }

    /// Returns true if only the node's clock keeps it from voting. Such a node renews the locks that it holds, which makes no
    /// token.
    pub(super) fn votes_but_for_its_clock(&self, now: Tick, fleet: &Fleet) -> bool {
        let but_for_its_clock = Standing::Fit.state(now, self.handshakes.witness(), fleet);
        self.link.is_behind() && !self.is_stalled() && but_for_its_clock == NodeState::Voting
    }

    /// The notes for operators: of the connection, and of the clock.
    pub(crate) fn note(&self) -> Option<String> {
        let notes = [self.note.as_deref(), self.handshakes.clock_rate.warning()];
        let notes: Vec<&str> = notes.into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// Whether its connection hears what the node says unasked.
    pub(crate) fn hears(&self) -> bool {
        self.hears
    }

    /// Within this nearly every answer comes, by those that came on this connection.
    pub(crate) fn round_trip(&self, settings: &Settings) -> Option<Duration> {
        self.requests.inflight.round_trip(settings)
    }

    /// The average time of an answer, of those that came on this connection.
    pub(crate) fn measured_round_trip(&self) -> Option<Duration> {
        self.requests.inflight.measured_round_trip()
    }

    /// Whether the state may have changed since this was last asked.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What was last read on the living connection, where the record is of this fleet.
    pub(crate) fn witness(&self) -> Option<&Witness> {
        let is_mine = self.link.is_fit() || self.link.is_behind();
        self.handshakes.witness().filter(|_| is_mine)
    }

    /// For how long the memory behind the living connection has been there, at least: for so long it was watched when its
    /// record was read, and since then it has obeyed what that record guards.
    pub(crate) fn watched_for(&self, now: Tick) -> Duration {
        self.witness().map_or(Duration::ZERO, |read| {
            Duration::from_millis(read.record.witnessed).saturating_add(now.since(read.read_at))
        })
    }

    /// Whether the first handshake of this connection was answered.
    pub(crate) fn is_met(&self) -> bool {
        self.link.is_met()
    }

    /// Whether a handshake that was sent by `since` or later has been answered.
    pub(crate) fn was_met_since(&self, since: Tick) -> bool {
        self.handshakes.was_answered_since(since)
    }

    /// Whether the first try to reach the node is over, well or ill.
    pub(crate) fn was_tried(&self) -> bool {
        self.link.was_tried()
    }

    /// Why the node itself is not counted, whatever the others say.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.link.refusal()
    }

    /// Returns true if its record will be replaced once the clients of another fleet are gone.
    pub(crate) fn is_taken(&self) -> bool {
        self.link.is_taken()
    }

    /// Whether another address leads to the same server.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.link.is_duplicate()
    }

    /// Whether no RELEASE is still to be confirmed.
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

    /// Whether a handshake is under way that brings a quarantine nearer to its end.
    pub(crate) fn is_parting(&self) -> bool {
        self.is_in_quarantine() && self.is_meeting() && !self.is_stalled()
    }

    /// How many requests are unanswered.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.inflight.len()
    }

    /// No request to this node counts as late before this. None if it is stalled, owes nothing, or this RELEASE
    /// was not sent at once.
    pub(crate) fn patience(&self, release: Option<DutyId>, settings: &Settings) -> Option<Tick> {
        self.requests.patience(release, settings)
    }

    /// Why a request that is late was not answered. A RELEASE is sent again after an error, which is named.
    pub(crate) fn why_late(&self, release: Option<DutyId>) -> Silence {
        let error = release.and_then(|id| self.requests.duties.error(id));
        error.map_or(Silence::TimedOut, |error| Silence::Failed(error.clone()))
    }

    /// When a node that does not vote is next dialled or met, if that is planned.
    pub(crate) fn next_try(&self) -> Option<Tick> {
        let due = self.handshakes.due();
        let handshake = due.filter(|_| self.is_met() && !self.is_stalled());
        self.link.dial_at().or(handshake)
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn next_tick(&self, settings: &Settings) -> Option<Tick> {
        [
            self.link.dial_at(),
            self.requests.inflight.next_look(settings),
            self.handshakes.due(),
            self.requests.next_retry(),
            self.requests.duties.next_expiry(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// How many requests were sent of which [`left`](Self::left) does not know.
    pub(crate) fn unleft(&self) -> usize {
        self.requests.inflight.unleft()
    }
}
