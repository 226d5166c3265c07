//! Settings of a quorum, checked before anything is dialled.

use std::{fmt, io, sync::Arc, time::Duration};

#[cfg(feature = "tls-rustls")]
use crate::node::redis::Authorities;
use crate::{
    Error, Quorum,
    clock::{Alarm, Clock, SystemAlarm, SystemClock, TokioAlarm, TokioClock},
    engine::{Driver, Engine, Status, Task},
    logs,
    name::check_word,
    node::{
        Node,
        admission::{
            Terms,
            record::{LONGEST, list_word},
        },
        redis::{IntoNode, Keys, RedisNode, Target},
    },
    owner::{Chance, Label},
    rules::Rules,
    settings::Settings,
};

const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
const SHORTEST_MAX_TTL: Duration = Duration::from_millis(100);

/// Builds a [`Quorum`]. Every setting has a default but the nodes.
///
/// ```no_run
/// # async fn example() -> Result<(), quorate::Error> {
/// use std::time::Duration;
/// let quorum = quorate::Quorum::builder()
///     .nodes(["redis://10.0.0.1:6379", "redis://10.0.1.1:6379", "redis://10.0.2.1:6379"])
///     .node_timeout(Duration::from_millis(200))
///     .label("payouts-7")
///     .connect()
///     .await?;
/// # drop(quorum); Ok(()) }
/// ```
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    nodes: Vec<Result<Given, Error>>,
    #[cfg(feature = "tls-rustls")]
    authorities: Option<Result<Authorities, Error>>,
    node_timeout: Duration,
    connect_timeout: Duration,
    dial_timeout: Duration,
    shutdown_timeout: Duration,
    max_ttl: Duration,
    margin: Duration,
    prefix: String,
    fleet: Option<String>,
    label: Option<String>,
    allow_eviction: bool,
    rules: Rules,
}

enum Given {
    Target(Target),
    #[cfg(feature = "unstable-node")]
    Custom(Arc<dyn Node>),
}

/// What a quorum remembers of its settings.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) fleet: Arc<str>,
    pub(crate) max_ttl: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) shutdown_timeout: Duration,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            #[cfg(feature = "tls-rustls")]
            authorities: None,
            node_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(5),
            dial_timeout: Duration::from_secs(3),
            shutdown_timeout: Duration::from_secs(5),
            max_ttl: Duration::from_secs(30),
            margin: Duration::from_secs(5),
            prefix: "quorate".into(),
            fleet: None,
            label: None,
            allow_eviction: false,
            rules: Rules::ALL,
        }
    }

    /// Adds one master: a URL, a `redis::ConnectionInfo`, a `redis::Client` (whose address, TLS and
    /// credentials are taken; the connection is always quorate's own), or a [`MemoryNode`](crate::MemoryNode).
    /// Every client has to list the same masters.
    pub fn node(mut self, node: impl IntoNode) -> Self {
        self.nodes.push(node.into_node().map(Given::Target));
        self
    }

    /// Adds several masters.
    pub fn nodes<T: IntoNode>(mut self, nodes: impl IntoIterator<Item = T>) -> Self {
        self.nodes.extend(
            nodes
                .into_iter()
                .map(|node| node.into_node().map(Given::Target)),
        );
        self
    }

    /// Adds a master of another kind. Outside semver.
    #[cfg(feature = "unstable-node")]
    pub fn custom_node(mut self, node: impl Node + 'static) -> Self {
        self.nodes.push(Ok(Given::Custom(Arc::new(node))));
        self
    }

    /// Trusts the certificate authorities in `pem` for the `rediss://` nodes of this quorum, **in place of** the
    /// system's, of `SSL_CERT_FILE` and of `SSL_CERT_DIR`, which are not looked at then. So a private CA is
    /// trusted by these connections alone, and nobody else is. (The `redis` crate's `TlsCertificates::root_cert` does
    /// the same.) Default: the system's.
    ///
    /// `pem` is one or more certificates, such as the text of a `ca.crt`; a key that stands among them is left out.
    /// Called again, the last one counts. To trust the system's too, put its certificates in. It concerns TLS
    /// only: a node of `redis://` stays in the clear, and one of `rediss://…#insecure` trusts anybody. A bad one
    /// makes [`connect`](Self::connect) fail with `Invalid`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let quorum = quorate::Quorum::builder()
    ///     .nodes(["rediss://10.0.0.1", "rediss://10.0.1.1", "rediss://10.0.2.1"])
    ///     .ca_certificates(std::fs::read("/etc/redis/ca.crt")?)
    ///     .connect()
    ///     .await?;
    /// # drop(quorum); Ok(()) }
    /// ```
    #[cfg(feature = "tls-rustls")]
    pub fn ca_certificates(mut self, pem: impl AsRef<[u8]>) -> Self {
        let authorities = Authorities::of(pem.as_ref());
        self.authorities =
            Some(authorities.map_err(|why| Error::Invalid(format!("ca_certificates: {why}"))));
        self
    }

    /// How long to wait for one node's answer. Default 500 ms. A few times the round trip to the
    /// farthest node is right: it bounds what a dead majority costs.
    pub fn node_timeout(mut self, d: Duration) -> Self {
        self.node_timeout = d;
        self
    }

    /// How long [`connect`](Self::connect) waits for a majority. Default 5 s.
    pub fn connect_timeout(mut self, d: Duration) -> Self {
        self.connect_timeout = d;
        self
    }

    /// How long one connection may take, TLS and authentication included. Default 3 s.
    pub fn dial_timeout(mut self, d: Duration) -> Self {
        self.dial_timeout = d;
        self
    }

    /// How long [`Quorum::shutdown`] waits for leases to be dropped. Default 5 s.
    pub fn shutdown_timeout(mut self, d: Duration) -> Self {
        self.shutdown_timeout = d;
        self
    }

    /// The longest lease of the whole deployment, lock-delay included; at most 24 h. Default 30 s.
    ///
    /// A master that restarted is kept out for a little longer than this (protocol §2), so set the
    /// same in every client. A client that asks for more than the fleet has is refused, one that asks for
    /// less works. [`Quorum::raise_terms`] raises it; it is not lowered while the fleet runs.
    pub fn max_ttl(mut self, d: Duration) -> Self {
        self.max_ttl = d;
        self
    }

    /// M: added to the time that a restarted master is kept out; at most 24 h. Default 5 s. Set the
    /// same in every client: it is agreed on, and raised, as [`max_ttl`](Self::max_ttl) is.
    pub fn restart_margin(mut self, d: Duration) -> Self {
        self.margin = d;
        self
    }

    /// What every key on the nodes begins with: 1 to 64 characters of `A-Z a-z 0-9 . _ : -`.
    /// Default `quorate`. Deployments with different prefixes share nothing.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The word that all clients of these masters share: 1 to 64 characters of `A-Z a-z 0-9 . _ : -`.
    /// Default: 8 hex digits that follow from the addresses as they were given, in any order.
    ///
    /// Clients whose words differ are clients of different fleets, and a master works with one of
    /// them only (protocol §2): that is how a client with another list is noticed. So name the fleet
    /// where clients reach the same masters by different addresses.
    pub fn fleet(mut self, name: impl Into<String>) -> Self {
        self.fleet = Some(name.into());
        self
    }

    /// Who holds, for operators: 1 to 64 characters of `A-Z a-z 0-9 . _ : -`. Default `host:pid`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Counts servers whose `maxmemory-policy` may evict keys. A lock that is evicted is held by
    /// two: only for servers that never reach `maxmemory`.
    pub fn allow_eviction(mut self) -> Self {
        self.allow_eviction = true;
        self
    }

    /// Switches rules of the protocol off, to see that a test finds what they stand against. What
    /// a client decides follows them on every kind of node, what is in the scripts does not.
    #[cfg(feature = "test-util")]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Dials all nodes at once and is ready when a majority answered; the rest is dialled on.
    ///
    /// # Errors
    /// - `Invalid` for bad settings, and when two addresses are one server.
    /// - `NoQuorum` when no majority answered within `connect_timeout`; its report names every node and why.
    ///
    /// # Cancel safety
    /// Dropping it drops all connections.
    pub async fn connect(self) -> Result<Quorum, Error> {
        let quorum = self.connect_lazy()?;
        quorum.ready().await?;
        Ok(quorum)
    }

    /// Starts to dial and returns at once: only bad settings fail. A lock that is taken before all nodes are met
    /// is held by those that were; [`Quorum::ready`] waits a little for the others too.
    ///
    /// It has to be called within a tokio runtime with I/O and time enabled, as the background work runs
    /// there; without a runtime every call answers `Closed`.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn connect_lazy(self) -> Result<Quorum, Error> {
        let settings_of = self.check()?;
        self.check_nodes()?;
        #[cfg(feature = "tls-rustls")]
        let authorities = self.authorities.clone().transpose()?;
        let Self {
            nodes,
            dial_timeout,
            prefix,
            connect_timeout,
            shutdown_timeout,
            ..
        } = self;
        let keys = Arc::new(Keys::new(&prefix));
        let mut embedded = true;
        let mut fleet: Vec<Arc<dyn Node>> = Vec::with_capacity(nodes.len());
        let mut addresses = Vec::with_capacity(nodes.len());
        for given in nodes {
            fleet.push(match given? {
                #[allow(unused_mut)] // without TLS
                Given::Target(Target::Server(mut address)) => {
                    embedded = false;
                    #[cfg(feature = "tls-rustls")]
                    if let Some(authorities) = &authorities {
                        address.trust(authorities);
                    }
                    addresses.push(address.with_database());
                    Arc::new(RedisNode::new(address, Arc::clone(&keys), dial_timeout))
                }
                Given::Target(Target::Memory(node)) => {
                    addresses.push(node.id().to_string());
                    Arc::new(node)
                }
                #[cfg(feature = "unstable-node")]
                Given::Custom(node) => {
                    embedded = false;
                    addresses.push(node.id().to_owned());
                    node
                }
            });
        }
        let ids = fleet.iter().map(|node| node.id().into()).collect();
        let settings = settings_of(ids, list_word(&addresses))?;
        if settings.total() % 2 == 0 {
            logs::warn!(
                masters = settings.total(),
                "an even number of masters survives no more failures than one fewer would"
            );
        }
        let limits = Limits {
            fleet: settings.list.as_str().into(),
            max_ttl: settings.terms.max_ttl,
            connect_timeout,
            shutdown_timeout,
        };
        Ok(start(settings, fleet, embedded, limits))
    }

    /// Whether each node can be understood.
    pub(crate) fn check_nodes(&self) -> Result<(), Error> {
        let bad = |given: &Result<Given, Error>| given.as_ref().err().cloned();
        let found = self.nodes.iter().map(bad).enumerate();
        match found.filter_map(|(i, error)| Some((i, error?))).next() {
            None => Ok(()),
            Some((i, error)) => Err(in_the_list(error, i + 1, self.nodes.len())),
        }
    }

    /// What was set.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> String {
        let id = |given: &Result<Given, Error>| match given {
            Ok(Given::Target(Target::Server(address))) => address.id().into(),
            _ => panic!("not the address of a server"),
        };
        let settings_of = self.check().unwrap();
        let settings = settings_of(self.nodes.iter().map(id).collect(), "list".into()).unwrap();
        format!("{settings:?} connect_timeout: {:?}", self.connect_timeout)
    }

    /// Checks what can be checked without the nodes' names.
    #[allow(clippy::type_complexity)] // what is returned is called once, in here
    fn check(
        &self,
    ) -> Result<impl FnOnce(Vec<Arc<str>>, String) -> Result<Settings, Error> + use<>, Error> {
        let invalid = |why: String| Err(Error::Invalid(why));
        if self.nodes.is_empty() {
            return invalid("no node was given: a quorum needs at least one master".into());
        }
        check_word("key prefix", &self.prefix)?;
        if let Some(word) = &self.fleet {
            check_word("fleet name", word)?;
        }
        check_max_ttl(self.max_ttl)?;
        check_margin(self.margin)?;
        check_timeout("node_timeout", self.node_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        check_timeout("dial_timeout", self.dial_timeout)?;
        let label = match &self.label {
            Some(label) => Label::new(label)?,
            None => Label::of_this_process(),
        };
        let terms = Terms::new(self.max_ttl, self.margin);
        let (prefix, fleet) = (self.prefix.clone(), self.fleet.clone());
        let (node_timeout, allow_eviction, rules) =
            (self.node_timeout, self.allow_eviction, self.rules);
        Ok(move |nodes: Vec<Arc<str>>, list: String| {
            if let Some(twice) = nodes
                .iter()
                .enumerate()
                .find(|(i, n)| nodes.iter().take(*i).any(|m| m == *n))
            {
                return Err(Error::Invalid(format!(
                    "{} is given twice: one server is one vote",
                    twice.1
                )));
            }
            Ok(Settings {
                nodes,
                list: fleet.unwrap_or(list),
                prefix,
                node_timeout,
                terms,
                label,
                allow_eviction,
                rules,
            })
        })
    }
}

pub(crate) fn check_max_ttl(d: Duration) -> Result<(), Error> {
    match (SHORTEST_MAX_TTL..=LONGEST).contains(&d) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "max_ttl {d:?} is not between {SHORTEST_MAX_TTL:?} and 24 h"
        ))),
    }
}

pub(crate) fn check_margin(d: Duration) -> Result<(), Error> {
    match d <= LONGEST {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "restart_margin {d:?} is longer than 24 h"
        ))),
    }
}

pub(crate) fn check_timeout(what: &str, d: Duration) -> Result<(), Error> {
    if d.is_zero() {
        return Err(Error::Invalid(format!(
            "{what} is zero: no node can answer in no time"
        )));
    }
    if d > LONGEST_TIMEOUT {
        return Err(Error::Invalid(format!(
            "{what} {d:?} is longer than an hour"
        )));
    }
    Ok(())
}

/// Of a bad URL little is shown, as it may hold a password: so it is counted.
fn in_the_list(error: Error, number: usize, total: usize) -> Error {
    match error {
        Error::Invalid(why) if total > 1 => {
            Error::Invalid(format!("node {number} of {total}: {why}"))
        }
        error => error,
    }
}

/// `in_memory`: n masters in this process that vote already.
pub(crate) fn in_memory(n: usize) -> Quorum {
    let builder = Builder::new();
    let nodes: Vec<crate::MemoryNode> = (0..n.max(1)).map(|_| crate::MemoryNode::new()).collect();
    let ids: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(node.id())).collect();
    let addresses: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let (terms, list) = (
        Terms::new(builder.max_ttl, builder.margin),
        list_word(&addresses),
    );
    for node in &nodes {
        node.admit(nodes.len() as u64, &list, terms);
    }
    let settings = Settings {
        nodes: ids,
        list,
        prefix: builder.prefix,
        node_timeout: builder.node_timeout,
        terms,
        label: Label::of_this_process(),
        allow_eviction: false,
        rules: Rules::ALL,
    };
    let limits = Limits {
        fleet: settings.list.as_str().into(),
        max_ttl: builder.max_ttl,
        connect_timeout: builder.connect_timeout,
        shutdown_timeout: builder.shutdown_timeout,
    };
    let fleet = nodes
        .into_iter()
        .map(|node| Arc::new(node) as Arc<dyn Node>)
        .collect();
    start(settings, fleet, true, limits)
}

/// Starts the engine on the current runtime. Where there is none the engine is dropped at once, and
/// with it the other end of every call: `Closed`.
fn start(settings: Settings, fleet: Vec<Arc<dyn Node>>, embedded: bool, limits: Limits) -> Quorum {
    let clock: Arc<dyn Clock> = match embedded {
        true => Arc::new(TokioClock::new()),
        false => Arc::new(SystemClock),
    };
    let status = Arc::new(Status::new(Arc::clone(&clock), &settings.nodes));
    let (engine, events) = Engine::new(status, Arc::clone(&clock));
    let core = engine.core(Arc::new(settings), Chance::System);
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        match alarm(embedded) {
            Ok(alarm) => {
                let driver = Driver::new(core, events, fleet, alarm, clock);
                drop(runtime.spawn(Task::new(driver, engine.remains())));
            }
            Err(error) => {
                logs::error!(
                    reason = error.to_string(),
                    "no timer could be made: the quorum is closed"
                );
            }
        }
    }
    Quorum::new(engine, limits)
}

fn alarm(embedded: bool) -> io::Result<Box<dyn Alarm>> {
    Ok(match embedded {
        true => Box::new(TokioAlarm::new()?),
        false => Box::new(SystemAlarm::new()?),
    })
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}
