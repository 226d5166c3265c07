//! What a node is at the moment, for operators and for the reasons in reports.

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
    /// It answers and may vote after this long: it restarted, or it is new.
    Quarantined(Duration),
    /// It has not answered a request for longer than the node timeout.
    Stalled(Duration),
    /// It answers but is not counted, and somebody must act. The text says why and how.
    Refused(String),
    /// It answers, and refuses writes: its memory is full, its last save failed, or it lacks replicas. It grants no
    /// lock, so it does not count as a voting node. Locks that are held there are renewed and freed if it permits that.
    /// The text begins with the server's own code (`OOM`, `MISCONF`, `NOREPLICAS`) and says what to do. It comes back
    /// by itself within a second or so.
    RefusesWrites(String),
    /// There has been no connection for this long, for this reason.
    Unreachable(Duration, String),
}

impl NodeState {
    /// Why a node in this state gives no vote. None if it votes.
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
    /// host:port, or the path of its socket; never the password.
    pub node: Arc<str>,
    /// Its state.
    pub state: NodeState,
    /// What else an operator should know, such as a command that the server does not permit and that
    /// locks do not need.
    pub note: Option<String>,
    /// Whether its record says that the fleet has been in use. False if that is not known.
    pub used: bool,
    /// How long it takes to answer, as measured from here: the smoothed round trip of RFC 6298, in which the last answer
    /// counts for an eighth. A few seconds old at most while locks are taken. None without a connection, and before the
    /// first answer.
    pub round_trip: Option<Duration>,
    /// The longest interval of a rate limit whose units it gives out now, at most 24 h. A node that restarted has to be
    /// watched for 1.11 times the interval first, so it may vote on locks and still give no units of a limit per hour. Zero
    /// while it does not vote.
    pub limits_up_to: Duration,
}

impl NodeStatus {
    /// Whether this differs from `before` in more than a duration: in the kind of state, the refusal or
    /// the note. A new reason why a node cannot be reached is not news.
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

/// Whether locks can be taken, for a probe.
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
    /// How many nodes vote and take writes, so that they can grant a lock.
    pub voting: usize,
    /// How many are needed: the majority.
    pub needed: usize,
    /// How many of these may fail before locks can no longer be taken.
    pub spare: usize,
    /// If too few nodes vote now: after how long enough quarantined ones will vote. None if they are
    /// too few as well.
    pub votes_in: Option<Duration>,
}

impl Health {
    /// Whether a majority votes, so that locks can be taken. Use it for a readiness probe, but not for
    /// a liveness probe: restarting this process does not repair a node.
    pub fn is_ready(&self) -> bool {
        self.voting >= self.needed
    }
}
