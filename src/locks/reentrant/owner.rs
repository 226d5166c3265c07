//! Owners, and the place where an owner holds or waits for one name.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{self, BoxFuture, Either, Shared, WeakShared},
};
use tokio::{sync::Notify, time::Instant};

use crate::{Error, Lease, Mutex, engine::Engine, lease::shares::Shares};

/// How often a lock is won that is lost again before anybody has a share, until the call fails.
const TRIES: u32 = 5;

/// The holder of a [`ReentrantMutex`](crate::ReentrantMutex), which may lock again what it holds.
///
/// An owner is a value that you pass along, not a thread or a task. Its clones are the same owner, on any task and any
/// thread of this process. Two owners made by [`new`](Self::new) never share a lock. Make one for each unit of work
/// that may lock a name twice, such as a request or a job.
///
/// An owner keeps nothing for names that it neither holds nor waits for. Dropping it releases nothing, because each
/// [`Lease`](crate::Lease) holds on by itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// use quorate::Owner;
/// let mutex = quorate::Quorum::in_memory(3).reentrant_mutex("account:7");
/// let (request, other) = (Owner::new(), Owner::new());
///
/// let lease = mutex.lock(&request).await?;
/// let owner = request.clone(); // carried into another task, it is the same owner
/// let inner = tokio::spawn(mutex.try_lock(&owner)).await.expect("it does not panic")?;
/// assert_eq!(inner.map(|lease| lease.token()), Some(lease.token()));
/// assert!(mutex.try_lock(&other).await?.is_none(), "another owner waits");
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Owner(Arc<Places>);

/// The places where an owner holds or waits.
#[derive(Default)]
pub(super) struct Places(StdMutex<HashMap<Key, Weak<Place>>>);

/// A name, and the address of the engine that locks it. A place keeps its engine, so no other engine gets that address
/// while the key is in the map.
type Key = (usize, Arc<str>);

impl Owner {
    /// Makes a new owner, which holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The place where this owner locks this name of a quorum.
    pub(super) fn place(&self, engine: &Engine, name: &Arc<str>) -> Arc<Place> {
        let key = (engine.address(), Arc::clone(name));
        let mut places = self.0.lock();
        if let Some(place) = places.get(&key).and_then(Weak::upgrade) {
            return place;
        }
        let place = Place::new(Arc::downgrade(&self.0), engine.clone(), Arc::clone(name));
        places.insert(key, Arc::downgrade(&place));
        place
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Weak<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a place that ends. Another place for the same name may already have replaced it in the map.
    pub(super) fn remove(&self, key: &Key, place: *const Place) {
        let mut places = self.lock();
        if places.get(key).is_some_and(|weak| weak.as_ptr() == place) {
            places.remove(key);
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("names", &self.0.lock().len())
            .finish()
    }
}

/// The place where an owner locks one name of one quorum. It lives as long as somebody waits or holds here, and removes
/// itself from its owner's map at the end.
pub(super) struct Place {
    owner: Weak<Places>,
    engine: Engine,
    name: Arc<str>,
    state: StdMutex<State>,
    /// Notified when this owner has won the lock, so that all who wait here look for a share.
    won: Notify,
}

#[derive(Default)]
struct State {
    /// The newest lease. Its shares keep it, and this place too.
    held: Weak<Shares<Arc<Place>>>,
    /// The waits that others may join. The callers that wait keep them alive.
    waits: Vec<(End, WeakShared<Answer>)>,
}

/// The result of a wait: the first share of the lease that was won. It is kept until the last caller that joined the
/// wait has a share of its own.
type Answer = BoxFuture<'static, Result<Arc<Lease>, Error>>;

/// When a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    At(Instant),
    Never,
}

impl Place {
    pub(super) fn new(owner: Weak<Places>, engine: Engine, name: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            owner,
            engine,
            name,
            state: StdMutex::default(),
            won: Notify::new(),
        })
    }

    pub(super) async fn lock(self: Arc<Self>, mutex: Mutex) -> Result<Lease, Error> {
        let end = End::after(mutex.limit());
        let mut tries = 0;
        loop {
            let mut wait_end = end;
            // Made only if nothing is held.
            let wait = async {
                let (joined_end, wait) = self.wait(&mutex, end);
                wait_end = joined_end;
                wait.await
            };
            match self.share_or(wait).await {
                Either::Left(lease) => return Ok(lease),
                Either::Right(Err(error)) if !wait_end.came_before(end) => return Err(error),
                // The lease that was won is lost already. If leases end at once, every later one does so too.
                Either::Right(Ok(first)) => {
                    tries += 1;
                    if let Some(lost) = first.lost_now().filter(|_| tries >= TRIES) {
                        return Err(lost.into());
                    }
                }
                // The wait that was joined had an earlier end.
                Either::Right(Err(_)) => {}
            }
        }
    }

    pub(super) async fn try_lock(self: Arc<Self>, mutex: Mutex) -> Result<Option<Lease>, Error> {
        let attempt = async {
            match mutex.try_lock().await? {
                Some(lease) => self.hold(lease).map(Some),
                None => Ok(None),
            }
        };
        match self.share_or(attempt).await {
            Either::Left(lease) => Ok(Some(lease)),
            Either::Right(answer) => answer.map(|_| None),
        }
    }

    /// Returns a share once one can be had; otherwise the answer. The lease that the answer has won is kept until then.
    async fn share_or<T>(&self, answer: impl Future<Output = T>) -> Either<Lease, T> {
        let mut answer = pin!(answer);
        loop {
            let won = pin!(self.won.notified());
            if let Some(lease) = self.share() {
                return Either::Left(lease);
            }
            if let Either::Left((answer, _)) = future::select(answer.as_mut(), won).await {
                return match self.share() {
                    Some(lease) => Either::Left(lease),
                    None => Either::Right(answer),
                };
            }
        }
    }

    /// Returns a share of the lease that is held, unless it is over.
    fn share(&self) -> Option<Lease> {
        let held = self.state().held.upgrade();
        held?.join()
    }

    /// Returns the wait to join: of the waits that end no later than this caller's, the one that ends last. If there is
    /// none, it starts a new wait. Nobody joins a single attempt, because it may have been refused before the second
    /// caller asked.
    fn wait(self: &Arc<Self>, mutex: &Mutex, end: End) -> (End, Shared<Answer>) {
        let Some(mutex) = end.cut(mutex) else {
            let once = mutex.clone().wait_timeout(Duration::ZERO);
            return (end, self.ask(&once));
        };
        // An answer that is already there may be older than this caller's question.
        let is_open = |wait: &Shared<Answer>| wait.peek().is_none();
        // Dropped after the state is unlocked: dropping the last reference drops the wait itself.
        let mut waits = Vec::new();
        let mut state = self.state();
        state.waits.retain(|(end, wait)| {
            let Some(wait) = wait.upgrade() else {
                return false;
            };
            let keep = is_open(&wait);
            waits.push((*end, wait));
            keep
        });
        let joined = waits.iter();
        let joined = joined.filter(|(theirs, wait)| *theirs <= end && is_open(wait));
        if let Some(joined) = joined.max_by_key(|(theirs, _)| *theirs) {
            return joined.clone();
        }
        let wait = self.ask(&mutex);
        state.waits.extend(wait.downgrade().map(|weak| (end, weak)));
        (end, wait)
    }

    fn ask(self: &Arc<Self>, mutex: &Mutex) -> Shared<Answer> {
        let (place, lease) = (Arc::clone(self), mutex.lock());
        async move { place.hold(lease.await?) }.boxed().shared()
    }

    /// Keeps the lease that was won, and wakes all waiters here so that each gets a share.
    fn hold(self: &Arc<Self>, lease: Lease) -> Result<Arc<Lease>, Error> {
        let held = Shares::of(lease, Arc::clone(self));
        let (shares, first) = held.ok_or(Error::Closed)?;
        {
            let mut state = self.state();
            // An answer that was looked at late may be older than the lease that is held.
            let held = state.held.upgrade();
            if held.is_none_or(|held| held.is_over() || held.token() < shares.token()) {
                state.held = Arc::downgrade(&shares);
            }
        }
        self.won.notify_waiters();
        Ok(Arc::new(first))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            let key = (self.engine.address(), Arc::clone(&self.name));
            owner.remove(&key, self);
        }
    }
}

impl End {
    fn after(limit: Option<Duration>) -> Self {
        limit
            .and_then(|limit| Instant::now().checked_add(limit))
            .map_or(Self::Never, Self::At)
    }

    /// The mutex with the wait that is left until this end; `None` if the end has come.
    fn cut(self, mutex: &Mutex) -> Option<Mutex> {
        let Self::At(end) = self else {
            return Some(mutex.clone());
        };
        let left = end.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| mutex.clone().wait_timeout(left))
    }

    /// Returns true if this end has come, and `other` has not.
    fn came_before(self, other: Self) -> bool {
        let now = Self::At(Instant::now());
        self <= now && now < other
    }
}
