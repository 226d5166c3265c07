//! The view that one handle and its watches have of a lease.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use futures::future::{self, Either};
use tokio::sync::Notify;

use super::shared::Shared;
use crate::{FencingToken, LossReason, Lost, base::name::Name};

/// A lease as its handle sees it. If several handles share a lease, each has an end of its own: a handle that was given
/// up is over for its watches, and the others go on.
#[derive(Clone, Debug)]
pub(crate) struct View {
    shared: Arc<Shared>,
    /// The leases that are held together with it. If one of them is lost, all are.
    others: Option<Arc<[Arc<Shared>]>>,
    /// The handle's own end. `None` if the lease has one handle, which ends with the lease.
    end: Option<Arc<End>>,
}

#[derive(Debug, Default)]
struct End {
    is_over: AtomicBool,
    over: Notify,
}

impl View {
    /// The view of a lease that has one handle.
    pub(super) fn whole(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            others: None,
            end: None,
        }
    }

    /// The view of one handle among several.
    pub(super) fn of_share(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            others: None,
            end: Some(Arc::default()),
        }
    }

    /// The same view, of a lease that is held together with these.
    pub(super) fn beside(self, others: Vec<Arc<Shared>>) -> Self {
        let others = (!others.is_empty()).then(|| others.into());
        Self { others, ..self }
    }

    /// All leases that are held together; mostly one.
    fn parts(&self) -> impl Iterator<Item = &Arc<Shared>> {
        let others = self.others.as_deref().unwrap_or_default();
        std::iter::once(&self.shared).chain(others)
    }

    /// The state that all handles of the lease share.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn name(&self) -> &Name {
        &self.shared.name
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.shared.token
    }

    pub(crate) fn validity(&self) -> Duration {
        match self.is_given_up() {
            true => Duration::ZERO,
            false => {
                let parts = self.parts().map(|part| part.validity());
                parts.min().unwrap_or_default()
            }
        }
    }

    /// For tests: how long before its end a loss is announced.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn notice(&self) -> Duration {
        self.shared.notice()
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.shared.held_for()
    }

    /// Records a heartbeat. A handle that was given up does not keep the lease of the others alive.
    pub(crate) fn beat(&self) {
        if !self.is_given_up() {
            self.parts().for_each(|part| part.beat());
        }
    }

    /// Gives the handle up, on behalf of its holder. An earlier loss stands.
    pub(super) fn give_up(&self) {
        match &self.end {
            None => self
                .parts()
                .for_each(|part| part.lose(LossReason::Released)),
            Some(end) => {
                if self.shared.lost_now().is_none() {
                    end.is_over.store(true, SeqCst);
                    end.over.notify_waiters();
                }
            }
        }
    }

    /// The loss, if the lease is over by now.
    pub(crate) fn lost_now(&self) -> Option<Lost> {
        match self.is_given_up() {
            true => Some(Lost {
                reason: LossReason::Released,
            }),
            false => self.parts().find_map(|part| part.lost_now()),
        }
    }

    pub(crate) async fn lost(&self) -> LossReason {
        let Some(end) = &self.end else {
            return self.any_lost().await;
        };
        loop {
            let over = pin!(end.over.notified());
            if end.is_over.load(SeqCst) {
                return LossReason::Released;
            }
            let lost = pin!(self.shared.lost());
            if let Either::Right((reason, _)) = future::select(over, lost).await {
                return reason;
            }
        }
    }

    async fn any_lost(&self) -> LossReason {
        if self.others.is_none() {
            return self.shared.lost().await;
        }
        let all = self.parts().map(|part| Box::pin(part.lost()));
        future::select_all(all).await.0
    }

    /// Runs the future while the lease is valid. The clock is also checked before every poll.
    pub(crate) async fn guard<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        let mut future = pin!(future);
        let mut lost = pin!(self.lost());
        poll_fn(|cx| {
            // Looking at the clock makes a loss that was not announced yet final.
            if let Some(lost) = self.lost_now() {
                return Poll::Ready(Err(lost));
            }
            if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(Lost { reason }));
            }
            future.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    fn is_given_up(&self) -> bool {
        self.end
            .as_ref()
            .is_some_and(|end| end.is_over.load(SeqCst))
    }
}
