//! What all handles of one Consul share: the way to it, what is held, and the end.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
    time::timeout,
};

use super::http::Http;
use crate::{
    Error,
    base::clock::{Clock, Tick},
    lease::{failing::FailingRenewals, shared::Shared},
};

/// At most so many queries wait at Consul at once. It accepts 200 connections of one address, which all programs of a
/// machine share.
const QUERIES: usize = 64;

/// How far the end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Open,
    /// Nothing new is begun.
    Closing,
    /// What is still held is left to its TTL.
    Over,
}

/// One Consul, by way of one agent.
pub(super) struct Agent {
    pub(super) http: Http,
    /// Who holds, for people.
    pub(super) label: Arc<str>,
    /// What every name begins with in Consul: nothing, or a path that ends in a slash.
    pub(super) prefix: Arc<str>,
    /// Queries that wait at Consul.
    pub(super) queries: Arc<Semaphore>,
    pub(super) clock: Arc<dyn Clock>,
    shutdown_timeout: Duration,
    runtime: Option<Handle>,
    stage: watch::Sender<Stage>,
    /// How many tasks are under way.
    tasks: watch::Sender<usize>,
    held: Mutex<BTreeMap<u64, Arc<str>>>,
    failing: Mutex<FailingRenewals>,
    last_lease: AtomicU64,
}

/// What it is made with.
pub(super) struct Ways {
    pub(super) http: Http,
    pub(super) label: Arc<str>,
    pub(super) prefix: Arc<str>,
    pub(super) shutdown_timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
    /// Where the background work runs.
    pub(super) runtime: Option<Handle>,
}

impl Agent {
    pub(super) fn new(ways: Ways) -> Arc<Self> {
        Arc::new(Self {
            http: ways.http,
            label: ways.label,
            prefix: ways.prefix,
            queries: Arc::new(Semaphore::new(QUERIES)),
            clock: ways.clock,
            shutdown_timeout: ways.shutdown_timeout,
            runtime: ways.runtime,
            stage: watch::Sender::default(),
            tasks: watch::Sender::default(),
            held: Mutex::default(),
            failing: Mutex::default(),
            last_lease: AtomicU64::new(0),
        })
    }

    pub(super) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Runs this in the background, on the runtime that connected. Without that it is dropped.
    pub(super) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let busy = Busy::new(self);
        let work = async move {
            let _busy = busy;
            work.await;
        };
        if let Some(runtime) = &self.runtime {
            drop(runtime.spawn(work));
        }
    }

    // ---- what is held -------------------------------------------------------------------------

    /// A lease of this name begins.
    pub(super) fn begins(self: &Arc<Self>, name: &str) -> Held {
        let id = self.last_lease.fetch_add(1, Relaxed);
        lock(&self.held).insert(id, name.into());
        Held {
            agent: Arc::clone(self),
            id,
        }
    }

    /// A renewal of this lease failed, for the `first` time in this outage or again.
    pub(super) fn renewal_failed(&self, lease: &Shared, first: bool, error: &Error) {
        let leases = lock(&self.held).len();
        lock(&self.failing).failed(self.now(), lease, first, error, leases);
    }

    // ---- the end ------------------------------------------------------------------------------

    pub(super) fn is_closing(&self) -> bool {
        *self.stage.borrow() > Stage::Open
    }

    /// Ready when nothing new is to be begun.
    pub(super) fn closing(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.reaches(Stage::Closing)
    }

    /// Ready when leases are left to their TTL.
    pub(super) fn over(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.reaches(Stage::Over)
    }

    fn reaches(&self, stage: Stage) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut stages = self.stage.subscribe();
        async move {
            // The sender is gone with everything that it could end.
            let _ = stages.wait_for(|now| *now >= stage).await;
        }
    }

    /// Nothing new is begun from now on.
    pub(super) fn close(&self) {
        self.stage.send_if_modified(|stage| {
            let before = *stage;
            *stage = before.max(Stage::Closing);
            *stage != before
        });
    }

    /// Waits until all leases were given up and Consul was told, and returns the names that are still held.
    pub(super) async fn ended(&self) -> Vec<String> {
        let mut tasks = self.tasks.subscribe();
        let all_done = tasks.wait_for(|tasks| *tasks == 0);
        let in_time = timeout(self.shutdown_timeout, all_done).await.is_ok();
        let held = lock(&self.held).values().map(ToString::to_string).collect();
        if !in_time {
            self.stage.send_replace(Stage::Over);
        }
        held
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("node", &self.http.node)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// A lease that is held.
pub(super) struct Held {
    agent: Arc<Agent>,
    id: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.agent.held).remove(&self.id);
    }
}

/// A task that is under way.
struct Busy(Arc<Agent>);

impl Busy {
    fn new(agent: &Arc<Agent>) -> Self {
        agent.tasks.send_modify(|tasks| *tasks += 1);
        Self(Arc::clone(agent))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0
            .tasks
            .send_modify(|tasks| *tasks = tasks.saturating_sub(1));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
