//! The state that all handles of one Consul share: the connection, the leases, and the end.

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
    base::{
        clock::{Clock, Tick},
        ending::Ending,
    },
    lease::{failing::FailingRenewals, shared::Shared},
};

/// At most this many queries wait at Consul at once. It accepts 200 connections of one address, which all programs of a
/// machine share.
const QUERIES: usize = 64;

/// How far the end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Open,
    /// Nothing new is begun.
    Closing,
    /// Leases that are still held are left to their TTL.
    Over,
}

/// One Consul, reached through one agent.
pub(super) struct Agent {
    pub(super) http: Http,
    /// The holder's name, for people.
    pub(super) label: Arc<str>,
    /// The beginning of every name in Consul: empty, or a path that ends in a slash.
    pub(super) prefix: Arc<str>,
    /// Queries that wait at Consul.
    pub(super) queries: Arc<Semaphore>,
    pub(super) clock: Arc<dyn Clock>,
    shutdown_timeout: Duration,
    runtime: Handle,
    stage: watch::Sender<Stage>,
    ending: Arc<Ending>,
    /// How many tasks are under way.
    tasks: watch::Sender<usize>,
    held: Mutex<BTreeMap<u64, Arc<str>>>,
    failing: Mutex<FailingRenewals>,
    last_lease: AtomicU64,
}

/// The settings of an [`Agent`].
pub(super) struct Ways {
    pub(super) http: Http,
    pub(super) label: Arc<str>,
    pub(super) prefix: Arc<str>,
    pub(super) shutdown_timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
    /// Where the background work runs.
    pub(super) runtime: Handle,
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
            ending: Arc::default(),
            tasks: watch::Sender::default(),
            held: Mutex::default(),
            failing: Mutex::default(),
            last_lease: AtomicU64::new(0),
        })
    }

    pub(super) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Runs this in the background, on the runtime that connected. If that is gone, it is dropped.
    pub(super) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let busy = Busy::new(self);
        let work = async move {
            let _busy = busy;
            work.await;
        };
        drop(self.runtime.spawn(work));
    }

    // ---- what is held -------------------------------------------------------------------------

    /// Notes that a lease of this name begins.
    pub(super) fn begins(self: &Arc<Self>, name: &str) -> Held {
        let id = self.last_lease.fetch_add(1, Relaxed);
        lock(&self.held).insert(id, name.into());
        Held {
            agent: Arc::clone(self),
            id,
        }
    }

    /// Logs that a renewal of this lease failed. `first` says whether it is the first failure of this outage.
    pub(super) fn renewal_failed(&self, lease: &Shared, first: bool, error: &Error) {
        let leases = lock(&self.held).len();
        lock(&self.failing).failed(self.now(), lease, first, error, leases);
    }

    // ---- the end ------------------------------------------------------------------------------

    pub(super) fn is_closing(&self) -> bool {
        *self.stage.borrow() > Stage::Open
    }

    /// Ready when nothing new may begin.
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
            // If the sender is gone, everything that it could end is gone too.
            let _ = stages.wait_for(|now| *now >= stage).await;
        }
    }

    /// Tells why a call has no answer.
    pub(super) fn ending(&self) -> &Arc<Ending> {
        &self.ending
    }

    /// Lets nothing new begin from now on.
    pub(super) fn close(&self) {
        self.ending.shut_down();
        self.stage.send_if_modified(|stage| {
            let before = *stage;
            *stage = before.max(Stage::Closing);
            *stage != before
        });
    }

    /// Waits until all leases were given up and Consul was told, for at most the shutdown timeout. Returns the names
    /// that are still held.
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

/// Counts a lease as held, until it is dropped.
pub(super) struct Held {
    agent: Arc<Agent>,
    id: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.agent.held).remove(&self.id);
    }
}

/// Counts a task as under way, until it is dropped.
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
