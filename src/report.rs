//! The evidence behind an answer: what every node said, or why it said nothing.

use std::{fmt, sync::Arc, time::Duration};

use crate::FencingToken;

/// Why a node gave no vote. None of these is a refusal: the node may hold the lock or not.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// There is no connection, for this reason.
    Unreachable(String),
    /// The server answers, and the library will not count it, for this reason.
    Refused(String),
    /// The server restarted or is new, and may vote after this long (protocol §2).
    Quarantined(Duration),
    /// An earlier request has been unanswered for longer than the node timeout.
    Stalled,
    /// It did not answer this request within the node timeout.
    TimedOut,
    /// The connection was lost before the answer came.
    ConnectionLost,
    /// It answered with an error.
    Failed(String),
    /// Its scripts were flushed; they are given to it again.
    ScriptsFlushed,
    /// It did not admit the request: its memory is not the one that was counted (protocol §2).
    NotAdmitted,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Quarantined(left) => write!(f, "quarantined for {}", seconds(*left)),
            Self::Stalled => f.write_str("stalled: an earlier request is unanswered"),
            Self::TimedOut => f.write_str("no answer within the node timeout"),
            Self::ConnectionLost => f.write_str("the connection was lost before the answer"),
            Self::Failed(why) => write!(f, "answered with an error: {why}"),
            Self::ScriptsFlushed => f.write_str("its scripts were flushed, they are loaded again"),
            Self::NotAdmitted => f.write_str("its memory changed, it must be met again"),
        }
    }
}

/// What one node answered.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It granted the lock with this token.
    Granted(FencingToken),
    /// Somebody else holds it there, for so much longer unless it is renewed.
    Held(Option<Duration>),
    /// It did what was asked.
    Confirmed,
    /// The lock is not ours there.
    NotOurs,
    /// It votes, and its answer was not needed to decide: it was not asked, or not waited for.
    NotWaitedFor,
    /// It gave no vote.
    None(Silence),
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(token) => write!(f, "granted with token {token}"),
            Self::Held(Some(left)) => write!(f, "held by another for {}", seconds(*left)),
            Self::Held(None) => f.write_str("held by another, with no end"),
            Self::Confirmed => f.write_str("confirmed"),
            Self::NotOurs => f.write_str("not ours there"),
            Self::NotWaitedFor => f.write_str("votes, its answer was not needed"),
            Self::None(silence) => silence.fmt(f),
        }
    }
}

/// One node's part of a [`Report`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// host:port, or the path of its socket; never the password.
    pub node: Arc<str>,
    /// What it answered.
    pub vote: Vote,
}

/// What every node answered to one operation. Its `Display` names every node and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    subject: String,
    needed: usize,
    nodes: Vec<NodeReport>,
    retry_after: Option<Duration>,
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
        }))
    }

    /// What it is about: the lock's name, or the operation.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// How many nodes make a majority.
    pub fn needed(&self) -> usize {
        self.0.needed
    }

    /// Every node, in the order they were given to the builder.
    pub fn nodes(&self) -> &[NodeReport] {
        &self.0.nodes
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, node) in self.nodes().iter().enumerate() {
            let comma = if i == 0 { "" } else { "; " };
            write!(f, "{comma}{}: {}", node.node, node.vote)?;
        }
        Ok(())
    }
}

/// A duration as people read it: `3.2 s`, `250 ms`.
pub(crate) fn seconds(d: Duration) -> String {
    if d < Duration::from_secs(1) {
        return format!("{} ms", d.as_millis());
    }
    let tenths = d.as_millis() / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}
