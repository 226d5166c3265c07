//! A mutex that its holder may lock again. It has an explicit owner, and counted shares of one lease.

mod owner;

use std::{fmt, future::Future, sync::Arc};

pub use owner::Owner;

use crate::{
    Error, Lease, Mutex,
    locks::handle::{runs, setters},
};

/// A distributed mutex that its holder may lock again.
///
/// It is cheap to clone, and its settings are chained. If no work locks a name twice, use a [`Mutex`]: there a second
/// `lock()` waits, which shows the mistake.
///
/// The holder is an [`Owner`], a value that you pass to each call. While an owner holds the lock, its next
/// [`lock`](Self::lock) is answered at once with another [`Lease`] that has the same token, and no node is asked. Each
/// of these leases is a share of one lock. The last one to be released or dropped frees it.
///
/// On the nodes it is a [`Mutex`], so `mutex("a")` and `reentrant_mutex("a")` exclude each other, and all promises of
/// [`Mutex`] hold.
///
/// # The shares
/// - The settings of the first entry count until the last share has ended.
/// - A loss reaches every share. The owner's next `lock` is then a new lock with a new token, even while shares of the
///   lost one are left. It can be won once the nodes have freed the lost one.
/// - `extend`, `beat`, `validity` and `held_for` concern the lock as a whole: a beat of any share counts for all of
///   them.
/// - `release` of a share that is not the last one is `Ok` at once. The last share's `release` waits until a majority
///   confirms it. Both are `Lost` if the lock was lost before.
/// - A share that was released, dropped or abandoned is over for its own watches only.
/// - A call that has joined a wait counts as a share from the moment the lock is won until the call is answered or
///   dropped.
/// - `abandon` gives up one share. If any share was abandoned, the last one to end leaves the lock to its ttl, however
///   it ends. The reason is that the work of the abandoned share may still be going on.
///
/// # Why the owner is not a thread
/// Other libraries know the holder by its thread id, as Redisson does. In async programs that goes wrong:
/// - A task that awaits may continue on another thread. It then waits for itself, or may not release what it holds
///   (redisson#3580).
/// - Two tasks that run on one thread would both be let in.
/// - Thread ids are reused. A new thread could enter a lock that an ended thread has left behind.
///
/// The id of a task would be no better: a task that the holder spawns would be a stranger. So you say who the owner is.
///
/// # What is not promised
/// - Nothing is shared between processes, nor between two quorums that were connected separately, even to the same
///   nodes. There an owner waits for itself.
/// - Tasks of one owner do not exclude each other, because they share the lock.
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
    /// `mutex` has the same name.
    pub(crate) fn new(mutex: Mutex, name: Arc<str>) -> Self {
        Self { mutex, name }
    }

    setters! {
        mutex.options;
        /// How long a grant lasts unless it is renewed. As [`Mutex::ttl`].
        ttl;
        /// How long [`lock`](Self::lock) waits, counted from its first poll. As [`Mutex::wait_timeout`]. Each call has
        /// its own, also if it joins a wait.
        wait_timeout;
        /// How a lease is renewed, and for how long. As [`Mutex::renewal`].
        renewal;
        /// How much longer the nodes keep the lock than its holder believes. As [`Mutex::lock_delay`].
        lock_delay;
        /// The name of the holder. As [`Mutex::label`]. While the owner holds the lock or waits for it, the label of
        /// its first call stands.
        label;
    }

    /// Locks for this owner. If the owner holds the lock, it returns at once. Otherwise it queues, as [`Mutex::lock`]
    /// does.
    ///
    /// While another task of the same owner waits, this call joins that wait: there is one request for both. When any
    /// call of the owner wins, every waiting call of the owner gets a share.
    ///
    /// Each call keeps its own `wait_timeout`. If the wait that it joined ends earlier than its own, it goes on by
    /// itself. If its own ends earlier than the waits of the others, it makes a request of its own from the start.
    /// Every other error of a joined wait reaches all calls that joined it.
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
    /// - As for [`Mutex::lock`]. An owner that holds the lock gets only `Invalid`.
    /// - `Lost` if each lease ends before anybody has a share of it, for example with a `max_hold` below its notice.
    ///
    /// # Cancel safety
    /// May be dropped at any time. Other calls that joined the wait go on, also if this call began it. When the last of
    /// them is dropped, the request is taken back, as for [`Mutex::lock`].
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

    /// Locks for this owner if it holds the lock or if the lock is free, in one attempt. Returns `None` if a majority
    /// answered and the lock cannot be won.
    ///
    /// It does not join the wait of another task of the same owner, but makes an attempt of its own. If the attempt
    /// wins, the waiting tasks get their shares. If they win meanwhile, this call gets a share too.
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
    /// - As for [`Mutex::try_lock`]. An owner that holds the lock gets only `Invalid`.
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

    runs! {
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
        /// The work is `'static`; if it has to borrow, use [`Lease::guard`].
        run => lock;
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
        try_run => try_lock;
        owner: &Owner;
    }

    /// Checks the name and the settings without asking any node, for programs that report bad settings when they start.
    ///
    /// # Errors
    /// `Invalid`, as for [`lock`](Self::lock).
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
