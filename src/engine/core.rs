//! The engine's decisions: events and answers in, effects out. No I/O, no tokio timers; time and
//! chance come in, so that a simulation replays it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    Engine, Event, WeakEngine,
    acquiring::Acquisition,
    admin::Admin,
    asking::Asking,
    holding::{Extending, Holding, Releasing},
    journal::Journal,
    timers::{Key, Timers},
    turns::Turns,
};
use crate::{
    Error, LossReason, Silence,
    ballot::{answers::Answers, majority::majority},
    clock::{Clock, Tick},
    node::{
        Answer, DialError, Disconnected, Reply, mutex,
        session::{DutyId, Effect, Fleet, Heard, LAST_BACKOFF, RoundId, Session, Step, Tag},
        status::{NodeState, NodeStatus},
    },
    owner::Chance,
    settings::Settings,
};

/// What a caller is told to wait before it tries again, at least.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// And at most: by then every node that is away was dialled again.
const LONGEST_PAUSE: Duration = LAST_BACKOFF.saturating_add(SHORTEST_PAUSE);

/// All that is known and under way.
pub(crate) struct Core {
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) needed: usize,
    pub(super) chance: Chance,
    sessions: Vec<Session>,
    fleet: Fleet,
    effects: VecDeque<Effect>,
    heard: VecDeque<Heard>,
    /// By ticket.
    tasks: HashMap<u64, Task>,
    /// By the id of the wish: which attempt is under way.
    pub(super) wishes: HashMap<u64, u64>,
    pub(super) turns: Turns<Box<Acquisition>>,
    pub(super) leases: BTreeMap<u64, Holding>,
    pub(super) timers: Timers,
    engine: WeakEngine,
    pub(super) admin: Admin,
    pub(super) journal: Journal,
    /// What was asked while nodes were being met, and how long it may wait.
    early: VecDeque<(Tick, Early)>,
    /// Nodes that are being met would make a majority.
    is_coming_up: bool,
    /// The runtime is gone.
    ended: bool,
}

pub(super) enum Early {
    Asked(Event),
    /// A wish of this ticket, whose rest is over.
    Rested(u64),
}

/// A node that has not answered yet, and the RELEASE's number if it is one.
pub(super) type Outstanding = (usize, Option<DutyId>);

/// What waits for answers or for a time.
pub(super) enum Task {
    Acquiring(Box<Acquisition>),
    Extending(Extending),
    Releasing(Releasing),
    Asking(Asking),
    /// A stage of a bootstrap: looked at after every answer.
    Polling(Answers<Reply>),
}

impl Core {
    pub(crate) fn new(settings: Arc<Settings>, chance: Chance, engine: &Engine) -> Self {
        let now = engine.clock.now();
        let total = settings.total();
        Self {
            needed: majority(total),
            sessions: (0..total).map(|node| Session::new(node, now)).collect(),
            fleet: Fleet::new(Arc::clone(&settings)),
            clock: Arc::clone(&engine.clock),
            settings,
            chance,
            effects: VecDeque::new(),
            heard: VecDeque::new(),
            tasks: HashMap::new(),
            wishes: HashMap::new(),
            turns: Turns::default(),
            leases: BTreeMap::new(),
            timers: Timers::default(),
            engine: engine.downgrade(),
            admin: Admin::default(),
            journal: Journal::default(),
            early: VecDeque::new(),
            is_coming_up: true,
            ended: false,
        }
    }

    // ---- what comes in --------------------------------------------------------------------

    pub(crate) fn event(&mut self, event: Event) {
        let now = self.clock.now();
        let asks = matches!(
            event,
            Event::Acquire(_) | Event::Inspect { .. } | Event::Evict { .. }
        );
        if asks && self.waits_for_nodes() {
            self.wait_for_nodes(now, Early::Asked(event));
        } else {
            self.obey(now, event);
        }
        self.settle(now);
    }

    fn obey(&mut self, now: Tick, event: Event) {
        match event {
            Event::Acquire(wish) => self.acquire(now, wish),
            Event::Cancel(id) => self.cancel(now, id),
            Event::Extend { lease, reply } => self.extend(now, lease, reply),
            Event::Release { lease, reply } => self.release(now, lease, reply),
            Event::Abandon { lease } => drop(self.take_lease(lease)),
            // Whoever asks after the end finds its channel closed.
            Event::Inspect { .. }
            | Event::Evict { .. }
            | Event::Ready { .. }
            | Event::Voting { .. }
            | Event::Bootstrap { .. }
                if self.admin.is_closed() => {}
            Event::Inspect { name, reply } => self.inspect(now, name, reply),
            Event::Evict { name, reply } => self.evict(now, name, reply),
            Event::Ready { within, reply } => self.ready(now, within, reply),
            Event::Voting { within, reply } => self.voting(now, within, reply),
            Event::Bootstrap {
                within,
                mode,
                reply,
            } => self.bootstrap(now, within, mode, reply),
            Event::Shutdown { within, reply } => self.shutdown(now, within, reply),
        }
    }

    pub(super) fn waits_for_nodes(&self) -> bool {
        self.is_coming_up && !self.admin.is_closed()
    }

    /// It may wait as long as for any other answer.
    pub(super) fn wait_for_nodes(&mut self, now: Tick, early: Early) {
        let until = now.plus(self.settings.node_timeout);
        self.early.push_back((until, early));
    }

    /// Whoever asked before the nodes were reached finds its channel closed.
    pub(super) fn forget_early(&mut self) {
        self.early.clear();
    }

    fn obey_early(&mut self, now: Tick) {
        match self.early.pop_front() {
            Some((_, Early::Asked(event))) => self.obey(now, event),
            Some((_, Early::Rested(ticket))) => self.rested(now, ticket, false),
            None => {}
        }
    }

    /// Until when it may wait: a handshake that is not late is waited for.
    fn early_due(&self) -> Option<Tick> {
        let (at, _) = self.early.front()?;
        let connecting = |s: &&Session| s.state(*at, &self.fleet) == NodeState::Connecting;
        let met = self.sessions.iter().filter(connecting);
        let patience = met.filter_map(|s| s.patience(None, &self.settings)).min();
        Some(patience.map_or(*at, |patience| patience.max(*at)))
    }

    /// To be asked whenever a session has changed.
    fn look_if_coming_up(&mut self, now: Tick) {
        let states = self.states(now);
        let of = |state| states.iter().filter(|s| **s == state).count();
        // Connecting: it is being met for the first time, or again.
        self.is_coming_up = of(NodeState::Voting) < self.needed && of(NodeState::Connecting) > 0;
    }

    pub(crate) fn connected(&mut self, node: usize, client_id: u64, note: Option<&str>) {
        self.with_session(node, |session, step| {
            session.connected(step, client_id, note);
        });
    }

    pub(crate) fn dial_failed(&mut self, node: usize, error: &DialError) {
        self.with_session(node, |session, step| session.dial_failed(step, error));
    }

    pub(crate) fn disconnected(&mut self, node: usize, why: &Disconnected) {
        self.with_session(node, |session, step| session.disconnected(step, why));
    }

    /// The connection took back this many operations; what it was not given yet is not among them.
    pub(crate) fn withdrawn(&mut self, node: usize, taken: usize) {
        let behind = |effect: &Effect| match effect {
            Effect::Send(to, ..) if *to == node => 1,
            _ => 0,
        };
        let behind = self.effects.iter().map(behind).sum();
        self.with_session(node, |session, step| session.withdrawn(step, taken, behind));
    }

    pub(crate) fn answered(&mut self, node: usize, answer: Answer) {
        self.with_session(node, |session, step| session.answered(step, answer));
    }

    /// The shell has written what it was given, as far as the nodes take it.
    pub(crate) fn left(&mut self) {
        if !self.effects.is_empty() || !self.sessions.iter().any(Session::has_unleft) {
            return;
        }
        let now = self.clock.now();
        for session in &mut self.sessions {
            session.left(now);
        }
    }

    /// Time has come for something. What had arrived by `seen` was read: nobody is judged by what
    /// came, or did not come, later.
    pub(crate) fn tick(&mut self, seen: Tick) {
        let now = self.clock.now();
        for node in 0..self.sessions.len() {
            let due = |s: &Session| s.next_tick(&self.settings).is_some_and(|at| at <= seen);
            if self.sessions.get(node).is_some_and(due) {
                self.session(now, node, |session, step| session.tick(step, seen));
            }
        }
        while let Some(key) = self.timers.pop(seen) {
            match key {
                Key::Lease(id) => self.lease_due(now, id),
                Key::Task(ticket) => self.task_due(now, ticket),
                Key::Turn(wish) => self.turn_due(now, wish),
            }
        }
        self.settle(now);
        while self.early_due().is_some_and(|at| at <= seen) {
            self.obey_early(now);
            self.settle(now);
        }
    }

    /// No new wishes; leave when all is clean. For an engine whose handles are all gone.
    pub(crate) fn close(&mut self) {
        let now = self.clock.now();
        self.close_wishes(now);
        self.part(now);
        self.settle(now);
    }

    /// The runtime is gone: every caller finds its channel closed, and no lease is renewed any more. What
    /// is released from now on still goes out.
    pub(crate) fn end(&mut self) {
        // Leases that end with their runtime are no news.
        for holding in self.leases.values_mut() {
            holding.told = true;
        }
        self.close();
        self.tasks.clear();
        self.admin = Admin::closed();
        self.announce_end();
        self.ended = true;
    }

    // ---- what goes out --------------------------------------------------------------------

    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn next_tick(&self) -> Option<Tick> {
        let sessions = self
            .sessions
            .iter()
            .filter_map(|s| s.next_tick(&self.settings))
            .min();
        let turns = self.turns.is_due().then(|| self.clock.now());
        let timers = self.timers.next();
        [
            sessions,
            timers,
            self.admin.next_tick(),
            self.early_due(),
            turns,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Closed, nothing held, nothing left to take back or to tell.
    pub(crate) fn is_done(&self) -> bool {
        self.admin.is_closed() && (self.is_clean() || self.admin.gave_up())
    }

    /// Whether there are leases that were not dropped yet.
    pub(crate) fn holds(&self) -> bool {
        !self.leases.is_empty()
    }

    pub(super) fn is_clean(&self) -> bool {
        self.leases.is_empty()
            && self.sessions.iter().all(Session::is_idle)
            && !self.sessions.iter().any(Session::is_parting)
            && !self
                .tasks
                .values()
                .any(|task| matches!(task, Task::Releasing(_)))
    }

    /// What is kept though nothing goes on: for the simulation, all of it zero after quiet time.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn leftovers(&self) -> [(&'static str, usize); 8] {
        [
            ("tasks", self.tasks.len()),
            ("wishes", self.wishes.len()),
            ("turns", self.turns.len()),
            ("leases", self.leases.len()),
            ("timers", self.timers.len()),
            ("early requests", self.early.len()),
            ("callers", self.admin.callers()),
            (
                "releases",
                self.sessions.iter().filter(|s| !s.is_idle()).count(),
            ),
        ]
    }

    /// How many requests are unanswered at the node that owes the most.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn most_in_flight(&self) -> usize {
        let in_flight = self.sessions.iter().map(Session::in_flight);
        in_flight.max().unwrap_or(0)
    }

    // ---- for the rooms next door ----------------------------------------------------------

    /// Lets a session do one step.
    pub(super) fn session<T>(
        &mut self,
        now: Tick,
        node: usize,
        act: impl FnOnce(&mut Session, &mut Step<'_>) -> T,
    ) -> Option<T> {
        let session = self.sessions.get_mut(node)?;
        let mut step = Step {
            now,
            settings: &self.settings,
            fleet: &mut self.fleet,
            chance: &mut self.chance,
            effects: &mut self.effects,
            heard: &mut self.heard,
        };
        Some(act(session, &mut step))
    }

    pub(super) fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    pub(super) fn fleet(&mut self) -> &mut Fleet {
        &mut self.fleet
    }

    pub(crate) fn states(&self, now: Tick) -> Vec<NodeState> {
        self.sessions
            .iter()
            .map(|s| s.state(now, &self.fleet))
            .collect()
    }

    /// How long a caller should wait after `NoQuorum`: until enough missing nodes have been dialled or met
    /// again. Never zero, or a plain loop would spin.
    pub(super) fn try_again(&self, now: Tick, needed: usize) -> Duration {
        let node_timeout = self.settings.node_timeout;
        let wait = |session: &Session| match session.state(now, &self.fleet) {
            NodeState::Voting => None,
            NodeState::Quarantined(left) => Some(left),
            _ => Some(match session.next_try() {
                Some(at) => at.since(now),
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

    pub(super) fn new_ticket(&self) -> u64 {
        self.engine
            .last_id
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
            + 1
    }

    pub(super) fn engine(&self) -> Option<Engine> {
        self.engine.upgrade()
    }

    pub(super) fn put(&mut self, ticket: u64, task: Task) {
        self.tasks.insert(ticket, task);
    }

    pub(super) fn take(&mut self, ticket: u64) -> Option<Task> {
        self.timers.cancel(Key::Task(ticket));
        self.tasks.remove(&ticket)
    }

    pub(super) fn take_lease(&mut self, id: u64) -> Option<Holding> {
        self.timers.cancel(Key::Lease(id));
        self.leases.remove(&id)
    }

    pub(super) fn acquisition(&mut self, ticket: u64) -> Option<&mut Acquisition> {
        match self.tasks.get_mut(&ticket) {
            Some(Task::Acquiring(acquisition)) => Some(acquisition),
            _ => None,
        }
    }

    pub(super) fn poll_task(&mut self, ticket: u64) {
        self.put(ticket, Task::Polling(Answers::new(self.settings.total())));
    }

    pub(super) fn polled(&self, ticket: u64) -> Option<&Answers<Reply>> {
        match self.tasks.get(&ticket) {
            Some(Task::Polling(answers)) => Some(answers),
            _ => None,
        }
    }

    pub(super) fn task(&mut self, ticket: u64) -> Option<&mut Task> {
        self.tasks.get_mut(&ticket)
    }

    // ---- inside ---------------------------------------------------------------------------

    fn with_session(&mut self, node: usize, act: impl FnOnce(&mut Session, &mut Step<'_>)) {
        let now = self.clock.now();
        self.session(now, node, act);
        self.settle(now);
    }

    /// Passes on what was heard until nothing follows from it, then tells what changed.
    fn settle(&mut self, now: Tick) {
        let mut changed = self.fleet.take_moved();
        if changed {
            for node in 0..self.sessions.len() {
                self.session(now, node, |session, step| session.meet_again(step));
            }
        }
        for session in &mut self.sessions {
            changed |= session.take_changed();
        }
        if changed {
            self.look_if_coming_up(now);
        }
        loop {
            while let Some(heard) = self.heard.pop_front() {
                self.route(now, heard);
            }
            if !self.early.is_empty() && !self.waits_for_nodes() {
                self.obey_early(now);
            }
            self.take_turns(now);
            if self.heard.is_empty() && (self.early.is_empty() || self.waits_for_nodes()) {
                break;
            }
        }
        for session in &mut self.sessions {
            changed |= session.take_changed();
        }
        if changed {
            self.publish(now);
        }
        self.admin_due(now);
    }

    fn route(&mut self, now: Tick, heard: Heard) {
        let Heard { tag, node, answer } = heard;
        let ticket = tag.round.0;
        match self.tasks.get_mut(&ticket) {
            Some(Task::Acquiring(acquisition)) => {
                if let Some(token) = acquisition.vote(node, answer) {
                    self.raise_late(now, ticket, node, token);
                }
                self.attempt_heard(now, ticket);
            }
            Some(Task::Extending(extending)) => {
                extending.vote(node, answer);
                self.extension_heard(now, ticket);
            }
            Some(Task::Releasing(releasing)) => {
                // A node that has lost its memory says "not yours" and votes for nobody else
                // either: the lease was not over for that.
                let votes = self.sessions.get(node).map(|s| s.state(now, &self.fleet));
                let forgot = answer == Ok(Reply::Mutex(mutex::Reply::Released(false)))
                    && votes != Some(NodeState::Voting);
                releasing.vote(
                    node,
                    if forgot {
                        Err(Silence::NotAdmitted)
                    } else {
                        answer
                    },
                );
                self.release_heard(now, ticket);
            }
            Some(Task::Asking(asking)) => {
                asking.vote(node, answer);
                self.asking_heard(now, ticket);
            }
            Some(Task::Polling(answers)) => answers.set(node, answer),
            None => self.late_grant(ticket, node, &answer),
        }
    }

    fn task_due(&mut self, now: Tick, ticket: u64) {
        let outstanding = match self.tasks.get(&ticket) {
            Some(Task::Acquiring(_)) => return self.attempt_due(now, ticket),
            Some(Task::Extending(extending)) => extending.outstanding(),
            Some(Task::Releasing(releasing)) => releasing.outstanding(),
            Some(Task::Asking(asking)) => asking.outstanding(),
            Some(Task::Polling(_)) | None => return,
        };
        let (late, next) = self.late(&outstanding);
        if let Some(at) = next {
            self.timers.at(Key::Task(ticket), at);
        }
        for (node, release) in outstanding {
            if let Some(session) = self.sessions.get(node).filter(|_| late.contains(&node)) {
                let answer = Err(session.why_late(release));
                let tag = Tag {
                    round: RoundId(ticket),
                    request: 0,
                };
                self.heard.push_back(Heard { tag, node, answer });
            }
        }
    }

    /// Of these nodes, and RELEASEs: which are waited for no more, and until when the others are at
    /// least. The evidence is the connection's: who answers all that is older is not late, though
    /// the clock says so.
    pub(super) fn late(&self, outstanding: &[Outstanding]) -> (Vec<usize>, Option<Tick>) {
        let mut late = Vec::new();
        let mut next = None;
        for &(node, release) in outstanding {
            let session = self.sessions.get(node);
            match session.and_then(|s| s.patience(release, &self.settings)) {
                Some(at) => next = Some(next.map_or(at, |next: Tick| next.min(at))),
                None => late.push(node),
            }
        }
        (late, next)
    }

    fn publish(&mut self, now: Tick) {
        if self.ended {
            return;
        }
        let nodes: Vec<NodeStatus> = self
            .sessions
            .iter()
            .zip(&self.settings.nodes)
            .map(|(session, id)| NodeStatus {
                node: Arc::clone(id),
                state: session.state(now, &self.fleet),
                note: session.note().map(str::to_owned),
                used: session.witness().is_some_and(|witness| witness.record.used),
            })
            .collect();
        self.journal.nodes(now, &nodes);
        self.engine.status.publish(now, nodes);
    }

    /// Nobody renews any more, and no node is reached.
    fn announce_end(&self) {
        let closed = |id: &Arc<str>| NodeStatus {
            node: Arc::clone(id),
            state: NodeState::Unreachable(Duration::ZERO, CLOSED.to_string()),
            note: None,
            used: false,
        };
        let nodes = self.settings.nodes.iter().map(closed).collect();
        self.engine.status.close(self.clock.now(), nodes);
        for holding in self.leases.values() {
            holding.shared.lose(LossReason::NodesLost);
        }
    }
}

impl Drop for Core {
    /// Waiting callers find their channels closed.
    fn drop(&mut self) {
        if !self.ended {
            self.announce_end();
        }
    }
}

/// The runtime is gone, or the quorum was shut down.
pub(super) const CLOSED: Error = Error::Closed;
