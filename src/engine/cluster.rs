//! The state that all rooms of the engine borrow: the nodes' sessions, the effects that they ask for, time, timers and
//! randomness.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{journal::Journal, timers::Timers};
use crate::{
    Error, NodeReport, Report, Silence, Vote,
    base::{
        clock::{Clock, Tick},
        majority::majority,
        owner::{Chance, Entry},
        quota,
        rules::Rule,
        shrink::Shrink as _,
    },
    node::{
        request::{Release, Verb},
        session::{DutyId, Effect, Fleet, Heard, LAST_BACKOFF, RoundId, Session, Step},
        settings::Settings,
        status::{NodeState, NodeStatus},
    },
};

/// The round trip that is assumed until a node has answered.
const ROUND_TRIP: Duration = Duration::from_millis(50);
/// The shortest pause that a caller is told to make before it tries again.
pub(in crate::engine) const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The longest such pause. By then every node that is away was dialled again.
const LONGEST_PAUSE: Duration = LAST_BACKOFF.saturating_add(SHORTEST_PAUSE);
/// The shortest and the longest reader window (protocol §4).
const SHORTEST_WINDOW: Duration = Duration::from_millis(5);
const LONGEST_WINDOW: Duration = Duration::from_secs(1);
/// A node that has this many requests to answer gets no more from callers that may wait. Five servers that share two
/// slow cores handle that many within 150 ms, long before the node timeout. That is 6,800 requests a second to each
/// server.
const MOST_AT_ONCE: usize = 1024;

/// The state that all rooms share.
pub(crate) struct Cluster {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Arc<dyn Clock>,
    /// The time of the event that is being handled.
    pub(super) now: Tick,
    /// Q.
    pub(super) needed: usize,
    pub(super) chance: Chance,
    pub(super) timers: Timers,
    pub(super) journal: Journal,
    sessions: Vec<Session>,
    fleet: Fleet,
    effects: VecDeque<Effect>,
    heard: VecDeque<Heard>,
    last_round: u64,
}

/// A node that has not answered, and the duty to release there, if it was sent a RELEASE.
pub(super) type Outstanding = (usize, Option<DutyId>);

/// The result of a look at overdue answers.
pub(super) struct Late {
    /// Nodes that are not waited for any more, with the reason.
    pub(super) silent: Vec<(usize, Silence)>,
    /// The time until which the other nodes are waited for at least.
    pub(super) until: Option<Tick>,
}

impl Cluster {
    pub(super) fn new(settings: Arc<Settings>, chance: Chance, clock: Arc<dyn Clock>) -> Self {
        let now = clock.now();
        let total = settings.total();
        Self {
            needed: majority(total),
            sessions: (0..total).map(|node| Session::new(node, now)).collect(),
            fleet: Fleet::new(Arc::clone(&settings)),
            now,
            clock,
            settings,
            chance,
            timers: Timers::default(),
            journal: Journal::default(),
            effects: VecDeque::new(),
            heard: VecDeque::new(),
            last_round: 0,
        }
    }

    /// Reads the clock. Everything that follows happens at this time.
    pub(super) fn look_at_the_clock(&mut self) {
        self.now = self.clock.now();
    }

    pub(super) fn new_round(&mut self) -> RoundId {
        self.last_round += 1;
        RoundId(self.last_round)
    }

    /// The floor p for the next grant of a name: the least value for its counters. `seen` is the greatest counter that
    /// was seen.
    pub(super) fn floor(&self, seen: u64) -> u64 {
        self.clock.wall_us().max(seen.saturating_add(1))
    }

    /// The RELEASE that gives something back. `seen` is the greatest counter that was seen for it.
    pub(super) fn release_verb(&self, seen: u64, waited: Option<Entry>) -> Verb {
        Verb::Release(Release {
            floor: self.floor(seen),
            window: self.window(),
            waited,
            keep: None,
        })
    }

    /// For how long readers that were refused go before writers that wait. In this time they have to be told, and to
    /// ask.
    pub(super) fn window(&self) -> Duration {
        (self.round_trip() * 5).clamp(SHORTEST_WINDOW, LONGEST_WINDOW)
    }

    /// N.
    pub(super) fn total(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn rule_holds(&self, rule: Rule) -> bool {
        self.settings.rules.hold(rule)
    }

    // ---- sessions ---------------------------------------------------------------------------

    /// Lets a session do one step.
    pub(super) fn session<T>(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut Session, &mut Step<'_>) -> T,
    ) -> Option<T> {
        debug_assert!(node < self.sessions.len(), "no such node");
        let session = self.sessions.get_mut(node)?;
        let mut step = Step {
            now: self.now,
            clock: &*self.clock,
            settings: &self.settings,
            fleet: &mut self.fleet,
            chance: &mut self.chance,
            effects: &mut self.effects,
            heard: &mut self.heard,
        };
        Some(act(session, &mut step))
    }

    /// Lets every session do one step.
    pub(super) fn every_session(&mut self, mut act: impl FnMut(&mut Session, &mut Step<'_>)) {
        for node in 0..self.total() {
            self.session(node, &mut act);
        }
    }

    pub(super) fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    pub(super) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub(super) fn fleet_mut(&mut self) -> &mut Fleet {
        &mut self.fleet
    }

    /// Lets those sessions tick that have something due by `seen`.
    pub(super) fn tick(&mut self, seen: Tick) {
        for node in 0..self.total() {
            let due = |s: &Session| s.next_tick(&self.settings).is_some_and(|at| at <= seen);
            if self.sessions.get(node).is_some_and(due) {
                self.session(node, |session, step| session.tick(step, seen));
            }
        }
    }

    /// The time at which a session or a timer has something to do.
    pub(super) fn next_tick(&self) -> Option<Tick> {
        let sessions = self.sessions.iter();
        let sessions = sessions.filter_map(|s| s.next_tick(&self.settings));
        sessions.chain(self.timers.next()).min()
    }

    /// The requests that were sent have left.
    pub(super) fn mark_written(&mut self) {
        if !self.effects.is_empty() || self.sessions.iter().all(|s| s.unwritten() == 0) {
            return;
        }
        let now = self.clock.now();
        for session in &mut self.sessions {
            session.mark_written(now);
        }
    }

    /// The connection has taken back this many operations. Operations that it was not given yet are not counted.
    pub(super) fn withdrawn(&mut self, node: usize, taken: usize) {
        let behind = |effect: &&Effect| matches!(effect, Effect::Send(to, ..) if *to == node);
        let behind = self.effects.iter().filter(behind).count();
        self.session(node, |session, step| {
            session.withdrawn(step, taken, behind);
        });
    }

    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        let next = self.effects.pop_front();
        if next.is_none() {
            self.effects.shrink_if_empty();
        }
        next
    }

    pub(super) fn next_heard(&mut self) -> Option<Heard> {
        let next = self.heard.pop_front();
        if next.is_none() {
            self.heard.shrink_if_empty();
        }
        next
    }

    pub(super) fn has_heard(&self) -> bool {
        !self.heard.is_empty()
    }

    /// If the fleet's terms have changed, meets every node again. Returns true if the state of any node may have
    /// changed.
    pub(super) fn look_for_changes(&mut self) -> bool {
        let moved = self.fleet.take_moved();
        if moved {
            self.every_session(|session, step| session.meet_again(step));
        }
        self.take_changed() || moved
    }

    /// Returns true if the state of any node may have changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        let mut changed = false;
        for session in &mut self.sessions {
            changed |= session.take_changed();
        }
        changed
    }

    /// Sends the last handshakes to nodes whose quarantine they bring nearer to its end.
    pub(super) fn part(&mut self) {
        self.every_session(|session, step| session.part(step));
    }

    /// Returns true if nothing is left to take back or to send.
    pub(super) fn is_idle(&self) -> bool {
        let idle = |session: &Session| session.is_idle() && !session.is_parting();
        self.sessions.iter().all(idle)
    }

    // ---- what follows from them -------------------------------------------------------------

    pub(super) fn states(&self) -> impl Iterator<Item = NodeState> + '_ {
        self.states_at(self.now)
    }

    /// The states that users see. A node that refuses writes is not shown as voting.
    pub(super) fn published(&self) -> impl Iterator<Item = NodeState> + '_ {
        let sessions = self.sessions.iter();
        sessions.map(|session| session.published(self.now, &self.fleet))
    }

    /// Returns true if a majority of the nodes votes.
    pub(super) fn has_a_majority(&self) -> bool {
        let voting = |state: &NodeState| *state == NodeState::Voting;
        self.states().filter(voting).count() >= self.needed
    }

    /// Returns true if a majority of the nodes can take more requests. With too many requests under way the answers
    /// come too late, and healthy nodes look as if they were away. If too few nodes vote, waiting does not help, so the
    /// result is true.
    pub(super) fn keeps_up(&self) -> bool {
        let is_busy = |session: &Session| session.in_flight() >= MOST_AT_ONCE;
        if !self.sessions.iter().any(is_busy) {
            return true;
        }
        let voting = self.states().zip(&self.sessions);
        let voting = voting.filter(|(state, _)| *state == NodeState::Voting);
        let (busy, free): (Vec<_>, Vec<_>) = voting.partition(|(_, session)| is_busy(session));
        free.len() >= self.needed || free.len() + busy.len() < self.needed
    }

    /// The time within which a majority nearly always answers.
    pub(super) fn round_trip(&self) -> Duration {
        let sessions = self.sessions.iter();
        let mut trips: Vec<Duration> = sessions
            .filter_map(|session| session.round_trip(&self.settings))
            .collect();
        trips.sort_unstable();
        let nth = trips.get(self.needed.saturating_sub(1)).or(trips.last());
        nth.copied().unwrap_or(ROUND_TRIP)
    }

    pub(super) fn states_at(&self, now: Tick) -> impl Iterator<Item = NodeState> + '_ {
        let states = self.sessions.iter();
        states.map(move |s| s.state(now, &self.fleet))
    }

    /// The status of every node, to be published.
    pub(super) fn statuses(&self) -> Vec<NodeStatus> {
        let nodes = self.sessions.iter().zip(&self.settings.nodes);
        nodes
            .map(|(session, id)| (session.published(self.now, &self.fleet), session, id))
            .map(|(state, session, id)| NodeStatus {
                node: Arc::clone(id),
                limits_up_to: match state {
                    NodeState::Voting => quota::longest(session.watched_for(self.now)),
                    _ => Duration::ZERO,
                },
                state,
                note: session.note(),
                round_trip: session.measured_round_trip(),
                used: session.witness().is_some_and(|witness| witness.record.used),
            })
            .collect()
    }

    /// How long a caller should wait after `NoQuorum`: until enough of the missing nodes have been dialled or met
    /// again. It is never zero, because a plain loop would then spin.
    pub(super) fn try_again(&self, needed: usize) -> Duration {
        let node_timeout = self.settings.node_timeout;
        let wait = |session: &Session| match session.state(self.now, &self.fleet) {
            NodeState::Voting => None,
            NodeState::Quarantined(left) => Some(left),
            _ => Some(match session.next_try() {
                Some(at) => at.since(self.now),
                None => node_timeout,
            }),
        };
        let mut waits: Vec<Duration> = self.sessions.iter().filter_map(wait).collect();
        waits.sort_unstable();
        let voting = self.sessions.len() - waits.len();
        let missing = needed.saturating_sub(voting);
        let wait = missing.checked_sub(1).and_then(|last| waits.get(last));
        // After the dial the node has to be met before it votes.
        let wait = wait.map_or(node_timeout, |wait| wait.saturating_add(SHORTEST_PAUSE));
        wait.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    /// Finds the nodes that are not waited for any more. The connection gives the evidence: a node that goes on
    /// answering older requests is not late, even if the clock says so.
    pub(super) fn late(&self, outstanding: impl IntoIterator<Item = Outstanding>) -> Late {
        let (mut silent, mut until) = (Vec::new(), None);
        for (node, release) in outstanding {
            let Some(session) = self.sessions.get(node) else {
                continue;
            };
            match session.patience(release, &self.settings) {
                Some(at) => until = Some(until.map_or(at, |until: Tick| until.min(at))),
                None => silent.push((node, session.why_late(release))),
            }
        }
        Late { silent, until }
    }

    /// The state of each node, as evidence. A node in quarantine answers, which is all that is asked of it here, so it
    /// counts as a confirmation.
    pub(super) fn state_report(&self, subject: &str, needed: usize) -> Report {
        let vote = |state: &NodeState| match state {
            NodeState::Quarantined(_) => Vote::Confirmed,
            state => vote_of(state),
        };
        let again = self.try_again(needed);
        let votes = self.states().map(|state| vote(&state)).collect();
        self.report(subject, needed, votes, again)
    }

    /// The error if nodes that are missing are in quarantine.
    pub(super) fn quarantined(&self, report: Report) -> Error {
        let said = |session: &Session| session.witness().is_some_and(|read| read.record.used);
        let in_use = self.fleet().was_used() || self.sessions().iter().any(said);
        Error::Quarantined(report.in_use(in_use))
    }

    /// A report with these votes, in the order of the nodes.
    pub(super) fn report(
        &self,
        subject: &str,
        needed: usize,
        votes: Vec<Vote>,
        again: Duration,
    ) -> Report {
        let nodes = self.settings.nodes.iter().zip(votes);
        let nodes = nodes.map(|(node, vote)| NodeReport {
            node: Arc::clone(node),
            vote,
            holder: None,
            name: None,
        });
        Report::new(subject, needed, nodes.collect(), Some(again))
    }
}

/// The vote of a node in this state: no answer, or a confirmation.
pub(super) fn vote_of(state: &NodeState) -> Vote {
    state.silence().map_or(Vote::Confirmed, Vote::None)
}
