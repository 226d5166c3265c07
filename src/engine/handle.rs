//! The way into the engine.

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::FutureExt as _;
use tokio::sync::{mpsc, oneshot};

use super::{
    core::Core,
    event::{Event, Spending, Waits, Wish, WishId},
    net::Net,
    remains::Remains,
    status::Status,
};
use crate::{
    Error, Lease,
    base::{
        clock::{Clock, Tick},
        owner::Chance,
    },
    lease::{
        keeper::{Keeper, LeaseId},
        response::{Responder, Response},
    },
    node::settings::Settings,
    protocol::rates::words::{Amount, Grace, Limited, Outcome, Part, Purse},
};

/// The way into the engine: cheap to clone. With the last one, leases included, the engine ends.
#[derive(Clone)]
pub(crate) struct Engine(Arc<Inner>);

struct Inner {
    events: mpsc::UnboundedSender<Event>,
    remains: Arc<Remains>,
    last_wish: AtomicU64,
    status: Arc<Status>,
    clock: Arc<dyn Clock>,
    /// Somebody has shut it down.
    is_shut: AtomicBool,
}

impl Engine {
    pub(crate) fn new(
        status: Arc<Status>,
        clock: Arc<dyn Clock>,
    ) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let inner = Inner {
            events,
            remains: Arc::default(),
            last_wish: AtomicU64::new(0),
            status,
            clock,
            is_shut: AtomicBool::new(false),
        };
        (Self(Arc::new(inner)), receiver)
    }

    /// What decides for this handle's task. It does not keep the engine running.
    pub(crate) fn core(&self, settings: Arc<Settings>, chance: Chance) -> Core {
        let net = Net::new(settings, chance, Arc::clone(&self.0.clock));
        let status = Arc::clone(&self.0.status);
        let keeper: Weak<Inner> = Arc::downgrade(&self.0);
        let purse: Weak<Inner> = Arc::downgrade(&self.0);
        Core::new(net, status, keeper, purse)
    }

    /// What the engine's task is made with.
    pub(crate) fn remains(&self) -> Arc<Remains> {
        Arc::clone(&self.0.remains)
    }

    pub(crate) fn status(&self) -> &Status {
        &self.0.status
    }

    /// Where it is in memory: the same for all clones, and nobody else's while one of them is there.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn now(&self) -> Tick {
        self.0.clock.now()
    }

    pub(crate) fn new_wish(&self) -> WishId {
        WishId(self.0.last_wish.fetch_add(1, Relaxed) + 1)
    }

    /// Sends an event; the answer is `Closed` if nobody is there any more.
    pub(crate) fn call<T>(&self, event: impl FnOnce(Responder<T>) -> Event) -> Response<T> {
        self.0.call(event)
    }

    /// Acquires, from now on.
    pub(crate) fn acquire(
        &self,
        wish: impl FnOnce(WishId, Tick, Responder<Option<Lease>>) -> Wish,
    ) -> Acquiring {
        let id = self.new_wish();
        let asked_at = self.0.clock.now();
        Acquiring {
            answer: self.call(|reply| Event::Acquire(wish(id, asked_at, reply))),
            engine: self.clone(),
            id: Some(id),
        }
    }

    /// Asks for units, from now on.
    pub(crate) fn spend(
        &self,
        limited: &Arc<Limited>,
        amount: Amount,
        grace: Grace,
        waits: Waits,
    ) -> SpendingAsked {
        SpendingAsked {
            answer: self.call(|reply| {
                Event::Spend(Spending {
                    limited: Arc::clone(limited),
                    amount,
                    grace,
                    waits,
                    reply,
                })
            }),
            engine: self.clone(),
            limited: Arc::clone(limited),
            waits: waits != Waits::Never,
        }
    }

    /// Whether every new call is answered with `Closed`.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_shut.load(Relaxed) || self.0.events.is_closed()
    }

    pub(crate) async fn shutdown(&self, within: Duration) -> Vec<String> {
        let (reply, answer) = oneshot::channel();
        self.0.is_shut.store(true, Relaxed);
        self.0.tell(Event::Shutdown { within, reply });
        answer.await.unwrap_or_default()
    }
}

impl Inner {
    /// Puts an event to the task, or to what it has left behind.
    fn tell(&self, event: Event) {
        if let Err(mpsc::error::SendError(event)) = self.events.send(event) {
            self.remains.tell(event);
        }
    }

    fn call<T>(&self, event: impl FnOnce(Responder<T>) -> Event) -> Response<T> {
        let (reply, answer) = Response::channel();
        self.tell(event(reply));
        answer
    }
}

impl Keeper for Inner {
    fn extend(&self, lease: LeaseId) -> Response<()> {
        self.call(|reply| Event::Extend { lease, reply })
    }

    fn downgrade(&self, lease: LeaseId) -> Response<()> {
        self.call(|reply| Event::Downgrade { lease, reply })
    }

    fn release(&self, lease: LeaseId) -> Response<()> {
        self.call(|reply| Event::Release {
            lease,
            reply: Some(reply),
        })
    }

    fn free(&self, lease: LeaseId) {
        self.tell(Event::Release { lease, reply: None });
    }

    fn abandon(&self, lease: LeaseId) {
        self.tell(Event::Abandon { lease });
    }
}

impl Purse for Inner {
    fn take_back(&self, limited: &Arc<Limited>, parts: Vec<Part>) {
        let limited = Arc::clone(limited);
        self.tell(Event::TakeBack { limited, parts });
    }
}

/// One who asked for units. What it is not given because it is dropped goes back.
pub(crate) struct SpendingAsked {
    answer: Response<Outcome>,
    engine: Engine,
    limited: Arc<Limited>,
    /// It may stand in line.
    waits: bool,
}

impl Future for SpendingAsked {
    type Output = Result<Outcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.answer.poll_unpin(cx));
        self.waits = false;
        Poll::Ready(answer)
    }
}

impl Drop for SpendingAsked {
    fn drop(&mut self) {
        if self.waits {
            // First, so that the engine finds it gone.
            self.answer.close();
            let limited = Arc::clone(&self.limited);
            self.engine.0.tell(Event::StopWaiting { limited });
        }
    }
}

/// A wish until it is answered. Dropping it takes everything back. It keeps nothing else of the wish: many wait.
pub(crate) struct Acquiring {
    answer: Response<Option<Lease>>,
    engine: Engine,
    id: Option<WishId>,
}

impl Future for Acquiring {
    type Output = Result<Option<Lease>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.answer.poll_unpin(cx));
        self.id = None;
        Poll::Ready(answer)
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.engine.0.tell(Event::Cancel(id));
        }
    }
}
