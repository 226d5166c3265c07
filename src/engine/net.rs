//! What every room of the engine borrows: the nodes' sessions, the effects that they ask for, time, timers
//! and chance.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{journal::Journal, timers::Timers};
use crate::{
    NodeReport, Report, Silence, Vote,
    base::{
        clock::{Clock, Tick},
        majority::majority,
        owner::{Chance, Entry},
        quota,
        rules::Rule,
        shrink::Room as _,
    },
    node::{
        request::{Release, Verb},
        session::{DutyId, Effect, Fleet, Heard, LAST_BACKOFF, RoundId, Session, Step},
        settings::Settings,
        status::{NodeState, NodeStatus},
    },
};

/// Before any node has answered a round trip takes this long.
const ROUND_TRIP: Duration = Duration::from_millis(50);
/// What a caller is told to wait before it tries again, at least.
pub(in crate::engine) const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// And at most: by then every node that is away was dialled again.
const LONGEST_PAUSE: Duration = LAST_BACKOFF.saturating_add(SHORTEST_PAUSE);
/// A reader window is at least, and at most, so long.
const SHORTEST_WINDOW: Duration = Duration::from_millis(5);
const LONGEST_WINDOW: Duration = Duration::from_secs(1);
/// A node that has so much to answer is not asked for more by those who may wait. Five servers that share two slow cores do that
/// much within 150 ms, long before the node timeout; over 150 ms it is 6,800 requests a second to each.
const MOST_AT_ONCE: usize = 1024;

/// What operations borrow.
pub(crate) struct Net {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Arc<dyn Clock>,
    /// The time of what is being looked at.
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

/// A node that has not answered; and what is owed to it, if it was sent a RELEASE.
pub(super) type Outstanding = (usize, Option<DutyId>);

/// What is to be made of answers that are due.
pub(super) struct Late {
    /// Waited for no more, and why.
    pub(super) silent: Vec<(usize, Silence)>,
    /// Until when the others are waited for at least.
    pub(super) until: Option<Tick>,
}

impl Net {
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

    /// Reads the clock: all that follows happens now.
    pub(super) fn look_at_the_clock(&mut self) {
        self.now = self.clock.now();
    }

    pub(super) fn new_round(&mut self) -> RoundId {
        self.last_round += 1;
        RoundId(self.last_round)
    }

    /// p: what the counters of a name should at least be for its next grant. `seen`: the largest that was seen.
    pub(super) fn floor(&self, seen: u64) -> u64 {
        self.clock.wall_us().max(seen.saturating_add(1))
    }

    /// How something is given back, behind which no counter was seen beyond `seen`.
    pub(super) fn release(&self, seen: u64, waited: Option<Entry>) -> Verb {
        Verb::Release(Release {
            floor: self.floor(seen),
            window: self.window(),
            waited,
            keep: None,
        })
    }

    /// For how long readers that were refused are let in before writers that wait: they have to hear of it, and to ask.
    pub(super) fn window(&self) -> Duration {
        (self.round_trip() * 5).clamp(SHORTEST_WINDOW, LONGEST_WINDOW)
    }

    /// N.
    pub(super) fn total(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn holds(&self, rule: Rule) -> bool {
        self.settings.rules.hold(rule)
    }

    // ---- sessions ---------------------------------------------------------------------------

    /// Lets a session do one step.
    pub(super) fn session<T>(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut Session, &mut Step<'_>) -> T,
    ) -> Option<T> {
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

    /// Lets those sessions tick for which time has come by `seen`.
    pub(super) fn tick(&mut self, seen: Tick) {
        for node in 0..self.total() {
            let due = |s: &Session| s.next_tick(&self.settings).is_some_and(|at| at <= seen);
            if self.sessions.get(node).is_some_and(due) {
                self.session(node, |session, step| session.tick(step, seen));
            }
        }
    }

    /// When a session or a timer has something to do.
    pub(super) fn next_tick(&self) -> Option<Tick> {
        let sessions = self.sessions.iter();
        let sessions = sessions.filter_map(|s| s.next_tick(&self.settings));
        sessions.chain(self.timers.next()).min()
    }

    /// What was sent has left.
    pub(super) fn left(&mut self) {
        if !self.effects.is_empty() || self.sessions.iter().all(|s| s.unleft() == 0) {
            return;
        }
        let now = self.clock.now();
        for session in &mut self.sessions {
            session.left(now);
        }
    }

    /// A connection took back this many operations; what it was not given yet is not among them.
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
            self.effects.give_back();
        }
        next
    }

    pub(super) fn next_heard(&mut self) -> Option<Heard> {
        let next = self.heard.pop_front();
        if next.is_none() {
            self.heard.give_back();
        }
        next
    }

    pub(super) fn has_heard(&self) -> bool {
        !self.heard.is_empty()
    }

    /// Meets every node again where the fleet's terms have moved. Whether any node may have changed.
    pub(super) fn look_for_changes(&mut self) -> bool {
        let moved = self.fleet.take_moved();
        if moved {
            self.every_session(|session, step| session.meet_again(step));
        }
        self.take_changed() || moved
    }

    /// Whether any node's state may have changed since this was last asked.
    pub(super) fn take_changed(&mut self) -> bool {
        let mut changed = false;
        for session in &mut self.sessions {
            changed |= session.take_changed();
        }
        changed
    }

    /// The last handshakes, where one brings a quarantine nearer to its end.
    pub(super) fn part(&mut self) {
        self.every_session(|session, step| session.part(step));
    }

    /// Whether nothing is left to take back or to tell.
    pub(super) fn is_idle(&self) -> bool {
        let idle = |session: &Session| session.is_idle() && !session.is_parting();
        self.sessions.iter().all(idle)
    }

    // ---- what follows from them -------------------------------------------------------------

    pub(super) fn states(&self) -> impl Iterator<Item = NodeState> + '_ {
        self.states_at(self.now)
    }

    /// The states that users see: a node that refuses writes is not among the voting ones.
    pub(super) fn published(&self) -> impl Iterator<Item = NodeState> + '_ {
        let sessions = self.sessions.iter();
        sessions.map(|session| session.published(self.now, &self.fleet))
    }

    /// Whether so many nodes vote that something can be won.
    pub(super) fn has_a_majority(&self) -> bool {
        let voting = |state: &NodeState| *state == NodeState::Voting;
        self.states().filter(voting).count() >= self.needed
    }

    /// Whether a majority can take more: where so much is under way that answers come too late, healthy nodes look as if they
    /// were away. That too few vote is no reason to wait.
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

    /// Within this a majority answers nearly always.
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

    /// Every node's status, to be published.
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

    /// How long a caller should wait after `NoQuorum`: until enough missing nodes have been dialled or met
    /// again. Never zero, or a plain loop would spin.
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
        // What is dialled has to be met as well before it votes.
        let wait = wait.map_or(node_timeout, |wait| wait.saturating_add(SHORTEST_PAUSE));
        wait.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    /// Who is waited for no more. The evidence is the connection's: who answers all that is older is not
    /// late, though the clock says so.
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

    /// What each node is, as evidence. A quarantined node answers: here that is all that is asked of it.
    pub(super) fn state_report(&self, subject: &str, needed: usize) -> Report {
        let vote = |state: &NodeState| match state {
            NodeState::Quarantined(_) => Vote::Confirmed,
            state => vote_of(state),
        };
        let again = self.try_again(needed);
        let votes = self.states().map(|state| vote(&state)).collect();
        self.report(subject, needed, votes, again)
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

/// A node in this state gives no vote, or confirms.
pub(super) fn vote_of(state: &NodeState) -> Vote {
    state.silence().map_or(Vote::Confirmed, Vote::None)
}
