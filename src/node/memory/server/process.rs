//! The process of an in-process master, as its connections see it.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use crate::{clock::TokioClock, node::memory::store::Store};

/// Shared by the node and its connections.
pub(super) struct Process(Mutex<State>);

pub(super) struct State {
    pub(super) store: Store,
    pub(super) clock: TokioClock,
    pub(super) up: bool,
    /// Each answer comes this much later.
    pub(super) delay: Duration,
    pub(super) connections: u64,
    /// Counts stops: a connection of an earlier life is over.
    pub(super) life: u64,
    /// By connection: who waits for an answer on it.
    pub(super) waiting: BTreeMap<u64, Waker>,
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
            waiting: BTreeMap::new(),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn break_connections(&mut self) {
        self.life += 1;
        for waker in mem::take(&mut self.waiting).into_values() {
            waker.wake();
        }
    }
}
