//! The process of an in-process master, as its connections see it.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    base::clock::TokioClock,
    node::{Incoming, answer::Answered, memory::store::Store},
};

/// Shared by the node and its connections.
pub(super) struct Process(Mutex<State>);

pub(super) struct State {
    pub(super) store: Store,
    pub(super) clock: TokioClock,
    pub(super) up: bool,
    /// The delay of everything that the node sends.
    pub(super) delay: Duration,
    /// The number of connections that there ever were.
    connections: u64,
    /// Counts stops and restarts.
    pub(super) life: u64,
    /// The node's end of every connection that is not broken, by the connection's number.
    open: BTreeMap<u64, Open>,
}

/// The node's end of a connection.
pub(super) struct Open {
    /// The channel that it is subscribed to. Empty for none.
    channel: Arc<str>,
    /// The output of the node, each with the time from which it may be read, if it is delayed.
    pub(super) said: VecDeque<(Option<Instant>, Incoming)>,
    /// The reader that waits for more.
    pub(super) waiting: Option<Waker>,
}

impl Process {
    pub(super) fn new(store: Store) -> Self {
        Self(Mutex::new(State {
            store,
            clock: TokioClock::new(),
            up: true,
            delay: Duration::ZERO,
            connections: 0,
            life: 0,
            open: BTreeMap::new(),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns true if no client has reached it and it has never stopped.
    pub(super) fn is_new(&self) -> bool {
        self.connections == 0 && self.life == 0
    }

    /// Opens a connection that is subscribed to this channel. Returns its number.
    pub(super) fn connect(&mut self, channel: &Arc<str>) -> u64 {
        self.connections += 1;
        if !channel.is_empty() {
            self.store.subscribe(channel);
        }
        let open = Open {
            channel: Arc::clone(channel),
            said: VecDeque::new(),
            waiting: None,
        };
        self.open.insert(self.connections, open);
        self.connections
    }

    /// The node's end of this connection. `None` if it is broken.
    pub(super) fn open(&mut self, connection: u64) -> Option<&mut Open> {
        self.open.get_mut(&connection)
    }

    /// The client has closed this connection.
    pub(super) fn close(&mut self, connection: u64) {
        if let Some(open) = self.open.remove(&connection) {
            self.unsubscribe(&open);
        }
    }

    pub(super) fn break_connections(&mut self) {
        self.life += 1;
        for open in mem::take(&mut self.open).into_values() {
            self.unsubscribe(&open);
            if let Some(waker) = open.waiting {
                waker.wake();
            }
        }
    }

    /// The time from which output that is made now may be read.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.delay.is_zero()).then(|| Instant::now() + self.delay)
    }

    /// Puts an answer on this connection.
    pub(super) fn answer(&mut self, connection: u64, due: Option<Instant>, answer: Answered) {
        if let Some(open) = self.open.get_mut(&connection) {
            open.said.push_back((due, Incoming::Answer(answer)));
        }
    }

    /// Puts pushes that were published on every connection that is subscribed to their channel. Collects the wakers of
    /// the readers.
    pub(super) fn hand_out(&mut self, due: Option<Instant>, woken: &mut Vec<Waker>) {
        for (channel, push) in self.store.take_pushes() {
            for open in self.open.values_mut() {
                if open.channel == channel {
                    let push = Incoming::Push(push.clone());
                    open.said.push_back((due, push));
                    woken.extend(open.waiting.take());
                }
            }
        }
    }

    fn unsubscribe(&mut self, open: &Open) {
        if !open.channel.is_empty() {
            self.store.unsubscribe(&open.channel);
        }
    }
}
