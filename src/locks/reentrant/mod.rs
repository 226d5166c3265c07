//! A mutex that its holder may lock again: an explicit owner, and counted shares of one lease.

mod owner;

use std::{fmt, future::Future, sync::Arc, time::Duration};

pub use owner::Owner;

use crate::{Error, Lease, LeaseWatch, Mutex, Renewal, locks::mutex};

/// A distributed mutex that its holder may lock again. Cheap to clone; settings are chained.
///
/// The holder is an [`Owner`], a value that you pass to each call. While an owner holds the lock, its next
/// [`lock`](Self::lock) is answered at once with another [`Lease`] that has the same token, and no node is asked. Each of
/// these leases is a share of one lock. The last one to be released or dropped frees it.
///
/// On the nodes it is a [`Mutex`], so `mutex("a")` and `reentrant_mutex("a")` exclude each other, and all promises of
/// [`Mutex`] hold. Use [`Mutex`] where nothing locks twice: a second `lock()` there shows a mistake, because it waits.
///
/// # The shares
/// - The settings of the first entry count, until the last share has ended.
/// - A loss reaches every share. Afterwards the owner's next `lock` is a new lock with a new token, even while shares of
///   the lost one are still there; it can be won once the nodes have freed the lost one.
/// - `extend`, `beat`, `validity` and `held_for` are those of the lock: a beat of any share keeps all of them.
/// - `release` of a share that is not the last one is `Ok` at once. The last one's waits until a majority confirms it.
///   Both are `Lost` when the lock was lost before.
/// - A share that was released, dropped or abandoned is over for its own watches, and for no others.
/// - A call that has joined a wait counts as a share from the moment the lock is won, until it is answered or dropped.
/// - `abandon` gives up one share. If any share was abandoned, the last one to end leaves the lock to its ttl and does
///   not free it, however it ends: what the abandoned share began may still be going on.
///
/// # Why the owner is not a thread
/// Other libraries know the holder by its thread id, as Redisson does. In async programs that goes wrong:
/// - A task that awaits may go on with another thread. It then waits for itself, or may not release what it holds
///   (redisson#3580).
/// - Two tasks that run on one thread would both be let in.
/// - Thread ids are given out again: a new thread could enter where one that is gone has left a lock.
///
/// The id of a task would be no better: what the holder spawns would be a stranger. So you say who the owner is.
///
/// # What is not promised
/// - Nothing is shared between processes, nor between two quorums that were connected separately, even to the same
///   nodes. There an owner waits for itself.
/// - Tasks of one owner do not exclude each other: that is what sharing means.
/// - The store sees one token for all shares, so it cannot tell their writes apart.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// use quorate::{Error, Owner, Quorum};
///
/// async fn transfer(quorum: &Quorum, owner: &Owner) -> Result<(), Error> {
///     let lease = quorum.reentrant_mutex("account:7").lock(owner).await?;
///     withdraw(quorum, owner).await?; // locks it again
///     lease.release().await // the last one: waits until a majority confirms
/// }
///
/// async fn withdraw(quorum: &Quorum, owner: &Owner) -> Result<(), Error> {
///     let lease = quorum.reentrant_mutex("account:7").lock(owner).await?;
///     lease.release().await // within a transfer Ok at once: the lock is still held
/// }
///
/// let quorum = Quorum::in_memory(3);
/// transfer(&quorum, &Owner::new()).await?;
/// withdraw(&quorum, &Owner::new()).await?; // also by itself
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct ReentrantMutex {
    mutex: Mutex,
    name: Arc<str>,
}

impl ReentrantMutex {
    /// `mutex`: of this name.
    pub(crate) fn new(mutex: Mutex, name: Arc<str>) -> Self {
        Self { mutex, name }
    }

    /// How long a grant lasts unless it is renewed. As [`Mutex::ttl`].
    pub fn ttl(mut self, d: Duration) -> Self {
        self.mutex = self.mutex.ttl(d);
        self
    }

    /// How long [`lock`](Self::lock) waits, counted from its first poll. As [`Mutex::wait_timeout`]. Each call has its
    /// own, also where it joins a wait.
    pub fn wait_timeout(mut self, d: Duration) -> Self {
        self.mutex = self.mutex.wait_timeout(d);
        self
    }

    /// Whether and for how long a lease is renewed. As [`Mutex::renewal`].
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.mutex = self.mutex.renewal(renewal);
        self
    }

    /// How much longer the nodes keep the lock than its holder believes. As [`Mutex::lock_delay`].
    pub fn lock_delay(mut self, d: Duration) -> Self {
        self.mutex = self.mutex.lock_delay(d);
        self
    }

    /// Locks for this owner: at once if it holds the lock, otherwise it waits in line, as [`Mutex::lock`] does.
    ///
    /// While another task of the same owner waits, this call joins that wait: there is one request for both, and
    /// whoever of the owner wins, each gets a share. Each call keeps its own `wait_timeout`. If the wait that it
    /// joined ends earlier than its own, it goes on by itself. If its own ends earlier, it asks for itself from the
    /// start. Every other error of a joined wait is the error of all who joined.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let mutex = quorate::Quorum::in_memory(3).reentrant_mutex("account:7");
    /// let owner = quorate::Owner::new();
    /// let outer = mutex.lock(&owner).await?;
    /// let inner = mutex.lock(&owner).await?;
    /// assert_eq!(outer.token(), inner.token());
    /// outer.release().await?; // Ok at once
    /// assert!(inner.is_valid());
    /// inner.release().await?; // frees it
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - As for [`Mutex::lock`], but that an owner that holds the lock gets only `Invalid`.
    /// - `Lost` where each lease ends before anybody has a share of it, as with a `max_hold` below its notice.
    ///
    /// # Cancel safety
    /// May be dropped at any time. Others that joined the wait go on, also if it was begun here. With the last of
    /// them the request is taken back, as for [`Mutex::lock`].
    pub fn lock(
        &self,
        owner: &Owner,
    ) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let (mutex, name, owner) = (self.mutex.clone(), Arc::clone(&self.name), owner.clone());
        async move {
            mutex.validate()?;
            owner.place(mutex.engine(), &name).lock(mutex).await
        }
    }

    /// Locks for this owner if it holds the lock or if the lock is free: one attempt. `None` when a majority
    /// answered and it cannot be won.
    ///
    /// It joins no wait: while another task of the same owner waits, this is an attempt of its own. If it wins,
    /// those who wait get their shares; if they win meanwhile, so does this call.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let mutex = quorate::Quorum::in_memory(3).reentrant_mutex("account:7");
    /// let (owner, other) = (quorate::Owner::new(), quorate::Owner::new());
    /// let lease = mutex.lock(&owner).await?;
    /// assert!(mutex.try_lock(&owner).await?.is_some());
    /// assert!(mutex.try_lock(&other).await?.is_none());
    /// # drop(lease); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - As for [`Mutex::try_lock`], but that an owner that holds the lock gets only `Invalid`.
    ///
    /// # Cancel safety
    /// As for [`Mutex::try_lock`].
    pub fn try_lock(
        &self,
        owner: &Owner,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        let (mutex, name, owner) = (self.mutex.clone(), Arc::clone(&self.name), owner.clone());
        async move {
            mutex.validate()?;
            owner.place(mutex.engine(), &name).try_lock(mutex).await
        }
    }

    /// Locks for this owner, runs the work under [`Lease::guard`], and waits for the release of this share.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let mutex = quorate::Quorum::in_memory(3).reentrant_mutex("account:7");
    /// let owner = quorate::Owner::new();
    /// let (again, me) = (mutex.clone(), owner.clone());
    /// let same = mutex.run(&owner, |outer| async move {
    ///     again.run(&me, |inner| async move { inner.token() == outer.token() }).await
    /// });
    /// assert!(same.await??);
    /// # Ok(()) }
    /// ```
    ///
    /// The work is `'static`; to borrow, use [`Lease::guard`].
    ///
    /// # Errors
    /// - As for [`lock`](Self::lock).
    /// - `Lost` when the lock was lost before the work was done: the work was dropped then.
    ///
    /// A release that could not be confirmed is not an error of the work.
    ///
    /// # Cancel safety
    /// Dropping it drops the work and gives up this share in the background.
    pub fn run<F, W, T>(
        &self,
        owner: &Owner,
        work: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let lease = self.lock(owner);
        async move { mutex::run(lease.await?, work).await }
    }

    /// Does what [`run`](Self::run) does if this owner holds the lock or if it is free; otherwise returns `None`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
    /// let mutex = quorate::Quorum::in_memory(3).reentrant_mutex("account:7");
    /// let (owner, other) = (quorate::Owner::new(), quorate::Owner::new());
    /// let lease = mutex.lock(&owner).await?;
    /// assert_eq!(mutex.try_run(&owner, |_| async { 1 }).await?, Some(1));
    /// assert_eq!(mutex.try_run(&other, |_| async { 1 }).await?, None);
    /// # drop(lease); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - As for [`try_lock`](Self::try_lock).
    /// - `Lost` as for [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    pub fn try_run<F, W, T>(
        &self,
        owner: &Owner,
        work: F,
    ) -> impl Future<Output = Result<Option<T>, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        mutex::try_run(self.try_lock(owner), work)
    }

    /// Checks the name and the settings as [`lock`](Self::lock) does, without asking any node: for programs that
    /// report bad settings when they start.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.mutex.validate()
    }
}

impl fmt::Debug for ReentrantMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantMutex")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
