//! The front door: one set of connections, and every primitive that is made from it.

pub(crate) mod assembly;
pub(crate) mod builder;
pub(crate) mod env;
mod named;
pub(crate) mod settings;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tracing::Instrument;

use crate::{
    Error, Health, Inspection, NodeChanges, NodeStatus,
    base::{logs, name::Name, quota::Masters},
    engine::{Engine, Event},
    node::admission::Mode,
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

/// What a quorum remembers of its settings.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) fleet: Arc<str>,
    pub(crate) max_ttl: Duration,
    pub(crate) masters: Masters,
    pub(crate) connect_timeout: Duration,
    pub(crate) shutdown_timeout: Duration,
}

impl Quorum {
    pub(crate) fn new(engine: Engine, limits: Limits) -> Self {
        Self { engine, limits }
    }

    /// What every node that votes says about a name: who holds it, for how long, the newest token, and who waits in
    /// line; or why it does not vote. It tells of the mutex of that name; of the semaphore of that name: its limit, who has
    /// which slot, and who waits for one; and of the read-write lock of that name: who reads, who writes, who waits to. Who
    /// holds several names at once ([`mutex_all`](Self::mutex_all)) holds the mutex of each.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let quorum = quorate::Quorum::in_memory(3);
    /// let lease = quorum.mutex("nightly").lock().await?;
    /// let waits = tokio::spawn(quorum.mutex("nightly").lock());
    /// while quorum.inspect("nightly").await?.line().is_empty() {}
    /// for waiter in quorum.inspect("nightly").await?.line() {
    ///     println!("{waiter}, on {} nodes", waiter.nodes.len()); // web-4:12, for 3 ms, on 3 nodes
    /// }
    /// # lease.release().await?; drop(waits.await);
    /// let permit = quorum.semaphore("thumbnails", 4).acquire().await?;
    /// let seen = quorum.inspect("thumbnails").await?;
    /// assert_eq!((seen.taken_slots(), seen.limit()), (1, Some(4)));
    /// let reader = quorum.rwlock("routes").read().await?;
    /// let seen = quorum.inspect("routes").await?;
    /// assert_eq!((seen.reading(), seen.writer()), (1, None));
    /// # drop((permit, reader)); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - `Invalid` for a bad name.
    /// - `Closed`.
    ///
    /// A node that does not answer is not an error: the answer says so.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn inspect<N: Into<String>>(
        &self,
        name: N,
    ) -> impl Future<Output = Result<Inspection, Error>> + Send + 'static + use<N> {
        let (engine, name) = (self.engine.clone(), name.into());
        async move {
            let name = Name::new(name)?;
            let span = logs::span!("inspect", name = name.as_str());
            engine
                .call(|reply| Event::Inspect { name, reply })
                .instrument(span)
                .await
        }
    }

    /// Frees the mutex and the read-write lock of a name on every voting node. The mutex goes on to whoever is first in
    /// line; who waits for the read-write lock is told, and asks. Returns whether one of them was held. Of a semaphore
    /// nothing is freed: [`Semaphore::evict`](crate::Semaphore::evict) frees a slot.
    ///
    /// Each holder, a reader too, learns of it at its next renewal, without renewal only when its validity ends. Until
    /// then two may believe that they hold the lock, and only the token tells them apart (readers' tokens do not). A lease
    /// of several names is lost as a whole when one of them is evicted. For 2 `max_ttl` no lease of the name is put back on
    /// a node that lost it.
    ///
    /// # Errors
    /// - `NoQuorum` when fewer than a majority confirmed it.
    /// - `Invalid` for a bad name.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; it may have happened or not.
    pub fn evict<N: Into<String>>(
        &self,
        name: N,
    ) -> impl Future<Output = Result<bool, Error>> + Send + 'static + use<N> {
        let (engine, name) = (self.engine.clone(), name.into());
        async move {
            let name = Name::new(name)?;
            let span = logs::span!("evict", name = name.as_str());
            engine
                .call(|reply| Event::Evict { name, reply })
                .instrument(span)
                .await
        }
    }

    /// Waits until a majority of nodes answers, as [`Builder::connect`](crate::Builder::connect) does: for use after
    /// [`Builder::connect_lazy`](crate::Builder::connect_lazy), in tests and in probes. A quarantined node answers but does not vote:
    /// [`voting`](Self::voting) waits for the votes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let quorum = quorate::Quorum::in_memory(3);
    /// quorum.ready().await?;
    /// assert_eq!(quorum.health().voting, 3);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - As for [`Builder::connect`](crate::Builder::connect).
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn ready(&self) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let (engine, within) = (self.engine.clone(), self.limits.connect_timeout);
        async move { engine.call(|reply| Event::Ready { within, reply }).await }
    }

    /// Waits until a majority of nodes votes, so that locks can be taken; for `within` at most.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// use std::time::Duration;
    /// let quorum = quorate::Quorum::in_memory(3);
    /// quorum.voting(Duration::from_secs(60)).await?;
    /// let lease = quorum.mutex("nightly").try_lock().await?;
    /// assert!(lease.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// After `within`, naming every node and why it does not vote:
    /// - `Quarantined` when the quarantined nodes will make up the majority; `retry_after` says when.
    /// - `NoQuorum` when they will not.
    ///
    /// At once:
    /// - `Invalid` when two addresses lead to one server.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn voting(
        &self,
        within: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let engine = self.engine.clone();
        async move { engine.call(|reply| Event::Voting { within, reply }).await }
    }

    /// Every node's state, in the order they were given.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.engine.status().nodes()
    }

    /// A stream of the nodes' states: first the present state of every node, then a node again whenever its state
    /// changes. A change is another kind of state, another reason for a refusal, or another note. Time that passes
    /// is not a change, and neither is another reason why a node cannot be reached.
    ///
    /// A slow reader gets the newest state of each node and misses those in between, so the stream keeps at most
    /// one state for each node. It ends when the quorum is closed, and does not keep it open.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// use futures::StreamExt;
    /// use quorate::NodeState;
    /// let quorum = quorate::Quorum::in_memory(3);
    /// quorum.ready().await?;
    /// let mut changes = quorum.node_changes();
    /// while let Some(node) = changes.next().await {
    ///     println!("{node}");
    ///     if quorum.health().spare == 1 {
    ///         break; // all three vote
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn node_changes(&self) -> NodeChanges {
        self.engine.status().changes()
    }

    /// The word that all clients of these masters have to share: [`Builder::fleet`](crate::Builder::fleet),
    /// or what follows from their addresses.
    pub fn fleet(&self) -> &str {
        &self.limits.fleet
    }

    /// Whether locks can be taken, for a probe.
    pub fn health(&self) -> Health {
        self.engine.status().health()
    }

    /// Admits brand-new masters without their quarantine: the caller says that these servers have never held a
    /// lock.
    ///
    /// On a fleet that votes it does what [`raise_terms`](Self::raise_terms) does, or nothing. What it asks of a
    /// node is in [protocol](crate::docs::protocol) §2.
    ///
    /// A master that restarted empty looks new, and admitting it gives two holders. So:
    /// - every node has to answer;
    /// - none may vote while another does not;
    /// - no client and no record on a node may say that the fleet is in use;
    /// - no node may hold counters, which every grant leaves.
    ///
    /// For new masters it takes 6 s and one node timeout, about 7 s with the defaults: by then every running client
    /// that reaches one of them has said whether the fleet is in use. These checks cannot see everything, so only a
    /// person may decide: a program that calls it at every start claims what nobody has checked. Without it new
    /// masters vote by themselves when their quarantine is over.
    ///
    /// # Errors
    /// - `Invalid` when these servers are not new, or when two addresses lead to one server: it names the node and
    ///   the reason.
    /// - `Invalid` while another bootstrap of this quorum is under way.
    /// - `NoQuorum`, with every node's reason: at once when a node is refused, answers with an error or has lost
    ///   its memory meanwhile.
    /// - `NoQuorum` too when not all nodes vote in the end, because one did not answer within `connect_timeout` and
    ///   the time above.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; it may have happened or not, and can be repeated.
    pub fn bootstrap(&self) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        self.bootstrap_as(Mode::New)
    }

    /// [`bootstrap`](Self::bootstrap) with only the first of its conditions, and without its wait. Records of other
    /// fleets are replaced on nodes that do not vote; a node that votes for another fleet makes it fail.
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
        self.bootstrap_as(Mode::Forced)
    }

    /// Raises the fleet's `max_ttl` and restart margin to this quorum's values, if these are greater. It never
    /// admits a node: it waits for those in quarantine.
    ///
    /// - If no node that it sees has less, it changes nothing, and returns as soon as a majority votes or is in
    ///   quarantine. A node in quarantine that does not remember the fleet has no values of its own yet: it learns
    ///   these. One that came back from its disk has the fleet's, and has to be raised.
    /// - To raise, every node has to vote. It waits as long as all of them answer and some are in quarantine. Other
    ///   clients keep working meanwhile.
    ///
    /// It may be called at every start, by many clients at once. No client may ask for more before a raise has
    /// succeeded; if it fails half-way, call it again.
    ///
    /// # Errors
    /// - `NoQuorum`, with every node's reason, when what it needs (a majority, or every node for a raise) was
    ///   missing for `connect_timeout`.
    /// - `Invalid` when two addresses lead to one server, and while another bootstrap or raise of this quorum is
    ///   under way.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; it may have happened or not, and can be repeated.
    pub fn raise_terms(&self) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        self.bootstrap_as(Mode::Raise)
    }

    fn bootstrap_as(
        &self,
        mode: Mode,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let (engine, within) = (self.engine.clone(), self.limits.connect_timeout);
        async move {
            let span = logs::span!("bootstrap", ?mode);
            engine
                .call(|reply| Event::Bootstrap {
                    within,
                    mode,
                    reply,
                })
                .instrument(span)
                .await
        }
    }

    /// Ends this quorum for all clones, and waits until what it holds is released: the last line of `main`.
    ///
    /// New calls and waiters get `Closed`. Waits for held leases to be dropped and their releases to be
    /// confirmed, at most the builder's `shutdown_timeout`; the names that are still held then are
    /// returned, and left to their ttl (their leases are lost: `NodesLost`, as nobody renews them any
    /// more). What happens without it, and a service that ends with it: [shutdown](crate::docs::shutdown).
    ///
    /// A majority confirms a release. Nodes that answer are waited for beyond that; a node that died, cannot be reached or
    /// stalls is not, and delays this by one node timeout at most. The log says which nodes have not confirmed a release.
    ///
    /// A node in quarantine is told for how long this quorum has watched it (protocol §2). So short programs should
    /// call this at their end: where the runtime ends first, up to a second of watching is lost each time.
    ///
    /// # Cancel safety
    /// May be dropped: the end goes on in the background.
    pub fn shutdown(&self) -> impl Future<Output = Vec<String>> + Send + 'static + use<> {
        let (engine, within) = (self.engine.clone(), self.limits.shutdown_timeout);
        async move { engine.shutdown(within).await }
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.nodes().iter().map(ToString::to_string).collect();
        f.debug_struct("Quorum").field("nodes", &nodes).finish()
    }
}
