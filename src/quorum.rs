//! The front door: one set of connections, and every primitive made from it.

use std::{fmt, future::Future};

use tracing::Instrument;

use crate::{
    Builder, Error, Health, Inspection, IntoNode, Mutex, NodeStatus,
    builder::{self, Limits},
    engine::{Engine, Event},
    name::Name,
};

/// N independent masters, asked all at once. Cheap to clone; clones share one set of connections.
///
/// The background work runs on the tokio runtime that connected, which needs its I/O and time
/// drivers (`enable_all`). When that runtime is gone, every call answers [`Error::Closed`] at once.
///
/// ```no_run
/// # async fn example() -> Result<(), quorate::Error> {
/// use quorate::Quorum;
/// let quorum = Quorum::connect([
///     "redis://10.0.0.1:6379",
///     "redis://10.0.1.1:6379",
///     "redis://10.0.2.1:6379",
/// ]).await?;
/// let lease = quorum.mutex("invoice:42").lock().await?;
/// println!("write with token {}", lease.token());
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Quorum {
    engine: Engine,
    limits: Limits,
}

impl Quorum {
    pub(crate) fn new(engine: Engine, limits: Limits) -> Self {
        Self { engine, limits }
    }

    /// Dials all nodes at once, with default settings; ready when a majority answered.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    ///
    /// # Cancel safety
    /// Dropping it drops all connections.
    pub async fn connect<T: IntoNode>(nodes: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        Self::builder().nodes(nodes).connect().await
    }

    /// For everything that is to be other than the default.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// n masters in this process (at least 1), which vote at once: for demos, doctests and tests.
    /// They follow tokio's clock, so a paused test clock moves ttl, renewal and validity together.
    /// Has to be called within a tokio runtime.
    pub fn in_memory(n: usize) -> Self {
        builder::in_memory(n)
    }

    /// The mutex of this name: 1 to 512 bytes of free text, checked when it is locked.
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex::new(self.engine.clone(), name.into(), self.limits.max_ttl)
    }

    /// What every node that votes says about a name: who holds it, for how long, the newest token;
    /// or why it does not vote.
    ///
    /// # Errors
    /// `Invalid`, `Closed`. A node that does not answer is part of the answer.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn inspect<N: Into<String>>(
        &self,
        name: N,
    ) -> impl Future<Output = Result<Inspection, Error>> + Send + 'static + use<N> {
        let (engine, name) = (self.engine.clone(), name.into());
        async move {
            let name = Name::new(&name)?;
            let span = tracing::debug_span!("inspect", %name);
            engine
                .call(|reply| Event::Inspect { name, reply })
                .instrument(span)
                .await
        }
    }

    /// Frees a name on every node that votes, whoever holds it; whether anybody did. The holder learns of it at
    /// its next renewal, without renewal only when its validity ends: until then two may believe
    /// that they hold the lock, and only the token tells them apart.
    ///
    /// # Errors
    /// `NoQuorum` when fewer than a majority did it; `Invalid`; `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; it may have happened or not.
    pub fn evict<N: Into<String>>(
        &self,
        name: N,
    ) -> impl Future<Output = Result<bool, Error>> + Send + 'static + use<N> {
        let (engine, name) = (self.engine.clone(), name.into());
        async move {
            let name = Name::new(&name)?;
            let span = tracing::debug_span!("evict", %name);
            engine
                .call(|reply| Event::Evict { name, reply })
                .instrument(span)
                .await
        }
    }

    /// Every node's state, in the order they were given.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.engine.status.nodes()
    }

    /// The word that all clients of these masters have to share: [`Builder::fleet`](crate::Builder::fleet),
    /// or what follows from their addresses.
    pub fn fleet(&self) -> &str {
        &self.limits.fleet
    }

    /// Whether locks can be taken, for a probe.
    pub fn health(&self) -> Health {
        self.engine.status.health()
    }

    /// Admits brand-new masters without their quarantine (protocol §2). On a fleet that votes it
    /// raises `max_ttl` and the restart margin to this quorum's, if those are greater, and else does nothing.
    ///
    /// A master that restarted empty looks new, and admitting it gives two holders. So:
    /// - every node has to answer;
    /// - none may vote while another does not;
    /// - no client and no record on a node may say that the fleet is in use;
    /// - no node may hold counters, which every grant leaves.
    ///
    /// For new masters it takes 6 s and one node timeout, about 7 s with the defaults: by then every
    /// running client that reaches one of them has said whether the fleet is in use. It may be called at
    /// every start. No client may ask for a greater `max_ttl` before a raise has succeeded; if it
    /// fails half-way, call it again.
    ///
    /// # Errors
    /// - `Invalid`, naming the node and the reason, when a condition is not met or a node answers with an
    ///   error.
    /// - `NoQuorum` when not all nodes voted in the end: one did not answer within `connect_timeout` and the time
    ///   above.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; it may have happened or not, and can be repeated.
    pub fn bootstrap(&self) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        self.bootstrap_as(false)
    }

    /// [`bootstrap`](Self::bootstrap) with only its first condition, and without its wait. Records of
    /// other fleets that do not vote are replaced; one that votes refuses it.
    ///
    /// Safe only when no lease can be left: all clients have been stopped for longer than `max_ttl`,
    /// or no node has voted for the whole of a quarantine. Never call it at every start.
    ///
    /// # Errors
    /// As [`bootstrap`](Self::bootstrap).
    ///
    /// # Cancel safety
    /// As [`bootstrap`](Self::bootstrap).
    pub fn bootstrap_forced(
        &self,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        self.bootstrap_as(true)
    }

    fn bootstrap_as(
        &self,
        force: bool,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let (engine, within) = (self.engine.clone(), self.limits.connect_timeout);
        async move {
            let span = tracing::debug_span!("bootstrap", force);
            engine
                .call(|reply| Event::Bootstrap {
                    within,
                    force,
                    reply,
                })
                .instrument(span)
                .await
        }
    }

    /// Ends this quorum for all clones: new calls and waiters get `Closed`. Waits for held leases to
    /// be dropped and their releases to be confirmed, at most the builder's `shutdown_timeout`; the
    /// names that are still held then are returned, and left to their ttl (their leases are lost:
    /// `NodesLost`, as nobody renews them any more).
    ///
    /// # Cancel safety
    /// May be dropped: the end goes on in the background.
    pub fn shutdown(&self) -> impl Future<Output = Vec<String>> + Send + 'static + use<> {
        let (engine, within) = (self.engine.clone(), self.limits.shutdown_timeout);
        async move { engine.shutdown(within).await }
    }

    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let within = self.limits.connect_timeout;
        self.engine
            .call(|reply| Event::Ready { within, reply })
            .await
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.nodes().iter().map(ToString::to_string).collect();
        f.debug_struct("Quorum").field("nodes", &nodes).finish()
    }
}
