//! The lock on a Consul session.

use std::{fmt, future::Future};

use super::asks::Asks;
use crate::{
    Error, Lease,
    locks::handle::{runs, setters},
};

/// A lock in Consul: at most one holder per name.
///
/// It is cheap to clone, and its settings are chained. It is the lock of `consul lock NAME`, so the two exclude each
/// other. For a lock on Redis or Valkey masters use [`quorate::Mutex`](crate::Mutex). The [guide](crate::docs::consul)
/// says what is promised.
///
/// ```no_run
/// # async fn example() -> Result<(), quorate::Error> {
/// use quorate::consul::Consul;
/// let consul = Consul::connect("http://127.0.0.1:8500").await?;
/// let lease = consul.mutex("jobs/nightly").lock().await?;
/// println!("write with token {}", lease.token());
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex(pub(super) Asks);

impl Mutex {
    setters! {
        0.options;
        /// The TTL of the session: how long the lock stays unless it is renewed. Default: 10 s, which is Consul's
        /// least. Consul frees the lock of a dead holder after one to two TTL.
        ttl;
        /// How long [`lock`](Self::lock) waits, counted from its first poll. Default: without a limit. Zero means one
        /// attempt, as [`try_lock`](Self::try_lock) makes.
        wait_timeout;
        /// How a lease is renewed, and for how long. Default: [`Renewal::auto`](crate::Renewal::auto).
        renewal;
        /// The session's lock-delay, at most 60 s. Default: 0 (Consul's own default is 15 s). After Consul has ended
        /// the holder's session, it grants the lock to nobody for this time. A release or a drop frees the lock at
        /// once.
        lock_delay;
        /// The name of the holder, as [`Mutex::label`](crate::Mutex::label). Default: the label of
        /// [`Consul`](super::Consul), which also names the sessions.
        label;
    }

    /// Waits for the lock. A blocking query tells it of changes.
    ///
    /// Waiters of this library are served in the order in which they asked, if each takes its turn within a second.
    /// `consul lock` keeps no order: it may come in between.
    ///
    /// # Errors
    /// - `Held` when `wait_timeout` is over; its text names the holder and its session.
    /// - `NoQuorum` if Consul does not answer, has no leader or refuses the token; it has Consul's answer. It comes at
    ///   once if Consul has not answered before. Otherwise it comes after `wait_timeout`, or after 30 s without one.
    /// - `TooSlow` if Consul answered so late that no validity was left.
    /// - `Invalid` if a name or a setting is not valid, and if something other than a lock uses the name.
    /// - `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped at any time. Its session is destroyed in the background, or the lock that it had taken is given
    /// back.
    pub fn lock(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let lease = self.0.ask(1, true);
        // A wait ends with a lease or with an error.
        async move { lease.await?.ok_or(Error::Closed) }
    }

    /// Takes the lock if it is free and nobody waits for it, in one attempt. Returns `None` otherwise, and while a
    /// lock-delay lasts.
    ///
    /// # Errors
    /// `NoQuorum`, `TooSlow`, `Invalid`, `Closed` as for [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub fn try_lock(
        &self,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        self.0.ask(1, false)
    }

    runs! {
        /// Locks, runs the work under [`Lease::guard`], and waits for the release, as [`Mutex::run`](crate::Mutex::run)
        /// does. The work is `'static`; if it has to borrow, use [`Lease::guard`].
        run => lock;
        try_run => try_lock;
    }

    /// Checks the name and the settings without asking Consul, for programs that report bad settings when they start.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.0.check().map(drop)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.0.name)
            .finish_non_exhaustive()
    }
}
