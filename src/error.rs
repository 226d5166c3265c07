//! What can go wrong, told apart by what the caller can do about it.

use std::{fmt, time::Duration};

use crate::{Report, report::seconds};

/// Why an operation did not give what was asked. Every variant that comes from asking nodes keeps
/// each node's own answer: [`report`](Error::report).
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Error {
    /// Somebody else held the lock until the wait ran out. The nodes are well.
    Held(Report),
    /// Too few nodes answered to decide. Nothing is held, whatever was granted is being taken back.
    NoQuorum(Report),
    /// A majority granted the lock, but so late that no validity was left.
    TooSlow(Report),
    /// The lease was over before the operation was done.
    Lost(Lost),
    /// Too few nodes may vote because some restarted or are new. It ends by itself; servers that have
    /// never held a lock can be admitted without it by [`Quorum::bootstrap`](crate::Quorum::bootstrap).
    Quarantined(Report),
    /// The name is in use with another limit. Only primitives with a limit answer this.
    LimitConflict(Report),
    /// A name or a setting is not allowed; the text says what is.
    Invalid(String),
    /// The quorum was shut down, or the runtime that connected it is gone.
    Closed,
}

impl Error {
    /// What every node said, where nodes were asked.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Held(r)
            | Self::NoQuorum(r)
            | Self::TooSlow(r)
            | Self::Quarantined(r)
            | Self::LimitConflict(r) => Some(r),
            Self::Lost(_) | Self::Invalid(_) | Self::Closed => None,
        }
    }

    /// Whether the same call may succeed later without anybody changing the program.
    pub fn is_retryable(&self) -> bool {
        self.report().is_some() && !matches!(self, Self::LimitConflict(_))
    }

    /// When to try again at the earliest, where the nodes said so: the remaining time of the
    /// holder, or of the quarantine.
    pub fn retry_after(&self) -> Option<Duration> {
        self.report().and_then(Report::retry_after)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(r) => write!(f, "{:?} is held by another ({r})", r.subject()),
            Self::NoQuorum(r) => {
                write!(
                    f,
                    "{:?}: no majority, {} nodes are needed ({r})",
                    r.subject(),
                    r.needed()
                )
            }
            Self::TooSlow(r) => write!(
                f,
                "{:?} was granted too late to be of use: raise the ttl, or look at the nodes ({r})",
                r.subject()
            ),
            Self::LimitConflict(r) => {
                write!(f, "{:?} is in use with another limit ({r})", r.subject())
            }
            Self::Lost(lost) => lost.fmt(f),
            Self::Quarantined(r) => {
                write!(f, "{:?}: too few nodes may vote yet", r.subject())?;
                if let Some(left) = r.retry_after() {
                    write!(f, ", enough will in {}", seconds(left))?;
                }
                f.write_str("; it ends by itself")?;
                // One that votes has held locks, so the others have restarted.
                if !r.has_vote() {
                    f.write_str(
                        "; if these servers have never held a lock, `quorate bootstrap --new` \
                         (Quorum::bootstrap) admits them within about 7 s",
                    )?;
                }
                write!(f, " ({r})")
            }
            Self::Invalid(why) => f.write_str(why),
            Self::Closed => {
                f.write_str("the quorum is closed: it was shut down, or its runtime is gone")
            }
        }
    }
}

impl std::error::Error for Error {}

/// A lease that is over, and why.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Why it is over.
    pub reason: LossReason,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lease is lost: {}", self.reason)
    }
}

impl std::error::Error for Lost {}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// Why a lease ended before it was released.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// Its validity ran out and no renewal was wanted any more, or this process slept through it.
    Expired,
    /// A majority of nodes said that the lock is not ours any more: an operator freed it, or its
    /// keys vanished.
    Evicted,
    /// `max_hold` is over.
    MaxHold,
    /// No `beat()` came in time.
    NoHeartbeat,
    /// It could not be renewed on a majority in time.
    NodesLost,
    /// Its holder released, dropped or abandoned it: only its watches are told so.
    Released,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ran out",
            Self::Evicted => "a majority of nodes says it is not ours any more",
            Self::MaxHold => "it was held for max_hold",
            Self::NoHeartbeat => "no heartbeat came in time",
            Self::NodesLost => "it could not be renewed on a majority of nodes in time",
            Self::Released => "its holder gave it up",
        })
    }
}
