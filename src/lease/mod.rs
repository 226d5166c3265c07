//! Leases: what a holder has in hand, and how it is told when its lease is over.

pub(crate) mod failing;
pub(crate) mod keeper;
mod renewal;
pub(crate) mod response;
pub(crate) mod shared;
pub(crate) mod shares;
pub(crate) mod upkeep;
mod view;
mod watch;

use std::{fmt, future::Future, sync::Arc, time::Duration};

pub use renewal::Renewal;
pub use watch::LeaseWatch;

use futures::future::{join_all, try_join_all};
use tracing::Instrument;

use self::{
    keeper::{Keeper, LeaseId},
    shared::Shared,
    view::View,
};
use crate::{Error, FencingToken, LossReason, Lost, base::logs, lease::response::Response};

/// A lock that is held, until it is released, dropped or lost.
///
/// It is renewed in the background as its [`Renewal`] says. When its [`validity`](Self::validity) is over, somebody
/// else may hold the lock. So let the store that the lock protects check the [`token`](Self::token). It also helps to
/// look at [`is_valid`](Self::is_valid) before each step, or to run the work in [`guard`](Self::guard).
/// [guarantees](crate::docs::guarantees) says what a lease promises.
///
/// Dropping a lease releases it in the background, from any thread, without blocking. If the process is killed, or the
/// lease outlives its runtime, the lock stays until its ttl is over: [shutdown](crate::docs::shutdown) has all cases.
/// At the end of `main`, call [`Quorum::shutdown`](crate::Quorum::shutdown).
///
/// A lease of a [`ReentrantMutex`](crate::ReentrantMutex) is a share of a lock that may have more shares. That page
/// says what the end of one share means for the others.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// let quorum = quorate::Quorum::in_memory(5);
/// let lease = quorum.mutex("invoice:42").lock().await?;
/// assert!(lease.is_valid());
/// println!("write with token {}", lease.token());
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "a lease that is dropped is released at once"]
pub struct Lease {
    view: View,
    keeper: Arc<dyn Keeper>,
    /// The keeper's id of the lease; `None` once the lease was given up.
    id: Option<LeaseId>,
    /// The other leases that are held together with it.
    others: Vec<Self>,
    /// All slots, if there are `others`.
    slots: Vec<u32>,
}

impl Lease {
    pub(crate) fn new(shared: Arc<Shared>, keeper: Arc<dyn Keeper>, id: LeaseId) -> Self {
        Self {
            view: View::whole(shared),
            keeper,
            id: Some(id),
            others: Vec::new(),
            slots: Vec::new(),
        }
    }

    /// Makes one lease of several. `None` if there are none.
    pub(crate) fn of_several(all: Vec<Self>) -> Option<Self> {
        let slots = all.iter().flat_map(Self::slots).copied().collect();
        let mut all = all.into_iter();
        let mut first = all.next()?;
        let others: Vec<Self> = all.collect();
        let shared = others.iter().map(|other| Arc::clone(other.view.shared()));
        first.view = first.view.clone().beside(shared.collect());
        (first.others, first.slots) = (others, slots);
        Some(first)
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.view.name().as_str()
    }

    /// The fencing token: greater than every token given out for this name before.
    ///
    /// Let the store refuse an older one. For a lease of [`RwLock::read`](crate::RwLock::read) it is an epoch: not
    /// smaller than the last writer's token, and it must not be used to write.
    ///
    /// If nodes have forgotten their counters, the order rests on wall clocks: no client may be more than the restart
    /// margin behind the nodes. [Protocol §3](crate::docs::protocol) says how nodes agree on a token.
    pub fn token(&self) -> FencingToken {
        self.view.token()
    }

    /// The slot that a lease of a [`Semaphore`](crate::Semaphore) holds, from 0; of several slots the first. `None` for
    /// a lock.
    pub fn slot(&self) -> Option<u32> {
        self.slots().first().copied()
    }

    /// The slots of a lease of a [`Semaphore`](crate::Semaphore): one, or the number that
    /// [`acquire_many`](crate::Semaphore::acquire_many) was asked for. Empty for a lock.
    pub fn slots(&self) -> &[u32] {
        match self.others.is_empty() {
            true => self.view.shared().slots(),
            false => &self.slots,
        }
    }

    /// The tokens, each for the slot at the same position of [`slots`](Self::slots). There is one token, except after
    /// [`acquire_many`](crate::Semaphore::acquire_many). [`token`](Self::token) is the first of them.
    pub fn tokens(&self) -> Vec<FencingToken> {
        let others = self.others.iter().map(|other| other.view.token());
        std::iter::once(self.view.token()).chain(others).collect()
    }

    /// The time that is left, by this process's own clock, and never beyond `max_hold`. Zero once the lease is lost.
    ///
    /// A loss is announced with a notice of max(20 ms, ttl / 20), so the time left drops from the notice to zero.
    pub fn validity(&self) -> Duration {
        self.view.validity()
    }

    /// Returns true while any validity is left. Once false, it stays false.
    pub fn is_valid(&self) -> bool {
        !self.validity().is_zero()
    }

    /// The loss, if the lease is over.
    pub(crate) fn lost_now(&self) -> Option<Lost> {
        self.view.lost_now()
    }

    /// How long the lease has been held. A single attempt counts from just before it asked the nodes, a call that
    /// queued counts from its win.
    pub fn held_for(&self) -> Duration {
        self.view.held_for()
    }

    /// Extends the lease to its full ttl, now, on a majority.
    ///
    /// # Errors
    /// - `Lost` if it is over.
    /// - `NoQuorum` if no majority answered. The old validity still stands.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; the extension may have happened or not.
    pub fn extend(&self) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let view = self.view.clone();
        let parts = self.others.iter().chain([self]);
        let parts: Vec<_> = parts
            .map(|part| (part.id, Arc::clone(&part.keeper)))
            .collect();
        async move {
            if let Some(lost) = view.lost_now() {
                return Err(lost.into());
            }
            let span = logs::span!("extend", name = view.name().as_str());
            let all = parts.into_iter().map(|(id, keeper)| match id {
                Some(id) => keeper.extend(id),
                None => Response::ready(Err(Error::Closed)),
            });
            try_join_all(all).instrument(span).await.map(drop)
        }
    }

    /// Makes a reader of a lease of [`RwLock::write`](crate::RwLock::write), with the same token. Waiting readers come
    /// in beside it, and nobody writes in between.
    ///
    /// It also extends the lease, as [`extend`](Self::extend) does. For a reader's lease that is all it does.
    ///
    /// There is no way back: two readers that wait for each other to leave would wait for ever. To write again, release
    /// the lease and call [`write`](crate::RwLock::write).
    ///
    /// # Errors
    /// - `Invalid` if the lease is not of an [`RwLock`](crate::RwLock).
    /// - `Lost` if it is over.
    /// - `NoQuorum` if no majority answered. The lease is a reader's from now on all the same, and the next renewal
    ///   tells the nodes so.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped: the lease is a reader's from the call on.
    pub fn downgrade(&self) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let span = logs::span!("downgrade", name = self.view.name().as_str());
        let answer = match (self.view.lost_now(), self.id) {
            (Some(lost), _) => Response::ready(Err(lost.into())),
            (None, Some(id)) => self.keeper.downgrade(id),
            (None, None) => Response::ready(Err(Error::Closed)),
        };
        answer.instrument(span)
    }

    /// Tells a lease with [`Renewal::heartbeat`] that the work goes on. It costs one atomic store.
    pub fn beat(&self) {
        self.view.beat();
    }

    /// Waits until the lease is lost.
    ///
    /// A loss is announced with a notice, max(20 ms, ttl / 20) before the validity ends, or at once if the nodes say
    /// that the lease is lost.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn lost(&self) -> LossReason {
        self.view.lost().await
    }

    /// Returns a view of this lease for other tasks. The view does not keep the lease.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch::new(self.view.clone())
    }

    /// Runs `future` while the lease is valid, and drops it when the lease is lost.
    ///
    /// The clock is also checked before every poll. Tasks that the future spawned go on. The future may borrow, unlike
    /// that of [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Errors
    /// `Lost`, with the reason. `?` makes an [`Error`] of it. Code with a generic `E: From<Error>` needs
    /// `map_err(Error::from)` before.
    ///
    /// # Cancel safety
    /// May be dropped: that drops `future`, and the lease stays as it was.
    pub async fn guard<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        self.view.guard(future).await
    }

    /// Frees the lock and waits until a majority confirms.
    ///
    /// # Errors
    /// - `Lost` if the lease was over before.
    /// - `NoQuorum` if too few nodes confirmed. The other nodes free the lock when they answer again, or when it
    ///   expires.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped: the release goes on in the background.
    pub fn release(mut self) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let id = self.id.take();
        let lost = self.view.lost_now();
        let span = logs::span!("release", name = self.view.name().as_str());
        self.view.give_up();
        // Sent here and not at the first poll, so that a future that is dropped unpolled has released too.
        let others = std::mem::take(&mut self.others);
        let others = others.into_iter().map(|mut other| {
            let id = other.id.take();
            (id, Arc::clone(&other.keeper))
        });
        let all = others.chain([(id, Arc::clone(&self.keeper))]);
        let all: Vec<_> = all
            .filter_map(|(id, keeper)| Some(keeper.release(id?)))
            .collect();
        async move {
            // Each answer is awaited, whatever the others are.
            let answers = join_all(all).instrument(span).await;
            let answer = answers.into_iter().collect::<Result<(), Error>>();
            match lost {
                Some(lost) => Err(lost.into()),
                None => answer,
            }
        }
    }

    /// Stops renewing, and leaves the lock to its ttl. Nobody else gets the lock before the ttl is over.
    pub fn abandon(mut self) {
        self.view.give_up();
        if let Some(id) = self.id.take() {
            self.keeper.abandon(id);
        }
        std::mem::take(&mut self.others)
            .into_iter()
            .for_each(Self::abandon);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.view.give_up();
            self.keeper.free(id);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.view.name())
            .field("token", &self.view.token())
            .field("validity", &self.validity())
            .finish()
    }
}
