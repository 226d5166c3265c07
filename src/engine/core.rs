//! Takes in events and answers, passes each to the room that decides, and gives out effects. The core does no I/O and
//! uses no tokio timer. Time and randomness are inputs, so that a simulation can replay it.

#[cfg(any(test, feature = "test-util"))]
mod probe;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    base::{clock::Tick, logs, owner::Entry, shrink::Shrink as _},
    engine::{
        acquire::Acquisitions,
        bootstrap::Bootstrap,
        cluster::Cluster,
        event::Event,
        holdings::Holdings,
        own_holder::OwnHolder,
        rates::Rates,
        ready::Ready,
        shutdown::Shutdown,
        sleeps::Sleeps,
        startup::{Asked, Startup},
        status::Status,
        survey::Surveys,
        timers::Key,
    },
    lease::keeper::Keeper,
    node::{
        DialError, Disconnected, Incoming,
        answer::Answer,
        session::{Effect, Heard, Purpose, Session, Step, Tag},
        status::{NodeState, NodeStatus},
    },
    protocol::rates::words::Purse,
};

/// Maximum number of timers that ring in one go. After a pause of the process thousands of renewals may be due at once.
/// Answers and events are read between two such groups.
pub(super) const TIMERS_AT_ONCE: usize = 256;

/// Everything that is known and under way, by room.
pub(crate) struct Core {
    cluster: Cluster,
    acquisitions: Acquisitions,
    holdings: Holdings,
    surveys: Surveys,
    rates: Rates,
    own_holder: OwnHolder,
    sleeps: Sleeps,
    ready: Ready,
    bootstrap: Bootstrap,
    shutdown: Shutdown,
    startup: Startup,
    status: Arc<Status>,
    /// Input that was read from one node. It is kept to reuse its memory.
    read: Vec<Incoming>,
    /// The runtime has ended.
    ended: bool,
}

impl Core {
    pub(super) fn new(
        cluster: Cluster,
        status: Arc<Status>,
        keeper: Weak<dyn Keeper>,
        purse: Weak<dyn Purse>,
    ) -> Self {
        Self {
            cluster,
            acquisitions: Acquisitions::default(),
            holdings: Holdings::new(keeper),
            surveys: Surveys::default(),
            rates: Rates::new(purse),
            own_holder: OwnHolder::default(),
            sleeps: Sleeps::default(),
            ready: Ready::default(),
            bootstrap: Bootstrap::default(),
            shutdown: Shutdown::default(),
            startup: Startup::new(),
            status,
            read: Vec::new(),
            ended: false,
        }
    }

    /// The channel on which nodes notify the waiters of this quorum.
    pub(super) fn channel(&self) -> Arc<str> {
        Arc::clone(&self.cluster.settings.channel)
    }

    // ---- what callers ask -------------------------------------------------------------------

    /// Handles the events in the order in which they were sent.
    pub(crate) fn events(&mut self, events: impl IntoIterator<Item = Event>) {
        self.cluster.look_at_the_clock();
        for event in events {
            if event.asks_nodes() && self.waits_for_nodes() {
                self.wait_for_nodes(Asked::Event(Box::new(event)));
            } else {
                self.obey(event);
            }
            self.hold_grants();
        }
        self.settle();
    }

    fn obey(&mut self, event: Event) {
        let cluster = &mut self.cluster;
        match event {
            Event::Cancel(id) => self.acquisitions.cancel(cluster, id),
            Event::Extend { lease, reply } => self.holdings.extend(cluster, lease, reply),
            Event::Downgrade { lease, reply } => self.holdings.downgrade(cluster, lease, reply),
            Event::Release { lease, reply } => self.holdings.release(cluster, lease, reply),
            Event::Abandon { lease } => self.holdings.abandon(cluster, lease),
            Event::StopWaiting { limited } => self.rates.stop_waiting(cluster, &limited),
            Event::JoinCrowd(crowd) => self.rates.join_crowd(cluster, crowd),
            Event::TakeBack { limited, parts } => self.rates.take_back(cluster, &limited, parts),
            Event::Shutdown { within, reply } => {
                self.close_doors();
                self.shutdown.wait(self.cluster.now, within, reply);
            }
            // After the end callers find their channels closed.
            _ if self.shutdown.is_closed() => {}
            Event::Acquire(acquisition) => {
                self.own_holder.begins(&self.acquisitions, &acquisition);
                self.acquisitions.begin(cluster, acquisition);
            }
            Event::Inspect { name, reply } => self.surveys.inspect(cluster, name, reply),
            Event::Evict { name, reply } => self.surveys.evict(cluster, name, reply),
            Event::Available {
                pool,
                agreed,
                reply,
            } => self.surveys.available(cluster, pool, agreed, reply),
            Event::Resize {
                pool,
                agreed,
                to,
                reply,
            } => self.surveys.resize(cluster, pool, agreed, to, reply),
            Event::EvictSlot { pool, slot, reply } => {
                self.surveys.evict_slot(cluster, pool, slot, reply);
            }
            Event::Spend(spending) => self.rates.begin(cluster, spending),
            Event::Peek {
                limited,
                grace,
                reply,
            } => self.rates.peek(cluster, limited, grace, reply),
            Event::Sleep { time, reply } => self.sleeps.begin(cluster, time, reply),
            Event::Ready { within, reply } => self.ready.answering(cluster, within, reply),
            Event::Voting { within, reply } => self.ready.voting(cluster, within, reply),
            Event::Bootstrap {
                within,
                mode,
                reply,
            } => self.bootstrap.begin(cluster, within, mode, reply),
        }
    }

    fn waits_for_nodes(&self) -> bool {
        self.startup.is_coming_up() && !self.shutdown.is_closed()
    }

    fn wait_for_nodes(&mut self, asked: Asked) {
        let (now, timeout) = (self.cluster.now, self.cluster.settings.node_timeout);
        let end = match &asked {
            Asked::Event(event) => event.end(),
            Asked::Rested(acquisition) => self.acquisitions.end_of(*acquisition),
        };
        self.startup.push(now, timeout, end, asked);
    }

    fn obey_after_startup(&mut self, asked: Asked) {
        match asked {
            Asked::Event(event) => self.obey(*event),
            Asked::Rested(acquisition) => {
                self.acquisitions
                    .rest_is_over(&mut self.cluster, acquisition);
            }
        }
        self.hold_grants();
    }

    // ---- what the nodes say -----------------------------------------------------------------

    /// Passes an answer to the room that asked for it.
    fn route(&mut self, heard: Heard) {
        let cluster = &mut self.cluster;
        let (tag, node, answer) = match heard {
            Heard::Answer { tag, node, answer } => (tag, node, answer),
            Heard::Push { node, push } => {
                return self.acquisitions.pushed(cluster, node, &push);
            }
        };
        let round = tag.round;
        match tag.purpose {
            purpose @ (Purpose::Acquire
            | Purpose::Raise
            | Purpose::Join
            | Purpose::Take
            | Purpose::GiveBack) => match self.acquisitions.by_round(round) {
                Some(id) => {
                    self.acquisitions
                        .answered(cluster, id, purpose, node, answer);
                }
                None => self.holdings.late_grant(cluster, round, node, &answer),
            },
            purpose @ (Purpose::Spend | Purpose::Meter) => {
                self.rates.heard(cluster, purpose, round, node, answer);
            }
            // No answer is needed. If a YIELD was lost, a later answer of the node shows that, and it is sent again. A
            // REFUND is never sent again.
            Purpose::GiveWay | Purpose::Refund => {}
            // If it is lost, the next holder sends the limit again.
            Purpose::SettleLimit => {
                if let Ok(Answer::Limit(limit)) = answer {
                    self.holdings.limit_heard(cluster, round, limit);
                }
            }
            Purpose::Extend => {
                self.holdings.extension_heard(cluster, round, node, answer);
            }
            Purpose::Repair => {
                let answer = answer.ok();
                self.holdings
                    .repair_heard(&mut self.cluster, round, node, answer.as_ref());
            }
            Purpose::Release => {
                self.holdings.release_heard(cluster, round, node, answer);
            }
            Purpose::Survey(_) => self.surveys.heard(cluster, tag, node, answer),
            Purpose::Bootstrap => self.bootstrap.heard(round, node, answer),
        }
    }

    /// Makes leases of the acquisitions that were won. This follows everything that may advance an acquisition, so that
    /// late answers find the lease.
    fn hold_grants(&mut self) {
        while let Some(grant) = self.acquisitions.next_grant() {
            self.holdings.begin(&mut self.cluster, grant);
        }
    }

    /// The state of some node has changed. Acquisitions that are queued register with nodes that are back.
    fn look_at_queued(&mut self) {
        self.rates.look_at_nodes(&mut self.cluster);
        for id in self.acquisitions.look_at_nodes(&self.cluster) {
            self.acquisitions.advance(&mut self.cluster, id);
            self.hold_grants();
        }
    }

    // ---- time -------------------------------------------------------------------------------

    /// A deadline has come. All input that had arrived by `seen` was read, so the nodes are judged by that time.
    pub(crate) fn tick(&mut self, seen: Tick) {
        self.cluster.look_at_the_clock();
        self.cluster.tick(seen);
        for _ in 0..TIMERS_AT_ONCE {
            let Some(key) = self.cluster.timers.pop(seen) else {
                break;
            };
            self.ring(key);
            self.hold_grants();
        }
        let due = self.own_holder.due(&self.acquisitions);
        if due.is_some_and(|due| due <= seen) {
            let (acquisitions, holdings) = (&self.acquisitions, &self.holdings);
            self.own_holder
                .look(&mut self.cluster, acquisitions, holdings);
        }
        self.settle();
        while let Some(asked) = self.startup.pop_due(&self.cluster, seen) {
            self.obey_after_startup(asked);
            self.settle();
        }
    }

    fn ring(&mut self, key: Key) {
        let may_wait = self.waits_for_nodes();
        let cluster = &mut self.cluster;
        match key {
            Key::Lease(id) => self.holdings.lease_due(cluster, id),
            Key::Acquisition(id)
                if may_wait && self.acquisitions.may_wait_for_nodes(cluster, id) =>
            {
                self.wait_for_nodes(Asked::Rested(id));
            }
            Key::Acquisition(id) => {
                self.acquisitions.due(cluster, id);
            }
            Key::Limit(id) => self.rates.line_due(cluster, id),
            Key::Sleep(id) => self.sleeps.over(id),
            Key::Sweep => self.rates.sweep(cluster),
            Key::Round(tag) => self.answers_due(tag),
        }
    }

    /// The answers to a round are due.
    fn answers_due(&mut self, tag: Tag) {
        let (cluster, round) = (&mut self.cluster, tag.round);
        match tag.purpose {
            Purpose::Acquire | Purpose::Raise | Purpose::Take => {
                self.acquisitions.answers_due(cluster, round);
            }
            Purpose::Extend => self.holdings.extension_due(cluster, round),
            Purpose::Release => self.holdings.release_due(cluster, round),
            Purpose::Survey(_) => self.surveys.answers_due(cluster, tag),
            purpose @ (Purpose::Spend | Purpose::Meter) => {
                self.rates.round_due(cluster, purpose, round);
            }
            // Nobody waits for the answer to a repair.
            Purpose::Repair
            | Purpose::Join
            | Purpose::GiveWay
            | Purpose::GiveBack
            | Purpose::Refund
            | Purpose::SettleLimit
            | Purpose::Bootstrap => {}
        }
    }

    /// The time at which [`tick`](Self::tick) has something to do.
    pub(crate) fn next_tick(&self) -> Option<Tick> {
        [
            self.cluster.next_tick(),
            self.ready.next_tick(),
            self.bootstrap.deadline(),
            self.shutdown.next_tick(),
            self.startup.due(&self.cluster),
            self.acquisitions.next_throttled(&self.cluster),
            self.own_holder.due(&self.acquisitions),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Passes on all answers until nothing follows from them any more. Then publishes the changes.
    fn settle(&mut self) {
        let mut changed = self.cluster.look_for_changes();
        if changed {
            self.startup.look(&self.cluster);
            self.look_at_queued();
        }
        loop {
            while let Some(heard) = self.cluster.next_heard() {
                self.route(heard);
                self.hold_grants();
            }
            if !self.waits_for_nodes()
                && let Some(asked) = self.startup.pop()
            {
                self.obey_after_startup(asked);
            }
            self.acquisitions.begin_throttled(&mut self.cluster);
            self.hold_grants();
            if !self.cluster.has_heard() && (self.startup.is_empty() || self.waits_for_nodes()) {
                break;
            }
        }
        if self.cluster.take_changed() {
            changed = true;
            self.look_at_queued();
        }
        debug_assert!(
            !self.acquisitions.is_any_granted(),
            "a grant without a lease"
        );
        if changed {
            self.publish();
        }
        self.ready.look(&self.cluster);
        self.bootstrap.look(&mut self.cluster);
        if self.shutdown.is_due(self.cluster.now, || self.may_end()) {
            self.end_shutdown();
        }
    }

    fn publish(&mut self) {
        if !self.ended {
            let nodes = self.cluster.statuses();
            self.cluster.journal.nodes(self.cluster.now, &nodes);
            self.status.publish(self.cluster.now, nodes);
        }
    }
}

// ---- Input from the driver, and effects that it takes

impl Core {
    /// `hears`: the connection receives pushes.
    pub(crate) fn connected(
        &mut self,
        node: usize,
        client_id: u64,
        note: Option<&str>,
        hears: bool,
    ) {
        self.session(node, |session, step| {
            session.connected(step, client_id, note, hears);
        });
    }

    pub(crate) fn dial_failed(&mut self, node: usize, error: &DialError) {
        self.session(node, |session, step| session.dial_failed(step, error));
    }

    pub(crate) fn disconnected(&mut self, node: usize, why: &Disconnected) {
        self.session(node, |session, step| session.disconnected(step, why));
    }

    /// Handles everything that has come from this node, in its order. Returns true if there was anything.
    pub(crate) fn came(
        &mut self,
        node: usize,
        incoming: impl IntoIterator<Item = Incoming>,
    ) -> bool {
        let mut read = std::mem::take(&mut self.read);
        read.extend(incoming);
        let any = !read.is_empty();
        if any {
            // The clock is read after the last of them was read, because this process may have been paused in between.
            // A vote must not be judged by a clock that is too early. A memory counts as watched only since its record
            // was read.
            self.cluster.look_at_the_clock();
            self.cluster.session(node, |session, step| {
                for incoming in read.drain(..) {
                    match incoming {
                        Incoming::Answer(answer) => session.answered(step, answer),
                        Incoming::Push(push) => session.pushed(step, push),
                        Incoming::LoggedIn(answer) => session.logged_in(step, answer),
                        Incoming::Nothing => {}
                    }
                }
            });
            self.settle();
        }
        read.shrink_if_empty();
        self.read = read;
        any
    }

    /// Returns true if more requests may join those that are about to leave: fewer than `few` wait at every node, and
    /// other requests are unanswered. So a single caller never waits.
    pub(crate) fn may_gather(&self, few: usize) -> bool {
        let waiting = self.cluster.sessions().iter().map(Session::unwritten).max();
        let waiting = waiting.unwrap_or(0);
        let under_way = self.acquisitions.under_way() + self.holdings.under_way();
        (1..few).contains(&waiting) && under_way > waiting
    }

    /// The connection has taken back this many operations. Operations that it was not given yet are not counted.
    pub(crate) fn withdrawn(&mut self, node: usize, taken: usize) {
        self.cluster.look_at_the_clock();
        self.cluster.withdrawn(node, taken);
        self.settle();
    }

    /// The driver has written what it was given, as much as the nodes accept.
    pub(crate) fn mark_written(&mut self) {
        self.cluster.mark_written();
    }

    fn session(&mut self, node: usize, act: impl FnOnce(&mut Session, &mut Step<'_>)) {
        self.cluster.look_at_the_clock();
        self.cluster.session(node, act);
        self.settle();
    }

    /// The next effect for the driver.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.cluster.next_effect()
    }
}

// ---- The end: closed by callers, or with the runtime

impl Core {
    /// Takes no new acquisitions, and ends when everything is cleaned up. It is for an engine whose handles are all
    /// gone.
    pub(crate) fn close(&mut self) {
        self.cluster.look_at_the_clock();
        self.close_doors();
        self.settle();
    }

    fn close_doors(&mut self) {
        self.shutdown.close();
        self.startup.clear();
        self.acquisitions.close(&mut self.cluster);
        debug_assert!(
            self.acquisitions.is_empty(),
            "an acquisition outlasts the end"
        );
        self.rates.clear();
        self.sleeps.clear();
        self.ready.clear();
        self.cluster.part();
    }

    /// The runtime has ended. Every caller finds its channel closed, and no lease is renewed any more. Releases are
    /// still sent.
    pub(crate) fn end(&mut self) {
        self.holdings.end();
        self.close();
        self.surveys.clear();
        self.bootstrap.clear();
        self.shutdown.forget();
        self.announce_end();
        self.ended = true;
    }

    /// Publishes that leases are no longer renewed and that no node is reached.
    fn announce_end(&mut self) {
        let why = self.status.ending().error();
        let closed = |id: &Arc<str>| NodeStatus {
            node: Arc::clone(id),
            state: NodeState::Unreachable(Duration::ZERO, why.to_string()),
            note: None,
            used: false,
            round_trip: None,
            limits_up_to: Duration::ZERO,
        };
        let nodes = self.cluster.settings.nodes.iter().map(closed).collect();
        self.status.close(self.cluster.clock.now(), nodes);
        self.holdings.end();
    }

    /// Returns true if the engine is closed and holds nothing, with nothing left to take back or to send. Returns true
    /// too once a shutdown has given up.
    pub(crate) fn is_done(&self) -> bool {
        self.shutdown.is_closed() && (self.is_clean() || self.shutdown.gave_up())
    }

    /// Returns true while there are leases that were not dropped yet.
    pub(crate) fn holds(&self) -> bool {
        self.holdings.is_any_held()
    }

    fn is_clean(&self) -> bool {
        self.holdings.is_clean() && self.cluster.is_idle()
    }

    /// Returns true if a shutdown has nothing left to wait for: every lease is dropped, and a majority has confirmed
    /// that it is free of it. It also waits for the other nodes that answer. It does not wait for a node that is away
    /// or stalled, because then every program that ends during an outage would wait for the whole timeout. The locks
    /// that stay there are on a minority, and end with their ttl.
    fn may_end(&self) -> bool {
        let waits = |session: &Session| session.is_confirming() || session.is_parting();
        self.holdings.is_clean()
            && !self.cluster.sessions().iter().any(waits)
            && self.on_most() <= self.cluster.total() - self.cluster.needed
    }

    /// The greatest number of nodes on which one released entry may still stand.
    fn on_most(&self) -> usize {
        let mut on: BTreeMap<&Entry, usize> = BTreeMap::new();
        for entry in self
            .cluster
            .sessions()
            .iter()
            .flat_map(Session::unconfirmed)
        {
            *on.entry(entry).or_default() += 1;
        }
        on.into_values().max().unwrap_or(0)
    }

    /// Tells the callers of `shutdown` which names are still held, and logs which releases were not confirmed.
    fn end_shutdown(&mut self) {
        let sessions = self.cluster.sessions().iter();
        let left = sessions
            .map(Session::unconfirmed)
            .zip(&self.cluster.settings.nodes);
        let left: Vec<(usize, &Arc<str>)> = left
            .map(|(entries, node)| (entries.len(), node))
            .filter(|(releases, _)| *releases > 0)
            .collect();
        let is_free = self.on_most() <= self.cluster.total() - self.cluster.needed;
        for (releases, node) in left {
            match is_free {
                true => {
                    logs::info!(%node, releases, "a node has not confirmed releases: they are left to the ttl there");
                }
                false => {
                    logs::warn!(%node, releases, "no majority has confirmed releases: they are left to the ttl");
                }
            }
        }
        let held = self.holdings.names();
        self.holdings.lose_all();
        self.shutdown.end(&held);
    }
}

impl Drop for Core {
    /// Callers that wait find their channels closed.
    fn drop(&mut self) {
        if !self.ended {
            self.announce_end();
        }
    }
}
