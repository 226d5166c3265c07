//! Routes: events and answers in, to the room that decides; effects out. No I/O, no tokio timers; time and
//! chance come in, so that a simulation replays it.

#[cfg(any(test, feature = "test-util"))]
mod probe;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    Error,
    base::{clock::Tick, logs, owner::Entry, shrink::Room as _},
    engine::{
        bootstrap::Bootstrap,
        early::{Asked, Early},
        event::Event,
        holdings::Holdings,
        net::Net,
        pools::Pools,
        questions::Questions,
        rates::Rates,
        ready::Ready,
        rests::Rests,
        shutdown::Shutdown,
        status::Status,
        timers::Key,
        wishes::{Follows, Wishes},
    },
    lease::keeper::Keeper,
    node::{
        DialError, Disconnected, Incoming,
        session::{Effect, Heard, Purpose, RoundId, Session, Step, Tag},
        status::{NodeState, NodeStatus},
    },
    protocol::rates::words::Purse,
};

/// At most this many timers ring in one go. After a pause of the process thousands of renewals are due at once;
/// answers and events are read between them.
pub(super) const TIMERS_AT_ONCE: usize = 256;

/// All that is known and under way, by room.
pub(crate) struct Core {
    net: Net,
    wishes: Wishes,
    holdings: Holdings,
    questions: Questions,
    pools: Pools,
    rates: Rates,
    rests: Rests,
    ready: Ready,
    bootstrap: Bootstrap,
    shutdown: Shutdown,
    early: Early,
    status: Arc<Status>,
    /// Kept for its room: what was read of a node at a time.
    read: Vec<Incoming>,
    /// The runtime is gone.
    ended: bool,
}

impl Core {
    pub(super) fn new(
        net: Net,
        status: Arc<Status>,
        keeper: Weak<dyn Keeper>,
        purse: Weak<dyn Purse>,
    ) -> Self {
        Self {
            net,
            wishes: Wishes::default(),
            holdings: Holdings::new(keeper),
            questions: Questions::default(),
            pools: Pools::default(),
            rates: Rates::new(purse),
            rests: Rests::default(),
            ready: Ready::default(),
            bootstrap: Bootstrap::default(),
            shutdown: Shutdown::default(),
            early: Early::new(),
            status,
            read: Vec::new(),
            ended: false,
        }
    }

    /// The channel on which nodes tell the waiters of this quorum.
    pub(super) fn channel(&self) -> Arc<str> {
        Arc::clone(&self.net.settings.channel)
    }

    // ---- what callers ask -------------------------------------------------------------------

    /// In the order they were put.
    pub(crate) fn events(&mut self, events: impl IntoIterator<Item = Event>) {
        self.net.look_at_the_clock();
        for event in events {
            if event.asks_nodes() && self.waits_for_nodes() {
                self.wait_for_nodes(Asked::Event(event));
            } else {
                self.obey(event);
            }
        }
        self.settle();
    }

    fn obey(&mut self, event: Event) {
        let net = &mut self.net;
        match event {
            Event::Cancel(id) => self.wishes.cancel(net, id),
            Event::Extend { lease, reply } => self.holdings.extend(net, lease, reply),
            Event::Downgrade { lease, reply } => self.holdings.downgrade(net, lease, reply),
            Event::Release { lease, reply } => self.holdings.release(net, lease, reply),
            Event::Abandon { lease } => self.holdings.abandon(net, lease),
            Event::StopWaiting { limited } => self.rates.stop_waiting(net, &limited),
            Event::TakeBack { limited, parts } => self.rates.take_back(net, &limited, parts),
            Event::Shutdown { within, reply } => {
                self.close_doors();
                self.shutdown.wait(self.net.now, within, reply);
            }
            // After the end callers find their channels closed.
            _ if self.shutdown.is_closed() => {}
            Event::Acquire(wish) => {
                let follows = self.wishes.begin(net, wish);
                self.grant(follows);
            }
            Event::Inspect { name, reply } => self.questions.inspect(net, name, reply),
            Event::Evict { name, reply } => self.questions.evict(net, name, reply),
            Event::Available {
                pool,
                agreed,
                reply,
            } => self.pools.available(net, pool, agreed, reply),
            Event::Resize {
                pool,
                agreed,
                to,
                reply,
            } => self.pools.resize(net, pool, agreed, to, reply),
            Event::EvictSlot { pool, slot, reply } => {
                self.pools.evict(net, pool, slot, reply);
            }
            Event::Spend(spending) => self.rates.begin(net, spending),
            Event::Peek {
                limited,
                grace,
                reply,
            } => self.rates.peek(net, limited, grace, reply),
            Event::Rest { time, reply } => self.rests.begin(net, time, reply),
            Event::Ready { within, reply } => self.ready.answering(net, within, reply),
            Event::Voting { within, reply } => self.ready.voting(net, within, reply),
            Event::Bootstrap {
                within,
                mode,
                reply,
            } => self.bootstrap.begin(net, within, mode, reply),
        }
    }

    fn waits_for_nodes(&self) -> bool {
        self.early.is_coming_up() && !self.shutdown.is_closed()
    }

    fn wait_for_nodes(&mut self, asked: Asked) {
        let (now, timeout) = (self.net.now, self.net.settings.node_timeout);
        let end = match &asked {
            Asked::Event(event) => event.end(),
            Asked::Rested(wish) => self.wishes.end_of(*wish),
        };
        self.early.push(now, timeout, end, asked);
    }

    fn obey_early(&mut self, asked: Asked) {
        match asked {
            Asked::Event(event) => self.obey(event),
            Asked::Rested(wish) => {
                self.wishes.rested(&mut self.net, wish, false);
            }
        }
    }

    // ---- what the nodes say -----------------------------------------------------------------

    /// An answer goes to the room that asked.
    fn route(&mut self, heard: Heard) {
        let net = &mut self.net;
        let (tag, node, answer) = match heard {
            Heard::Answer { tag, node, answer } => (tag, node, answer),
            Heard::Push { node, push } => {
                let follows = self.wishes.pushed(net, node, push);
                return self.grant(follows);
            }
        };
        let round = tag.round;
        match tag.purpose {
            Purpose::Acquire => {
                let follows = self.wishes.heard(net, round, node, answer);
                self.follow(round, node, follows);
            }
            Purpose::Raise => {
                let follows = self.wishes.raised(net, round, node, answer);
                self.follow(round, node, follows);
            }
            Purpose::Join => {
                let follows = self.wishes.joined(net, round, node, answer);
                self.grant(follows);
            }
            Purpose::Take => {
                let follows = self.wishes.took(net, round, node, answer);
                self.follow(round, node, follows);
            }
            Purpose::GiveBack => {
                let follows = self.wishes.gave_back(net, round, node, answer);
                self.follow(round, node, follows);
            }
            Purpose::Look | Purpose::Resize | Purpose::EvictSlot => {
                self.pools.heard(net, round, node, answer);
            }
            purpose @ (Purpose::Spend | Purpose::Meter) => {
                self.rates.heard(net, purpose, round, node, answer);
            }
            // What was not given back is asked for again, when the node says that it is ours still.
            Purpose::GiveWay | Purpose::Refund => {}
            Purpose::Extend => {
                self.holdings.extension_heard(net, round, node, answer);
            }
            Purpose::Repair => {
                let answer = answer.ok();
                self.holdings
                    .repair_heard(&mut self.net, round, node, answer.as_ref());
            }
            Purpose::Release => {
                self.holdings.release_heard(net, round, node, answer);
            }
            Purpose::Question | Purpose::QuestionOfSlots | Purpose::QuestionOfRwlock => {
                self.questions.heard(net, tag, node, answer);
            }
            Purpose::Bootstrap => self.bootstrap.heard(round, node, answer),
        }
    }

    fn follow(&mut self, round: RoundId, node: usize, follows: Follows) {
        match follows {
            Follows::Grant(grant) => self.holdings.begin(&mut self.net, *grant),
            Follows::Stray(answer) => {
                self.holdings
                    .late_grant(&mut self.net, round, node, &answer);
            }
            Follows::Nothing => {}
        }
    }

    fn grant(&mut self, follows: Follows) {
        if let Follows::Grant(grant) = follows {
            self.holdings.begin(&mut self.net, *grant);
        }
    }

    /// Nodes have changed: who waits in line registers with those that are back.
    fn look_at_the_line(&mut self) {
        self.rates.look_at_nodes(&mut self.net);
        for id in self.wishes.look_at_nodes(&self.net) {
            let follows = self.wishes.look_at(&mut self.net, id);
            self.grant(follows);
        }
    }

    // ---- time -------------------------------------------------------------------------------

    /// Time has come for something. What had arrived by `seen` was read: nobody is judged by what
    /// came, or did not come, later.
    pub(crate) fn tick(&mut self, seen: Tick) {
        self.net.look_at_the_clock();
        self.net.tick(seen);
        for _ in 0..TIMERS_AT_ONCE {
            let Some(key) = self.net.timers.pop(seen) else {
                break;
            };
            self.ring(key);
        }
        self.settle();
        while let Some(asked) = self.early.pop_due(&self.net, seen) {
            self.obey_early(asked);
            self.settle();
        }
    }

    fn ring(&mut self, key: Key) {
        let may_wait = self.waits_for_nodes();
        let net = &mut self.net;
        match key {
            Key::Lease(id) => self.holdings.lease_due(net, id),
            Key::Wish(id) => {
                if self.wishes.turn_is_over(net, id) {
                    // What follows is done.
                } else if self.wishes.is_in_line(id) {
                    let follows = self.wishes.look_at(net, id);
                    self.grant(follows);
                } else if !self.wishes.rested(net, id, may_wait) {
                    self.wait_for_nodes(Asked::Rested(id));
                }
            }
            Key::Limit(id) => self.rates.line_due(net, id),
            Key::Rest(id) => self.rests.over(id),
            Key::Round(tag) => self.answers_due(tag),
        }
    }

    /// Time has come when the answers to a round are due.
    fn answers_due(&mut self, tag: Tag) {
        let (net, round) = (&mut self.net, tag.round);
        match tag.purpose {
            Purpose::Acquire | Purpose::Raise | Purpose::Take => {
                let follows = self.wishes.round_due(net, round);
                self.grant(follows);
            }
            Purpose::Extend => self.holdings.extension_due(net, round),
            Purpose::Release => self.holdings.release_due(net, round),
            Purpose::Question | Purpose::QuestionOfSlots | Purpose::QuestionOfRwlock => {
                self.questions.round_due(net, tag);
            }
            Purpose::Look | Purpose::Resize | Purpose::EvictSlot => {
                self.pools.round_due(net, round);
            }
            purpose @ (Purpose::Spend | Purpose::Meter) => {
                self.rates.round_due(net, purpose, round);
            }
            // Nothing waits for a repair.
            Purpose::Repair
            | Purpose::Join
            | Purpose::GiveWay
            | Purpose::GiveBack
            | Purpose::Refund
            | Purpose::Bootstrap => {}
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn next_tick(&self) -> Option<Tick> {
        [
            self.net.next_tick(),
            self.ready.next_tick(),
            self.bootstrap.deadline(),
            self.shutdown.next_tick(),
            self.early.due(&self.net),
            self.wishes.next_turns(&self.net),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Passes on what was heard until nothing follows from it, then tells what changed.
    fn settle(&mut self) {
        let mut changed = self.net.look_for_changes();
        if changed {
            self.early.look(&self.net);
            self.look_at_the_line();
        }
        loop {
            while let Some(heard) = self.net.next_heard() {
                self.route(heard);
            }
            if !self.waits_for_nodes()
                && let Some(asked) = self.early.pop()
            {
                self.obey_early(asked);
            }
            self.wishes.take_turns(&mut self.net);
            if !self.net.has_heard() && (self.early.is_empty() || self.waits_for_nodes()) {
                break;
            }
        }
        if self.net.take_changed() {
            changed = true;
            self.look_at_the_line();
        }
        if changed {
            self.publish();
        }
        self.ready.look(&self.net);
        self.bootstrap.look(&mut self.net);
        if self.shutdown.is_due(self.net.now, || self.may_end()) {
            self.end_shutdown();
        }
    }

    fn publish(&mut self) {
        if !self.ended {
            let nodes = self.net.statuses();
            self.net.journal.nodes(self.net.now, &nodes);
            self.status.publish(self.net.now, nodes);
        }
    }
}

// ---- Input from the driver, and effects that it takes

impl Core {
    /// `hears`: it hears what the node says unasked.
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

    /// Takes everything that has come from this node by now, in its order. Returns true if there was anything.
    pub(crate) fn came(
        &mut self,
        node: usize,
        incoming: impl IntoIterator<Item = Incoming>,
    ) -> bool {
        let mut read = std::mem::take(&mut self.read);
        read.extend(incoming);
        let any = !read.is_empty();
        if any {
            // After the last of them was read: this process may have stood still between two. A vote is judged by a
            // clock that is not too early, and a memory is watched since its record was read, never since before.
            self.net.look_at_the_clock();
            self.net.session(node, |session, step| {
                for incoming in read.drain(..) {
                    match incoming {
                        Incoming::Answer(answer) => session.answered(step, answer),
                        Incoming::Push(push) => session.pushed(step, push),
                        Incoming::Nothing => {}
                    }
                }
            });
            self.settle();
        }
        read.give_back();
        self.read = read;
        any
    }

    /// True if more requests may join those that are about to leave: fewer than `few` wait at any node, and other
    /// requests are unanswered. So a single caller is not kept waiting.
    pub(crate) fn may_gather(&self, few: usize) -> bool {
        let waiting = self.net.sessions().iter().map(Session::unleft).max();
        let waiting = waiting.unwrap_or(0);
        let under_way = self.wishes.under_way() + self.holdings.under_way();
        (1..few).contains(&waiting) && under_way > waiting
    }

    /// The connection took back this many operations; what it was not given yet is not among them.
    pub(crate) fn withdrawn(&mut self, node: usize, taken: usize) {
        self.net.look_at_the_clock();
        self.net.withdrawn(node, taken);
        self.settle();
    }

    /// The driver has written what it was given, up to what the nodes accept.
    pub(crate) fn left(&mut self) {
        self.net.left();
    }

    fn session(&mut self, node: usize, act: impl FnOnce(&mut Session, &mut Step<'_>)) {
        self.net.look_at_the_clock();
        self.net.session(node, act);
        self.settle();
    }

    /// The next effect for the driver.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.net.next_effect()
    }
}

// ---- The end: closed by callers, or with the runtime

impl Core {
    /// No new wishes; leave when all is clean. For an engine whose handles are all gone.
    pub(crate) fn close(&mut self) {
        self.net.look_at_the_clock();
        self.close_doors();
        self.settle();
    }

    fn close_doors(&mut self) {
        self.shutdown.close();
        self.early.clear();
        self.wishes.close(&mut self.net);
        self.rates.clear();
        self.rests.clear();
        self.ready.clear();
        self.net.part();
    }

    /// The runtime is gone: every caller finds its channel closed, and no lease is renewed any more.
    /// Releases still go out.
    pub(crate) fn end(&mut self) {
        self.holdings.end();
        self.close();
        self.questions.clear();
        self.pools.clear();
        self.bootstrap.clear();
        self.shutdown.forget();
        self.announce_end();
        self.ended = true;
    }

    /// Nobody renews any more, and no node is reached.
    fn announce_end(&mut self) {
        let closed = |id: &Arc<str>| NodeStatus {
            node: Arc::clone(id),
            state: NodeState::Unreachable(Duration::ZERO, Error::Closed.to_string()),
            note: None,
            used: false,
            round_trip: None,
            limits_up_to: Duration::ZERO,
        };
        let nodes = self.net.settings.nodes.iter().map(closed).collect();
        self.status.close(self.net.clock.now(), nodes);
        self.holdings.end();
    }

    /// Closed, nothing held, nothing left to take back or to tell.
    pub(crate) fn is_done(&self) -> bool {
        self.shutdown.is_closed() && (self.is_clean() || self.shutdown.gave_up())
    }

    /// True while there are leases that were not dropped yet.
    pub(crate) fn holds(&self) -> bool {
        self.holdings.is_any_held()
    }

    fn is_clean(&self) -> bool {
        self.holdings.is_clean() && self.net.is_idle()
    }

    /// Returns true if a shutdown has nothing left to wait for. Every lease is dropped, and a majority is free of it. Nodes that
    /// answer are waited for beyond that. A node that is away or stalled is not: it would cost every program that ends
    /// during an outage the whole timeout, and what stands there is a minority, which ends with its ttl.
    fn may_end(&self) -> bool {
        let waits = |session: &Session| session.is_confirming() || session.is_parting();
        self.holdings.is_clean()
            && !self.net.sessions().iter().any(waits)
            && self.on_most() <= self.net.total() - self.net.needed
    }

    /// On how many nodes one entry may still stand that was released, at most.
    fn on_most(&self) -> usize {
        let mut on: BTreeMap<&Entry, usize> = BTreeMap::new();
        for entry in self.net.sessions().iter().flat_map(Session::unconfirmed) {
            *on.entry(entry).or_default() += 1;
        }
        on.into_values().max().unwrap_or(0)
    }

    /// Tells the callers of shutdown what is still held, and the log what is left of the rest.
    fn end_shutdown(&mut self) {
        let sessions = self.net.sessions().iter();
        let left = sessions
            .map(Session::unconfirmed)
            .zip(&self.net.settings.nodes);
        let left: Vec<(usize, &Arc<str>)> = left
            .map(|(entries, node)| (entries.len(), node))
            .filter(|(releases, _)| *releases > 0)
            .collect();
        let is_free = self.on_most() <= self.net.total() - self.net.needed;
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
    /// Waiting callers find their channels closed.
    fn drop(&mut self) {
        if !self.ended {
            self.announce_end();
        }
    }
}
