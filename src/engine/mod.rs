//! One task per quorum that owns everything: connections, rounds, leases, timers.
//!
//! A request goes down as an [`Event`] through one queue, and comes back through a oneshot channel.
//! [`core`] decides and is free of I/O and of tokio's timers, so that the simulation runs it as it
//! is; [`driver`] carries out what it decides. No background work hangs on a caller's future: one
//! that is dropped leaves an event behind, and the core cleans up.

mod acquiring;
mod admin;
mod asking;
pub(crate) mod bootstrap;
pub(crate) mod core;
pub(crate) mod driver;
mod holding;
mod journal;
mod remains;
mod status;
#[cfg(test)]
mod tests;
mod timers;
mod turns;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

pub use status::NodeChanges;
pub(crate) use status::Status;

use self::remains::Remains;
use crate::{Error, Inspection, Lease, Renewal, clock::Clock, name::Name, node::admission::Mode};

/// What is put to the core.
pub(crate) enum Event {
    Acquire(Wish),
    /// The wish's future was dropped.
    Cancel(u64),
    Extend {
        lease: u64,
        reply: Reply<()>,
    },
    /// Released, and somebody waits for the answer; or dropped.
    Release {
        lease: u64,
        reply: Option<Reply<()>>,
    },
    Abandon {
        lease: u64,
    },
    Inspect {
        name: Name,
        reply: Reply<Inspection>,
    },
    Evict {
        name: Name,
        reply: Reply<bool>,
    },
    /// Answered once a majority of nodes answers.
    Ready {
        within: Duration,
        reply: Reply<()>,
    },
    /// Answered once a majority of nodes votes.
    Voting {
        within: Duration,
        reply: Reply<()>,
    },
    /// Bootstraps, or raises the terms.
    Bootstrap {
        within: Duration,
        mode: Mode,
        reply: Reply<()>,
    },
    Shutdown {
        within: Duration,
        reply: oneshot::Sender<Vec<String>>,
    },
}

impl Event {
    /// What is still obeyed when the runtime is gone, and then answered to nobody.
    fn without_answer(self) -> Option<Self> {
        match self {
            Self::Release { lease, .. } => Some(Self::Release { lease, reply: None }),
            Self::Cancel(_) | Self::Abandon { .. } => Some(self),
            _ => None,
        }
    }
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// One wish for a lock: everything an attempt needs.
pub(crate) struct Wish {
    pub(crate) id: u64,
    pub(crate) name: Name,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) renewal: Renewal,
    pub(crate) patience: Patience,
    /// The largest counter that this handle has seen for the name.
    pub(crate) seen: Arc<AtomicU64>,
    pub(crate) reply: Reply<Option<Lease>>,
}

/// For how long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// One attempt.
    Try,
    /// Until it is held, or for this long.
    Wait(Option<Duration>),
}

/// The way into the engine: cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    events: mpsc::UnboundedSender<Event>,
    remains: Arc<Remains>,
    last_id: Arc<AtomicU64>,
    pub(crate) status: Arc<Status>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Engine {
    pub(crate) fn new(
        status: Arc<Status>,
        clock: Arc<dyn Clock>,
    ) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, receiver) = mpsc::unbounded_channel();
        (
            Self {
                events,
                remains: Arc::default(),
                last_id: Arc::new(AtomicU64::new(0)),
                status,
                clock,
            },
            receiver,
        )
    }

    pub(crate) fn new_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// What the engine's task is made with.
    pub(crate) fn remains(&self) -> Arc<Remains> {
        Arc::clone(&self.remains)
    }

    /// Puts an event to the task, or to what it has left behind.
    fn tell(&self, event: Event) {
        if let Err(mpsc::error::SendError(event)) = self.events.send(event) {
            self.remains.tell(event);
        }
    }

    /// Sends an event; the answer is `Closed` if nobody is there any more.
    pub(crate) fn call<T>(&self, event: impl FnOnce(Reply<T>) -> Event) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        self.tell(event(reply));
        Answer(answer)
    }

    /// Acquires; dropping the future takes everything back.
    pub(crate) async fn acquire(
        &self,
        wish: impl FnOnce(u64, Reply<Option<Lease>>) -> Wish,
    ) -> Result<Option<Lease>, Error> {
        let id = self.new_id();
        let mut cancel = CancelOnDrop {
            engine: self,
            id: Some(id),
        };
        let answer = self.call(|reply| Event::Acquire(wish(id, reply))).await;
        cancel.id = None;
        answer
    }

    pub(crate) fn extend(&self, lease: u64) -> Answer<()> {
        self.call(|reply| Event::Extend { lease, reply })
    }

    pub(crate) fn release(&self, lease: u64) -> Answer<()> {
        self.call(|reply| Event::Release {
            lease,
            reply: Some(reply),
        })
    }

    pub(crate) fn drop_lease(&self, lease: u64) {
        self.tell(Event::Release { lease, reply: None });
    }

    pub(crate) fn abandon(&self, lease: u64) {
        self.tell(Event::Abandon { lease });
    }

    pub(crate) async fn shutdown(&self, within: Duration) -> Vec<String> {
        let (reply, answer) = oneshot::channel();
        self.tell(Event::Shutdown { within, reply });
        answer.await.unwrap_or_default()
    }

    /// A handle that does not keep the engine running, for the core to make leases with.
    fn downgrade(&self) -> WeakEngine {
        WeakEngine {
            events: self.events.downgrade(),
            remains: Arc::downgrade(&self.remains),
            last_id: Arc::clone(&self.last_id),
            status: Arc::clone(&self.status),
            clock: Arc::clone(&self.clock),
        }
    }
}

/// An answer on its way. Needs no runtime to be polled on.
pub(crate) struct Answer<T>(oneshot::Receiver<Result<T, Error>>);

impl<T> Future for Answer<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or(Err(Error::Closed)))
    }
}

struct WeakEngine {
    events: mpsc::WeakUnboundedSender<Event>,
    remains: Weak<Remains>,
    last_id: Arc<AtomicU64>,
    status: Arc<Status>,
    clock: Arc<dyn Clock>,
}

impl WeakEngine {
    fn upgrade(&self) -> Option<Engine> {
        Some(Engine {
            events: self.events.upgrade()?,
            remains: self.remains.upgrade()?,
            last_id: Arc::clone(&self.last_id),
            status: Arc::clone(&self.status),
            clock: Arc::clone(&self.clock),
        })
    }
}

struct CancelOnDrop<'a> {
    engine: &'a Engine,
    id: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.engine.tell(Event::Cancel(id));
        }
    }
}
