//! Assembles a quorum: its nodes, the engine that serves it, and the engine's task.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "tls-rustls")]
use crate::node::redis::TlsSettings;
use crate::{
    Error, MemoryNode, Quorum,
    base::{
        clock::{Alarm, Clock, SystemAlarm, SystemClock, TokioAlarm, TokioClock},
        logs,
        owner::{Chance, Label},
        quota::{Masters, SLOTS_UP_TO},
        rules::Rules,
        runtime,
    },
    engine::{Driver, Engine, Status, Task},
    node::{
        Node,
        admission::record::{list_word, ranks},
        redis::{Keys, Provider, RedisNode, Target},
        wire::keys,
    },
    quorum::{
        Limits,
        settings::{Options, Roster},
    },
};

impl Quorum {
    /// Makes a quorum of `n` masters inside this process (at least 1), which vote at once: for demos, doctests and
    /// tests. The masters follow tokio's clock, so a test that pauses it moves ttl, renewal and validity together.
    ///
    /// Call it within a tokio runtime: without one every call answers `RuntimeGone`.
    /// [Testing](crate::docs::testing#your-own-tests) says how to test a program with it.
    pub fn in_memory(n: usize) -> Self {
        in_memory(n)
    }
}

/// A node as it was given to the builder.
pub(crate) enum Given {
    Target(Target),
    #[cfg(feature = "unstable-node")]
    Custom(Arc<dyn Node>),
}

impl Given {
    /// Sets up TLS to a server that uses it. Other nodes are left as they are.
    #[cfg(feature = "tls-rustls")]
    pub(crate) fn secure(&mut self, settings: &TlsSettings) {
        if let Self::Target(Target::Server(address)) = self {
            address.secure(settings);
        }
    }

    /// The address that goes into the list word.
    fn address(&self) -> String {
        match self {
            Self::Target(Target::Server(address)) => address.with_database(),
            Self::Target(Target::Memory(node)) => node.id().to_string(),
            #[cfg(feature = "unstable-node")]
            Self::Custom(node) => node.id().to_owned(),
        }
    }

    fn in_memory(&self) -> Option<&MemoryNode> {
        match self {
            Self::Target(Target::Memory(node)) => Some(node),
            _ => None,
        }
    }

    fn into_node(
        self,
        keys: &Arc<Keys>,
        credentials: Option<&Provider>,
        dial_timeout: Duration,
    ) -> Arc<dyn Node> {
        match self {
            Self::Target(Target::Server(address)) => Arc::new(RedisNode::new(
                address,
                Arc::clone(keys),
                credentials.cloned(),
                dial_timeout,
            )),
            Self::Target(Target::Memory(node)) => Arc::new(node),
            #[cfg(feature = "unstable-node")]
            Self::Custom(node) => node,
        }
    }

    /// The address of a server, as users see it.
    #[cfg(test)]
    pub(crate) fn id(&self) -> Arc<str> {
        match self {
            Self::Target(Target::Server(address)) => address.id().into(),
            _ => panic!("not the address of a server"),
        }
    }
}

/// Assembles the nodes and starts to dial them. If all masters are in this process and new, they vote at once.
///
/// # Errors
/// `Invalid` if an address is given twice, or without a runtime.
pub(crate) fn start(
    given: Vec<Given>,
    credentials: Option<&Provider>,
    options: Options,
    rules: Rules,
    label: Label,
) -> Result<Quorum, Error> {
    let in_memory: Vec<MemoryNode> = given.iter().filter_map(Given::in_memory).cloned().collect();
    let embedded = in_memory.len() == given.len();
    let addresses: Vec<String> = given.iter().map(Given::address).collect();
    let keys = Arc::new(Keys::new(options.prefix()));
    let node = |given: Given| given.into_node(&keys, credentials, options.dial_timeout());
    let nodes: Vec<Arc<dyn Node>> = given.into_iter().map(node).collect();
    check_unique(&nodes)?;
    if nodes.len().is_multiple_of(2) {
        logs::warn!(
            masters = nodes.len(),
            "an even number of masters survives no more failures than one fewer would"
        );
    }
    runtime::current()?;
    if options.throwaway() {
        logs::warn!(
            "throwaway: the servers vote at once, also after a restart, and a lock may get two holders"
        );
    }
    let list = list_word(&addresses);
    if embedded && in_memory.iter().all(MemoryNode::is_new) {
        admit(&in_memory, &options, &list);
    }
    let roster = roster(&nodes, list, &addresses);
    let timing = match embedded {
        true => Timing::of_tokio(),
        false => Timing::of_the_system()?,
    };
    Ok(run(options, rules, label, roster, nodes, timing))
}

/// Lets the nodes vote. `list` is the word for their addresses; the fleet's name, if it has one, replaces it.
fn admit(nodes: &[MemoryNode], options: &Options, list: &str) {
    let list = options.word().unwrap_or(list);
    for node in nodes {
        node.admit(nodes.len() as u64, list, options.terms());
    }
}

/// A quorum of `n` masters in this process, which vote already.
pub(crate) fn in_memory(n: usize) -> Quorum {
    let options = Options::default();
    let nodes: Vec<MemoryNode> = (0..n.max(1)).map(|_| MemoryNode::new()).collect();
    let addresses: Vec<String> = nodes.iter().map(|node| node.id().to_string()).collect();
    let list = list_word(&addresses);
    admit(&nodes, &options, &list);
    let nodes = nodes.into_iter();
    let nodes: Vec<_> = nodes.map(|node| Arc::new(node) as Arc<dyn Node>).collect();
    let roster = roster(&nodes, list, &addresses);
    let label = Label::of_this_process();
    let timing = Timing::of_tokio();
    run(options, Rules::ALL, label, roster, nodes, timing)
}

fn roster(nodes: &[Arc<dyn Node>], list: String, addresses: &[String]) -> Roster {
    Roster {
        nodes: nodes.iter().map(|node| node.id().into()).collect(),
        list,
        ranks: ranks(addresses),
    }
}

fn check_unique(nodes: &[Arc<dyn Node>]) -> Result<(), Error> {
    let mut ids = nodes.iter().map(|node| node.id()).enumerate();
    let twice = ids.find(|(i, id)| nodes.iter().take(*i).any(|node| node.id() == *id));
    match twice {
        None => Ok(()),
        Some((_, id)) => Err(Error::Invalid(format!(
            "{id} is given twice: one server has one vote"
        ))),
    }
}

/// The clock of a quorum, and the alarm that wakes its engine.
struct Timing {
    clock: Arc<dyn Clock>,
    alarm: Box<dyn Alarm>,
}

impl Timing {
    /// Follows tokio's clock, which tests pause.
    fn of_tokio() -> Self {
        Self {
            clock: Arc::new(TokioClock::new()),
            alarm: Box::new(TokioAlarm::default()),
        }
    }

    /// # Errors
    /// `System`.
    fn of_the_system() -> Result<Self, Error> {
        let alarm = SystemAlarm::new().map_err(|error| {
            Error::System(format!(
                "no timer could be made: {error}: if too many files are open, raise the limit (ulimit -n)"
            ))
        })?;
        Ok(Self {
            clock: Arc::new(SystemClock),
            alarm: Box::new(alarm),
        })
    }
}

/// Starts the engine on the current runtime. Without a runtime the engine is dropped at once, and with it the other end
/// of every call.
fn run(
    options: Options,
    rules: Rules,
    label: Label,
    roster: Roster,
    nodes: Vec<Arc<dyn Node>>,
    Timing { clock, alarm }: Timing,
) -> Quorum {
    let (connect_timeout, shutdown_timeout) =
        (options.connect_timeout(), options.shutdown_timeout());
    // Without random bits there is no channel. No waiter is called then, so waiters ask from time to time.
    let bits = Chance::System.bits();
    let channel = bits.map_or_else(
        |_| String::new(),
        |bits| keys::channel(options.prefix(), bits),
    );
    let settings = options.settle(rules, label, roster, channel);
    let limits = Limits {
        fleet: settings.list.as_str().into(),
        max_ttl: settings.terms.max_ttl,
        masters: Masters {
            total: settings.total(),
            are_ranked: settings.ranks.is_some(),
            max_ttl: settings.terms.max_ttl,
            slots_up_to: SLOTS_UP_TO,
        },
        connect_timeout,
        shutdown_timeout,
    };
    let status = Arc::new(Status::new(Arc::clone(&clock), &settings.nodes));
    let (engine, events) = Engine::new(status, Arc::clone(&clock));
    let core = engine.core(Arc::new(settings), Chance::System);
    match runtime::current() {
        Ok(runtime) => {
            let flavor = runtime.runtime_flavor();
            let driver = Driver::new(core, events, nodes, alarm, clock, flavor);
            drop(runtime.spawn(Task::new(driver, engine.after_runtime())));
        }
        Err(_) => engine.status().begin_to_close(),
    }
    Quorum::new(engine, limits)
}
