//! The evidence behind an answer: each node's answer, or the reason why there is none.

use std::{fmt, sync::Arc, time::Duration};

pub(crate) mod error;
pub(crate) mod inspection;
mod summary;

use crate::{FencingToken, base::text::seconds};
pub(crate) use summary::{Alone, Missing, answered};

/// The reason why a node gave no vote. None of these is a refusal: the node may have granted the lock or not.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// There is no connection, for this reason.
    Unreachable(String),
    /// The server answers, but the library does not count it, for this reason.
    Unfit(String),
    /// The server restarted or is new, and will vote after this long.
    Quarantined(Duration),
    /// An earlier request has been unanswered for longer than the node timeout.
    Stalled,
    /// It did not answer this request within the node timeout.
    TimedOut,
    /// It had not answered when the caller's wait was over.
    WaitOver,
    /// The connection was lost before the answer came.
    ConnectionLost,
    /// It answered with an error.
    Failed(String),
    /// The server had lost its scripts; they are loaded again.
    ScriptsFlushed,
    /// The node did not admit the request: its memory is not the one that this client counts.
    NotAdmitted,
    /// Its units cannot be used for a rate limit: its round trip, of this length, is not shorter than the longest
    /// grace.
    OutOfReach(Duration),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
            Self::Unfit(why) => write!(f, "refused: {why}"),
            Self::Quarantined(left) => write!(f, "quarantined for {}", seconds(*left)),
            Self::Stalled => f.write_str("stalled: an earlier request is unanswered"),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::WaitOver => f.write_str("no answer before the wait was over"),
            Self::ConnectionLost => f.write_str("the connection was lost before the answer"),
            Self::Failed(why) => write!(f, "answered with an error: {why}"),
            Self::ScriptsFlushed => {
                f.write_str("its scripts were flushed and are being loaded again")
            }
            Self::NotAdmitted => f.write_str("its memory changed, and it must be checked again"),
            Self::OutOfReach(trip) => write!(
                f,
                "too far away for this limit: its answers take {}",
                seconds(*trip)
            ),
        }
    }
}

/// The answer of one node.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It granted the lock with this token.
    Granted(FencingToken),
    /// Somebody else holds the lock there, for this much longer unless it is renewed.
    Held(Option<Duration>),
    /// It did what was asked.
    Confirmed,
    /// The caller does not have the lock there.
    NotOurs,
    /// It votes, but its answer was not needed: the node was not asked, or not waited for.
    NotWaitedFor,
    /// It gave no vote.
    None(Silence),
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(token) => write!(f, "granted with token {token}"),
            Self::Held(left) => held_by(f, "another", *left),
            Self::Confirmed => f.write_str("confirmed"),
            Self::NotOurs => f.write_str("this client does not have it there"),
            Self::NotWaitedFor => f.write_str("its answer was not needed"),
            Self::None(silence) => silence.fmt(f),
        }
    }
}

fn held_by(f: &mut fmt::Formatter<'_>, holder: &str, left: Option<Duration>) -> fmt::Result {
    match left {
        Some(left) => write!(f, "held by {holder} for {}", seconds(left)),
        None => write!(f, "held by {holder}, with no end"),
    }
}

/// One node's part of a [`Report`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// The node's address: host:port, or the path of its socket. It never has the password.
    pub node: Arc<str>,
    /// Its answer.
    pub vote: Vote,
    /// With [`Vote::Held`], the holder's label there. `None` if the lock's key holds a text that this library did not
    /// write.
    pub holder: Option<Arc<str>>,
    /// With [`Vote::Held`] for several names: the name that is held there for longest.
    pub name: Option<Arc<str>>,
}

/// `10.0.0.1:6379: held by web-1:77 for 3.2 s`, or for several names `10.0.0.1:6379: "b" held by web-1:77 for 3.2 s`.
impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.node)?;
        if let Some(name) = &self.name {
            write!(f, "{name:?} ")?;
        }
        match (&self.vote, &self.holder) {
            (Vote::Held(left), Some(holder)) => held_by(f, holder, *left),
            (vote, _) => vote.fmt(f),
        }
    }
}

/// The answers of all nodes to one operation. Its `Display` and its `Debug` name every node and its reason.
#[derive(Clone, PartialEq, Eq)]
pub struct Report(Arc<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    subject: String,
    needed: usize,
    nodes: Vec<NodeReport>,
    retry_after: Option<Duration>,
    /// The number of slots, for a semaphore.
    slots: Option<u32>,
    /// Consul was asked, not masters.
    of_consul: bool,
    /// Units of a rate limit were asked for.
    of_limiter: bool,
    /// The nodes are known to have been in use, so they are not new.
    in_use: bool,
}

impl Report {
    pub(crate) fn new(
        subject: impl Into<String>,
        needed: usize,
        nodes: Vec<NodeReport>,
        retry_after: Option<Duration>,
    ) -> Self {
        Self(Arc::new(Inner {
            subject: subject.into(),
            needed,
            nodes,
            retry_after,
            slots: None,
            of_consul: false,
            of_limiter: false,
            in_use: false,
        }))
    }

    /// The same report, about a Consul cluster.
    #[cfg(feature = "consul")]
    pub(crate) fn of_consul(mut self) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.of_consul = true;
        }
        self
    }

    /// The same report, about the rate limiter of this name.
    pub(crate) fn of_limiter(&self, name: &str) -> Self {
        Self(Arc::new(Inner {
            subject: name.into(),
            of_limiter: true,
            ..Inner::clone(&self.0)
        }))
    }

    /// Returns true if Consul was asked.
    pub(crate) fn is_of_consul(&self) -> bool {
        self.0.of_consul
    }

    /// Returns true if the report is about a rate limiter.
    pub(crate) fn is_of_limiter(&self) -> bool {
        self.0.of_limiter
    }

    /// The same report, about a semaphore with this many slots.
    pub(crate) fn of_slots(&self, slots: u32) -> Self {
        Self(Arc::new(Inner {
            slots: Some(slots),
            ..Inner::clone(&self.0)
        }))
    }

    /// The number of slots, for a semaphore.
    pub(crate) fn slots(&self) -> Option<u32> {
        self.0.slots
    }

    /// The subject: the lock's name, or the operation.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// How many nodes make a majority.
    pub fn needed(&self) -> usize {
        self.0.needed
    }

    /// Every node, in the order in which they were given to the builder.
    pub fn nodes(&self) -> &[NodeReport] {
        &self.0.nodes
    }

    /// The label that most of the refusing nodes name; the first one if labels tie. While several clients contend, it
    /// may be that none of them holds the lock yet.
    pub fn holder(&self) -> Option<&str> {
        let named = || {
            self.nodes()
                .iter()
                .filter_map(|node| node.holder.as_deref())
        };
        let votes = |label: &str| named().filter(|other| *other == label).count();
        // `max_by_key` takes the last of equals.
        named().rev().max_by_key(|label| votes(label))
    }

    /// For several names: the name that [`holder`](Self::holder) holds for longest, as most of the nodes that name this
    /// holder say.
    pub(crate) fn held_name(&self) -> Option<&str> {
        let holder = self.holder();
        let by_holder = self
            .nodes()
            .iter()
            .filter(|node| node.holder.as_deref() == holder);
        let named: Vec<_> = by_holder.filter_map(|node| node.name.as_deref()).collect();
        let votes = |name: &&&str| named.iter().filter(|other| other == name).count();
        named.iter().rev().max_by_key(votes).copied()
    }

    /// The same report, with what is known about these nodes besides.
    pub(crate) fn in_use(mut self, in_use: bool) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.in_use = in_use;
        }
        self
    }

    /// Returns true if the nodes may be new. A node that votes has held locks, so the others have restarted. Every
    /// answer but silence shows that a node votes, `Confirmed` and `NotWaitedFor` too.
    pub(crate) fn may_be_new(&self) -> bool {
        let votes = |node: &NodeReport| !matches!(node.vote, Vote::None(_));
        !self.0.in_use && !self.nodes().iter().any(votes)
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, node) in self.nodes().iter().enumerate() {
            let comma = if i == 0 { "" } else { "; " };
            write!(f, "{comma}{node}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Report({:?}: {self})", self.subject())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_the_one_that_most_nodes_name() {
        let holder = |named: &[Option<&str>]| {
            let nodes = named.iter().map(|holder| NodeReport {
                node: "n".into(),
                vote: Vote::Held(None),
                holder: holder.map(Arc::from),
                name: None,
            });
            let report = Report::new("a", 2, nodes.collect(), None);
            report.holder().map(str::to_owned)
        };
        assert_eq!(holder(&[None, None]), None);
        let most = [Some("a"), None, Some("b"), Some("c"), Some("b")];
        assert_eq!(holder(&most).as_deref(), Some("b"));
        let equals = [Some("b"), Some("a"), Some("a"), Some("b")];
        assert_eq!(holder(&equals).as_deref(), Some("b"), "who comes first");
    }

    #[test]
    fn a_report_tells_every_node_in_debug_too() {
        let node = NodeReport {
            node: "n1".into(),
            vote: Vote::Held(None),
            holder: Some("web".into()),
            name: None,
        };
        let report = Report::new("a\n", 1, vec![node], None);
        assert_eq!(report.to_string(), "n1: held by web, with no end");
        let debug = r#"Report("a\n": n1: held by web, with no end)"#;
        assert_eq!(format!("{report:?}"), debug);
    }
}
