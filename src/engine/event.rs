//! What callers put to the engine.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    Inspection, Lease, Renewal,
    base::{clock::Tick, limit::Agreed, name::Name},
    engine::wants::Wants,
    lease::{keeper::LeaseId, response::Responder},
    node::{admission::Mode, request::Pool},
    protocol::rates::words::{Amount, Grace, Limited, Outcome, Part},
};

/// What is put to the core.
pub(crate) enum Event {
    Acquire(Wish),
    /// The wish's future was dropped.
    Cancel(WishId),
    Extend {
        lease: LeaseId,
        reply: Responder<()>,
    },
    /// A writer of a read-write lock becomes a reader.
    Downgrade {
        lease: LeaseId,
        reply: Responder<()>,
    },
    /// Released, and somebody waits for the answer; or dropped.
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
    /// When each slot of a semaphore is free.
    Available {
        pool: Pool,
        agreed: Arc<Agreed>,
        reply: Responder<Vec<Duration>>,
    },
    /// Another limit for a semaphore.
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
    /// Units of a rate limit.
    Spend(Spending),
    /// The future of one who waits for units was dropped.
    StopWaiting {
        limited: Arc<Limited>,
    },
    /// Units that nobody will use.
    TakeBack {
        limited: Arc<Limited>,
        parts: Vec<Part>,
    },
    /// How many units there are.
    Peek {
        limited: Arc<Limited>,
        grace: Grace,
        reply: Responder<Outcome>,
    },
    /// Answered after so long.
    Rest {
        time: Duration,
        reply: Responder<()>,
    },
    /// Answered once a majority of nodes answers.
    Ready {
        within: Duration,
        reply: Responder<()>,
    },
    /// Answered once a majority of nodes votes.
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
    /// Whether nodes have to be met before it is obeyed.
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

    /// When its caller has to be told, if the caller has said so.
    pub(super) fn end(&self) -> Option<Tick> {
        match self {
            Self::Acquire(wish) => wish.attempt_end(),
            _ => None,
        }
    }

    /// What is still obeyed when the runtime is gone, and then answered to nobody.
    pub(super) fn without_answer(self) -> Option<Self> {
        match self {
            Self::Release { lease, .. } => Some(Self::Release { lease, reply: None }),
            Self::Cancel(_) | Self::Abandon { .. } => Some(self),
            _ => None,
        }
    }
}

/// One wish; a later one has a greater number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WishId(pub(crate) u64);

/// One wish to hold something: everything that an attempt needs.
pub(crate) struct Wish {
    pub(crate) id: WishId,
    pub(crate) wants: Wants,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) renewal: Renewal,
    pub(crate) wait: Wait,
    /// When the caller began to wait: before the engine heard of it.
    pub(crate) asked_at: Tick,
    /// The largest counter that this handle has seen for the name.
    pub(crate) seen: Arc<AtomicU64>,
    pub(crate) reply: Responder<Option<Lease>>,
}

impl Wish {
    pub(super) fn name(&self) -> &Name {
        self.wants.name()
    }

    /// When the caller has to be told. None for a single attempt, and for a wait without a limit.
    pub(super) fn end(&self) -> Option<Tick> {
        self.wait.end(self.asked_at)
    }

    /// When an attempt is cut short. A wait of no length is one attempt, for as long as that takes.
    pub(super) fn attempt_end(&self) -> Option<Tick> {
        self.end().filter(|end| *end > self.asked_at)
    }

    /// For how long nodes are to hold it.
    pub(super) fn node_ttl(&self) -> Duration {
        self.ttl + self.lock_delay
    }
}

/// One who wants units of a limit.
pub(crate) struct Spending {
    pub(crate) limited: Arc<Limited>,
    pub(crate) amount: Amount,
    pub(crate) grace: Grace,
    pub(crate) waits: Waits,
    pub(crate) reply: Responder<Outcome>,
}

/// For how long one waits who wants units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Not at all.
    Never,
    /// Until there are enough, unless no node answers.
    WhileTheyAnswer,
    /// Until there are enough.
    Always,
}

/// For how long a wish waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// One attempt.
    Never,
    /// Until it is held, or for this long.
    For(Option<Duration>),
}

impl Wait {
    /// When a wait that began then is over.
    pub(super) fn end(self, asked_at: Tick) -> Option<Tick> {
        match self {
            Self::Never => None,
            Self::For(limit) => limit.map(|limit| asked_at.plus(limit)),
        }
    }
}
