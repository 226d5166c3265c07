//! The front door: one set of connections, and every primitive that is made from it.

pub(crate) mod assembly;
pub(crate) mod builder;
#[cfg(feature = "serde")]
pub(crate) mod config;
pub(crate) mod env;
mod named;
pub(crate) mod settings;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tracing::Instrument;

use crate::{
    Error, Health, Inspection, NodeChanges, NodeStatus,
    base::{logs, name::Name, quota::Masters},
    engine::{Engine, Event},
    locks::rate_limiter::Limiters,
    node::admission::Mode,
};

/// A client of N independent masters, from which locks, semaphores and rate limiters are made.
///
/// It is cheap to clone, and clones share one set of connections. A lock is asked for on all masters at once, and a
/// majority of them decides. Make one quorum for the whole program, and end it with [`shutdown`](Self::shutdown).
///
/// [`blocking::Quorum`](crate::blocking::Quorum) has the same calls for programs of threads, and
/// [`consul`](crate::consul) has locks and semaphores in a Consul cluster.
///
/// The background work runs on the tokio runtime that connected, which needs its I/O and time drivers (`enable_all`).
/// When that runtime is gone, every call answers [`Error::RuntimeGone`] at once.
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
    pub(crate) limiters: Arc<Limiters>,
}

/// The settings that a quorum still needs once it is assembled.
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
        Self {
            engine,
            limits,
            limiters: Arc::default(),
        }
    }

    /// Asks every node about a name: the holder and the time it has left, the newest token, and the queue. For a node
    /// that does not vote it says why.
    ///
    /// The answer covers all kinds of that name:
    /// - the mutex. A holder of several names ([`mutex_all`](Self::mutex_all)) holds the mutex of each;
    /// - the semaphore: its limit, the holder of each slot, and its queue;
    /// - the read-write lock: its readers, its writer, and the writers that wait.
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
    /// - `Invalid` if the name is not valid.
    /// - `Closed`.
    ///
    /// A node that does not answer is not an error: the inspection says so.
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

    /// Frees the mutex and the read-write lock of a name on every voting node, for operators. Returns true if one of
    /// them was held.
    ///
    /// The mutex goes to the first in its queue. Waiters of the read-write lock are told that it is free, and ask
    /// again. A semaphore is left as it is: [`Semaphore::evict`](crate::Semaphore::evict) frees one of its slots.
    ///
    /// Each holder, a reader too, learns of the eviction at its next renewal. Without renewal it learns of it only when
    /// its validity ends. Until then two may believe that they hold the lock, and only the token tells them apart
    /// (readers' tokens do not). A lease of several names is lost as a whole when one of them is evicted. For 2
    /// `max_ttl` no lease of the name is put back on a node that lost it.
    ///
    /// # Errors
    /// - `NoQuorum` if fewer than a majority confirmed it.
    /// - `Invalid` if the name is not valid.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; the eviction may have happened or not.
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

    /// Waits until a majority of nodes answers, as [`Builder::connect`](crate::Builder::connect) does. Use it after
    /// [`Builder::connect_lazy`](crate::Builder::connect_lazy), in tests and in probes.
    ///
    /// A quarantined node answers but does not vote. [`voting`](Self::voting) waits for the votes.
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

    /// Waits until a majority of nodes votes, so that locks can be taken, but no longer than `within`.
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
    /// - `Quarantined` if the quarantined nodes will make up the majority; `retry_after` says when.
    /// - `NoQuorum` if they will not.
    ///
    /// At once:
    /// - `Invalid` if two addresses lead to one server.
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

    /// Returns the state of every node, in the order in which they were given.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.engine.status().nodes()
    }

    /// Returns a stream of the nodes' states. It begins with the present state of every node, and names a node again
    /// whenever its state changes.
    ///
    /// A change is another kind of state, another reason for a refusal, or another note. The passing of time is not a
    /// change, and neither is another reason why a node cannot be reached.
    ///
    /// A slow reader gets the newest state of each node and misses those in between, so the stream keeps at most one
    /// state for each node. The stream ends when the quorum is closed, and does not keep it open.
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

    /// The word that all clients of these masters have to share: the name given to
    /// [`Builder::fleet`](crate::Builder::fleet), or a word derived from the masters' addresses.
    pub fn fleet(&self) -> &str {
        &self.limits.fleet
    }

    /// Returns how many nodes vote and how many are needed, for a probe. It does not wait.
    pub fn health(&self) -> Health {
        self.engine.status().health()
    }

    /// Admits brand-new masters without their quarantine. By calling it you state that these servers have never held a
    /// lock.
    ///
    /// Call it once, by hand, and never at every start: its checks cannot see everything, so a person has to decide.
    /// Without it new masters vote by themselves when their quarantine is over. On a fleet that votes it does what
    /// [`raise_terms`](Self::raise_terms) does, or nothing.
    ///
    /// A master that restarted empty looks new, and admitting it gives two holders. So these conditions are checked:
    /// - Every node has to answer.
    /// - No node may vote while another does not.
    /// - No client, and no record on a node, may say that the fleet is in use.
    /// - No node may hold counters, which every grant leaves.
    ///
    /// For new masters it takes 6 s and one node timeout, about 7 s with the defaults. By then every running client
    /// that reaches one of the nodes has said whether the fleet is in use. [Protocol §2](crate::docs::protocol) has the
    /// details.
    ///
    /// # Errors
    /// - `Invalid` if these servers are not new, or if two addresses lead to one server. It names the node and the
    ///   reason.
    /// - `Invalid` while another bootstrap of this quorum is under way.
    /// - `NoQuorum`, with every node's reason: at once if a node is refused, answers with an error or loses its memory
    ///   meanwhile.
    /// - `NoQuorum` also if in the end not all nodes vote, because one did not answer within `connect_timeout` and the
    ///   time above.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; the admission may have happened or not. It can be repeated.
    pub fn bootstrap(&self) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        self.bootstrap_as(Mode::New)
    }

    /// Does what [`bootstrap`](Self::bootstrap) does, but checks only that every node answers, and does not wait. Never
    /// call it at every start.
    ///
    /// It is safe only if no lease can be left: all clients have been stopped for longer than `max_ttl`, or no node has
    /// voted for the whole of a quarantine.
    ///
    /// Records of other fleets are replaced on nodes that do not vote. A node that votes for another fleet makes it
    /// fail.
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

    /// Raises the fleet's `max_ttl` and restart margin to this quorum's values, if these are greater. It never admits a
    /// node: it waits for nodes in quarantine.
    ///
    /// - If no node in sight has smaller values, it changes nothing. It then returns as soon as a majority votes or is
    ///   in quarantine. A quarantined node that does not remember the fleet has no values of its own yet, and takes
    ///   these. One that came back from its disk has the fleet's old values, and has to be raised.
    /// - To raise, it needs the vote of every node. It waits as long as all of them answer and some are in quarantine.
    ///   Other clients keep working meanwhile.
    ///
    /// It may be called at every start, by many clients at once. No client may ask for greater values before a raise
    /// has succeeded. If a raise fails half-way, call it again.
    ///
    /// # Errors
    /// - `NoQuorum`, with every node's reason, if what it needs (a majority, or every node for a raise) was missing for
    ///   `connect_timeout`.
    /// - `Invalid` if two addresses lead to one server, and while another bootstrap or raise of this quorum is under
    ///   way.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; the raise may have happened or not. It can be repeated.
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

    /// Waits until [`shutdown`](Self::shutdown) begins, called by any clone. Code that holds a lease for as long as the
    /// program runs can then end its work and drop the lease, which `shutdown` waits for:
    /// [shutdown](crate::docs::shutdown#a-lease-for-the-life-of-the-program).
    ///
    /// It also ends when the runtime that connected is gone, or every clone and every lease. It does not keep the quorum
    /// open.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.engine.status().closing()
    }

    /// Ends this quorum for all clones, and waits until its leases are released. Make it the last line of `main`.
    ///
    /// **First drop what you hold, or let it be dropped when [`closing`](Self::closing) ends.** A lease in a struct, a
    /// `static` or a task that lives on costs the whole `shutdown_timeout`, and the lock then stays for its ttl. That is
    /// mostly longer than without this call.
    ///
    /// From then on new calls and waiters get `Closed`. It waits until held leases are dropped and their releases are
    /// confirmed, but no longer than the builder's `shutdown_timeout`. It returns the names that are still held then.
    /// Nobody renews those any more: their leases are lost (`NodesLost`), and the nodes keep them until their ttl ends.
    /// [shutdown](crate::docs::shutdown) says what happens without this call, and has a service that ends with it.
    ///
    /// A release needs a majority to confirm it. Other nodes that answer are waited for too. A node that died, cannot
    /// be reached or stalls is not, and delays this call by one node timeout at most. The log names the nodes that have
    /// not confirmed a release.
    ///
    /// A node in quarantine is told for how long this quorum has watched it (protocol §2). So short programs should
    /// call this at their end: if the runtime ends first, up to a second of watching is lost each time.
    ///
    /// # Cancel safety
    /// May be dropped: the shutdown begins with the call, and goes on in the background.
    pub fn shutdown(&self) -> impl Future<Output = Vec<String>> + Send + 'static + use<> {
        self.engine.shutdown(self.limits.shutdown_timeout)
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.nodes().iter().map(ToString::to_string).collect();
        f.debug_struct("Quorum").field("nodes", &nodes).finish()
    }
}
