//! The current state of a node, for operators and for reports.

use std::{fmt, mem, sync::Arc, time::Duration};

use crate::{Silence, base::text::seconds};

/// One node's state.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It is being reached for the first time.
    Connecting,
    /// It votes.
    Voting,
    /// It answers, and may vote after this time: it has restarted, or it is new.
    Quarantined(Duration),
    /// It has not answered a request for longer than the node timeout.
    Stalled(Duration),
    /// It answers but is not counted, and somebody must act. The text gives the reason and the remedy.
    Refused(String),
    /// It answers but refuses writes: its memory is full, its last save failed, or it lacks replicas. It grants no
    /// lock, so it does not count as a voting node. Locks that are held on it are renewed and freed, if it permits
    /// that. The text begins with the server's own code (`OOM`, `MISCONF`, `NOREPLICAS`) and says what to do. Once the
    /// server takes writes again, the node comes back by itself within about a second.
    RefusesWrites(String),
    /// There has been no connection for this long, for this reason.
    Unreachable(Duration, String),
}

impl NodeState {
    /// The reason why a node in this state gives no vote. `None` if it votes.
    pub(crate) fn silence(&self) -> Option<Silence> {
        Some(match self {
            Self::Voting => return None,
            Self::Connecting => Silence::Unreachable("still connecting".into()),
            Self::Quarantined(left) => Silence::Quarantined(*left),
            Self::Stalled(_) => Silence::Stalled,
            Self::Refused(why) | Self::RefusesWrites(why) => Silence::Unfit(why.clone()),
            Self::Unreachable(_, why) => Silence::Unreachable(why.clone()),
        })
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Voting => f.write_str("voting"),
            Self::Quarantined(left) => write!(f, "quarantined for {}", seconds(*left)),
            Self::Stalled(since) => write!(f, "stalled for {}", seconds(*since)),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::RefusesWrites(why) => write!(f, "refuses writes: {why}"),
            Self::Unreachable(since, why) => {
                write!(f, "unreachable for {}: {why}", seconds(*since))
            }
        }
    }
}

/// A node and its state. `Display`: `10.0.0.1:6379: voting`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// host:port, or the path of its socket. It never contains the password.
    pub node: Arc<str>,
    /// Its state.
    pub state: NodeState,
    /// Anything else that an operator should know, such as a command that the server does not permit and that locks do
    /// not need.
    pub note: Option<String>,
    /// True if the node's record says that the fleet has been in use. False if that is not known.
    pub used: bool,
    /// How long the node takes to answer, as measured from here. It is the smoothed round trip of RFC 6298, in which
    /// the last answer counts for an eighth. While locks are taken it is a few seconds old at most. `None` without a
    /// connection, and before the first answer.
    pub round_trip: Option<Duration>,
    /// The longest interval of a rate limit for which this node gives out units now, at most 24 h. A node that
    /// restarted has to be watched for 1.11 times the interval first. So it may vote on locks and still give no units
    /// of a limit per hour. Zero while it does not vote.
    pub limits_up_to: Duration,
}

impl NodeStatus {
    /// Returns true if this differs from `before` in more than a duration: in the kind of state, the text of a refusal
    /// or the note. A new reason why a node cannot be reached is not news.
    pub(crate) fn is_news(&self, before: &Self) -> bool {
        let same_state = match (&self.state, &before.state) {
            (NodeState::Refused(why), NodeState::Refused(before))
            | (NodeState::RefusesWrites(why), NodeState::RefusesWrites(before)) => why == before,
            (state, before) => mem::discriminant(state) == mem::discriminant(before),
        };
        !same_state || self.note != before.note
    }
}

impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.state)?;
        match &self.note {
            Some(note) => write!(f, " ({note})"),
            None => Ok(()),
        }
    }
}

/// Says if locks can be taken, for a readiness probe.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// let quorum = quorate::Quorum::in_memory(3);
/// quorum.ready().await?;
/// let health = quorum.health();
/// assert!(health.is_ready());
/// assert_eq!(health.spare, 1, "one of the three may fail");
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The number of nodes that vote and take writes, so that they can grant a lock.
    pub voting: usize,
    /// The number of nodes that are needed: the majority.
    pub needed: usize,
    /// How many of the voting nodes may fail before locks can no longer be taken.
    pub spare: usize,
    /// If too few nodes vote now: the time until enough nodes in quarantine will vote. `None` if even these are too
    /// few.
    pub votes_in: Option<Duration>,
}

impl Health {
    /// Returns true if a majority votes, so that locks can be taken. Use it for a readiness probe. Do not use it for a
    /// liveness probe: restarting this process does not repair a node.
    pub fn is_ready(&self) -> bool {
        self.voting >= self.needed
    }
}
