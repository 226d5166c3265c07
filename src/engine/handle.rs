//! The handle through which all other code talks to the engine.

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::FutureExt as _;
use tokio::sync::{mpsc, oneshot};

use super::{
    after_runtime::AfterRuntime,
    cluster::Cluster,
    core::Core,
    event::{AcquireRequest, Acquisition, AcquisitionId, Caller, Event, Spending, Waits},
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
    protocol::rates::words::{Amount, Crowd, Grace, Limited, Outcome, Part, Purse},
};

/// The handle of the engine. It is cheap to clone. The engine ends when the last handle is dropped; every lease has
/// one.
#[derive(Clone)]
pub(crate) struct Engine(Arc<Inner>);

struct Inner {
    events: mpsc::UnboundedSender<Event>,
    after_runtime: Arc<AfterRuntime>,
    last_acquisition: AtomicU64,
    status: Arc<Status>,
    clock: Arc<dyn Clock>,
}

impl Engine {
    pub(crate) fn new(
        status: Arc<Status>,
        clock: Arc<dyn Clock>,
    ) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let inner = Inner {
            events,
            after_runtime: Arc::default(),
            last_acquisition: AtomicU64::new(0),
            status,
            clock,
        };
        (Self(Arc::new(inner)), receiver)
    }

    /// Makes the core that the engine's task runs. The core does not keep the engine alive.
    pub(crate) fn core(&self, settings: Arc<Settings>, chance: Chance) -> Core {
        let cluster = Cluster::new(settings, chance, Arc::clone(&self.0.clock));
        let status = Arc::clone(&self.0.status);
        let keeper: Weak<Inner> = Arc::downgrade(&self.0);
        let purse: Weak<Inner> = Arc::downgrade(&self.0);
        Core::new(cluster, status, keeper, purse)
    }

    /// The state that the engine's task and the handles share after the runtime has ended.
    pub(crate) fn after_runtime(&self) -> Arc<AfterRuntime> {
        Arc::clone(&self.0.after_runtime)
    }

    pub(crate) fn status(&self) -> &Status {
        &self.0.status
    }

    /// The engine's address in memory. It is the same for all clones, and no other engine has it while one of them
    /// exists.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn now(&self) -> Tick {
        self.0.clock.now()
    }

    pub(crate) fn new_acquisition(&self) -> AcquisitionId {
        AcquisitionId::of_call(self.0.last_acquisition.fetch_add(1, Relaxed) + 1)
    }

    /// Sends an event. If the engine has ended, the answer says why.
    pub(crate) fn call<T>(&self, event: impl FnOnce(Responder<T>) -> Event) -> Response<T> {
        self.0.call(event)
    }

    /// Starts an acquisition. Its wait begins now.
    pub(crate) fn acquire(&self, request: AcquireRequest) -> Acquiring {
        let id = self.new_acquisition();
        let (caller, asked_at) = (Caller::now(), self.0.clock.now());
        let acquisition = |reply| Acquisition {
            id,
            request,
            caller,
            asked_at,
            reply,
        };
        Acquiring {
            answer: self.call(|reply| Event::Acquire(acquisition(reply))),
            engine: self.clone(),
            id: Some(id),
        }
    }

    /// Asks for units. The wait begins now.
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

    /// Lets this map be looked through from time to time.
    pub(crate) fn join_crowd(&self, crowd: Weak<dyn Crowd>) {
        self.0.tell(Event::JoinCrowd(crowd));
    }

    /// Returns true if nothing new may begin.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.status.is_closing() || self.0.events.is_closed()
    }

    /// Checks that something new may begin.
    ///
    /// # Errors
    /// `Closed` or `RuntimeGone`.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match self.is_closed() {
            true => Err(self.0.status.ending().error()),
            false => Ok(()),
        }
    }

    /// Begins at once, and goes on if nobody waits for it.
    pub(crate) fn shutdown(
        &self,
        within: Duration,
    ) -> impl Future<Output = Vec<String>> + Send + 'static + use<> {
        let (reply, answer) = oneshot::channel();
        self.0.status.shut_down();
        self.0.tell(Event::Shutdown { within, reply });
        // The engine ends when its last handle is gone, so this one stays until then.
        let engine = self.clone();
        async move {
            let left = answer.await.unwrap_or_default();
            drop(engine);
            left
        }
    }
}

impl Inner {
    /// Sends an event to the engine's task. If the task has ended, sends it to what the task has left behind.
    fn tell(&self, event: Event) {
        if let Err(mpsc::error::SendError(event)) = self.events.send(event) {
            self.after_runtime.tell(event);
        }
    }

    fn call<T>(&self, event: impl FnOnce(Responder<T>) -> Event) -> Response<T> {
        let (reply, answer) = Response::channel(Arc::clone(self.status.ending()));
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

/// A request for units. If it is dropped, the units that it does not receive go back.
pub(crate) struct SpendingAsked {
    answer: Response<Outcome>,
    engine: Engine,
    limited: Arc<Limited>,
    /// It may be queued.
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
            // The channel is closed first, so that the engine finds this caller gone.
            self.answer.close();
            let limited = Arc::clone(&self.limited);
            self.engine.0.tell(Event::StopWaiting { limited });
        }
    }
}

/// An acquisition that is not answered yet. Dropping it takes everything back. It keeps nothing else of the
/// acquisition, because many may wait at the same time.
pub(crate) struct Acquiring {
    answer: Response<Option<Lease>>,
    engine: Engine,
    id: Option<AcquisitionId>,
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
