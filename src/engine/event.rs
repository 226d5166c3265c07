//! The events that callers send to the engine.

use std::{
    sync::{Arc, Weak, atomic::AtomicU64},
    thread::{self, ThreadId},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    Inspection, Lease, Renewal,
    base::{clock::Tick, limit::Agreed, name::Name, owner::Label},
    engine::wants::Wants,
    lease::{keeper::LeaseId, response::Responder},
    node::{admission::Mode, request::Pool},
    protocol::rates::words::{Amount, Crowd, Grace, Limited, Outcome, Part},
};

/// An event for the core.
pub(crate) enum Event {
    Acquire(Acquisition),
    /// The acquisition's future was dropped.
    Cancel(AcquisitionId),
    Extend {
        lease: LeaseId,
        reply: Responder<()>,
    },
    /// A writer of a read-write lock becomes a reader.
    Downgrade {
        lease: LeaseId,
        reply: Responder<()>,
    },
    /// The lease was released, and its caller waits for the answer; or it was dropped.
    Release {
        lease: LeaseId,
        reply: Option<Responder<()>>,
    },
    Abandon {
        lease: LeaseId,
    },
    Inspect {
        name: Name,
        reply: Responder<Inspection>,
    },
    Evict {
        name: Name,
        reply: Responder<bool>,
    },
    /// Asks when each slot of a semaphore is free.
    Available {
        pool: Pool,
        agreed: Arc<Agreed>,
        reply: Responder<Vec<Duration>>,
    },
    /// Sets another limit for a semaphore.
    Resize {
        pool: Pool,
        agreed: Arc<Agreed>,
        to: u32,
        reply: Responder<()>,
    },
    /// Frees a slot of a semaphore, even if it is held.
    EvictSlot {
        pool: Pool,
        slot: u32,
        reply: Responder<bool>,
    },
    /// Asks for units of a rate limit.
    Spend(Spending),
    /// The future of a caller that waits for units was dropped.
    StopWaiting {
        limited: Arc<Limited>,
    },
    /// A map of limiters has become large. It is looked through from time to time, until it is small again.
    JoinCrowd(Weak<dyn Crowd>),
    /// Returns units that nobody will use.
    TakeBack {
        limited: Arc<Limited>,
        parts: Vec<Part>,
    },
    /// Asks how many units there are.
    Peek {
        limited: Arc<Limited>,
        grace: Grace,
        reply: Responder<Outcome>,
    },
    /// Is answered after this time.
    Sleep {
        time: Duration,
        reply: Responder<()>,
    },
    /// Is answered once a majority of the nodes answers.
    Ready {
        within: Duration,
        reply: Responder<()>,
    },
    /// Is answered once a majority of the nodes votes.
    Voting {
        within: Duration,
        reply: Responder<()>,
    },
    /// Bootstraps, or raises the terms.
    Bootstrap {
        within: Duration,
        mode: Mode,
        reply: Responder<()>,
    },
    Shutdown {
        within: Duration,
        reply: oneshot::Sender<Vec<String>>,
    },
}

impl Event {
    /// Returns true if the nodes have to be met before the event can be handled.
    pub(super) fn asks_nodes(&self) -> bool {
        matches!(
            self,
            Self::Acquire(_)
                | Self::Inspect { .. }
                | Self::Evict { .. }
                | Self::Available { .. }
                | Self::Resize { .. }
                | Self::EvictSlot { .. }
                | Self::Spend(_)
                | Self::Peek { .. }
        )
    }

    /// The time by which the caller must have its answer, if the caller has set one.
    pub(super) fn end(&self) -> Option<Tick> {
        match self {
            Self::Acquire(acquisition) => acquisition.attempt_end(),
            _ => None,
        }
    }

    /// The event without its caller, if it is still handled when the runtime has ended.
    pub(super) fn without_answer(self) -> Option<Self> {
        match self {
            Self::Release { lease, .. } => Some(Self::Release { lease, reply: None }),
            Self::Cancel(_) | Self::Abandon { .. } => Some(self),
            _ => None,
        }
    }
}

/// A later acquisition has a greater number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AcquisitionId(u64);

impl AcquisitionId {
    /// The `n`-th call. Calls get every second number, so that the one between is for a writer's turn.
    pub(crate) fn of_call(n: u64) -> Self {
        Self(n * 2)
    }

    /// The turn of a read-write lock's writer, which is an acquisition of its own.
    pub(super) fn of_turn(self) -> Self {
        debug_assert!(self.0.is_multiple_of(2), "a turn asks for a turn");
        Self(self.0 + 1)
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// A call for a lease.
pub(crate) struct Acquisition {
    pub(crate) id: AcquisitionId,
    pub(crate) request: AcquireRequest,
    pub(crate) caller: Caller,
    /// The time at which the caller began to wait. It is earlier than the time at which the engine heard of it.
    pub(crate) asked_at: Tick,
    pub(crate) reply: Responder<Option<Lease>>,
}

/// The request of a call for a lease.
pub(crate) struct AcquireRequest {
    pub(crate) wants: Wants,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) renewal: Renewal,
    /// The holder's label. `None`: the label of the quorum.
    pub(crate) label: Option<Label>,
    pub(crate) wait: Wait,
    /// The greatest counter that this handle has seen for the name.
    pub(crate) seen: Arc<AtomicU64>,
}

/// The task that makes a call, or outside of a task the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Task(tokio::task::Id),
    Thread(ThreadId),
}

impl Caller {
    pub(crate) fn now() -> Self {
        match tokio::task::try_id() {
            Some(id) => Self::Task(id),
            None => Self::Thread(thread::current().id()),
        }
    }
}

impl Acquisition {
    pub(super) fn name(&self) -> &Name {
        self.request.wants.name()
    }

    /// The time by which the caller must have its answer. `None` for a single attempt, and for a wait without a limit.
    pub(super) fn end(&self) -> Option<Tick> {
        self.request.wait.end(self.asked_at)
    }

    /// The time at which an attempt is cut short. A wait of zero is one attempt, for as long as that takes, so it has
    /// no such time.
    pub(super) fn attempt_end(&self) -> Option<Tick> {
        self.end().filter(|end| *end > self.asked_at)
    }

    /// For how long the nodes should hold the lock.
    pub(super) fn node_ttl(&self) -> Duration {
        self.request.ttl + self.request.lock_delay
    }
}

/// A caller that wants units of a rate limit.
pub(crate) struct Spending {
    pub(crate) limited: Arc<Limited>,
    pub(crate) amount: Amount,
    pub(crate) grace: Grace,
    pub(crate) waits: Waits,
    pub(crate) reply: Responder<Outcome>,
}

/// For how long a caller waits for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// It does not wait.
    Never,
    /// It waits until there are enough units, unless no node answers.
    WhileTheyAnswer,
    /// It waits until there are enough units.
    Always,
}

/// For how long an acquisition waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A single attempt.
    Never,
    /// Until it is held, or for this long.
    For(Option<Duration>),
}

impl Wait {
    /// The end of a wait that began at `asked_at`.
    pub(super) fn end(self, asked_at: Tick) -> Option<Tick> {
        match self {
            Self::Never => None,
            Self::For(limit) => limit.map(|limit| asked_at.plus(limit)),
        }
    }
}
