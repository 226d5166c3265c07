//! The semaphore on Consul sessions.

use std::{fmt, future::Future, sync::Arc};

use tokio::sync::oneshot;

use super::{asks::Asks, held, record::View};
use crate::{
    Error, Lease,
    base::name::Name,
    locks::handle::{runs, setters},
};

/// The most permits of one semaphore: its record names all holders, and a transaction of Consul has at most 512 KB.
const MOST: u32 = 8_000;

/// A counting semaphore in Consul: at most `limit` leases at a time.
///
/// It is cheap to clone, and its settings are chained. It is the semaphore of `consul lock -n LIMIT NAME`, and of
/// Consul's own recipe, so they share the permits. For a semaphore on Redis or Valkey masters use
/// [`quorate::Semaphore`](crate::Semaphore). The [guide](crate::docs::consul) says what is promised.
///
/// Consul keeps the limit as long as anybody holds a permit. A caller with another limit is refused.
///
/// ```no_run
/// # async fn example() -> Result<(), quorate::Error> {
/// use quorate::consul::Consul;
/// let consul = Consul::connect("http://127.0.0.1:8500").await?;
/// let workers = consul.semaphore("thumbnails", 3);
/// let permit = workers.acquire().await?;
/// println!("{} left", workers.available().await?);
/// permit.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a semaphore does nothing until it is acquired"]
pub struct Semaphore(pub(super) Asks);

impl Semaphore {
    setters! {
        0.options;
        /// The TTL of the session: how long the permit stays unless it is renewed. Default: 10 s, which is Consul's
        /// least. Consul frees the permit of a dead holder after one to two TTL.
        ttl;
        /// How long [`acquire`](Self::acquire) waits, counted from its first poll. Default: without a limit. Zero means
        /// one attempt, as [`try_acquire`](Self::try_acquire) makes.
        wait_timeout;
        /// How a lease is renewed, and for how long. Default: [`Renewal::auto`](crate::Renewal::auto).
        renewal;
        /// The session's lock-delay, at most 60 s. Default: 0.
        ///
        /// Consul applies it to the keys that a session has locked. In a semaphore that is the holder's own entry, so
        /// it delays nobody. A permit of a dead holder is free as soon as Consul has ended its session.
        lock_delay;
        /// The name of the holder, as [`Mutex::label`](crate::Mutex::label). Default: the label of
        /// [`Consul`](super::Consul), which also names the sessions.
        label;
    }

    /// Waits for a permit. A blocking query tells it of changes.
    ///
    /// Waiters are served in the order of their entries in Consul, if each takes its turn within a second.
    /// `consul lock -n` keeps no order: it may come in between. A waiter for several permits may be
    /// [overtaken](crate::docs::consul#waiters-for-several-permits).
    ///
    /// # Errors
    /// - `LimitConflict` if the record has another limit.
    /// - `Held` when `wait_timeout` is over; its text names the holders and their sessions.
    /// - `NoQuorum`, `TooSlow`, `Invalid`, `Closed` as for [`Mutex::lock`](super::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any time. Its session is destroyed in the background, or the permit that it had taken is given
    /// back.
    pub fn acquire(&self) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        self.ask(1)
    }

    /// Takes a permit if one is free and nobody waits, in one attempt. Returns `None` otherwise.
    ///
    /// # Errors
    /// `LimitConflict`, `NoQuorum`, `TooSlow`, `Invalid`, `Closed` as for [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        let (checked, lease) = (self.check(1), self.0.ask(1, false));
        async move {
            checked?;
            lease.await
        }
    }

    /// Waits for `n` permits (at most 63), all or none, as one lease with one token. The lease is lost when any of them
    /// is.
    ///
    /// They are taken in one transaction, so nobody holds a part of them while it waits for the rest. Waiters for fewer
    /// permits take free permits while there are too few for this call. So it may wait longer than they do: see [the
    /// guide](crate::docs::consul#waiters-for-several-permits).
    ///
    /// # Errors
    /// - `Invalid` also if `n` is 0, above the limit, or above 63.
    /// - As for [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub fn acquire_many(
        &self,
        n: u32,
    ) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        self.ask(n)
    }

    /// Returns how many permits are free. It is a snapshot, and may be outdated when you read it.
    ///
    /// # Errors
    /// `NoQuorum`, `Invalid`.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn available(&self) -> impl Future<Output = Result<u32, Error>> + Send + 'static + use<> {
        let (this, checked) = (self.clone(), self.check(1));
        async move {
            let name = checked?;
            let view = this.look(&name).await?;
            Ok(view.free(this.limit()))
        }
    }

    /// Changes the limit: in Consul, if anybody holds a permit, and for all clones of this handle.
    ///
    /// It waits for attempts of these clones that are under way, because each of them may write the limit that it was
    /// made with.
    ///
    /// A smaller limit ends no lease: holders keep their permits. Other handles that were made with the old limit are
    /// refused from now on, because Consul's record does not say which limit is newer. Nothing remains of the new limit
    /// once nobody holds a permit. So also start the programs with the new one.
    ///
    /// # Errors
    /// `NoQuorum`, `Invalid`.
    ///
    /// # Cancel safety
    /// May be dropped; the resize may have happened or not.
    pub fn resize(
        &self,
        limit: u32,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let (this, checked) = (self.clone(), self.check(1));
        async move {
            let name = checked?;
            check_limit(limit)?;
            let (done, outcome) = oneshot::channel();
            let agent = Arc::clone(&this.0.root.agent);
            let ending = Arc::clone(agent.ending());
            // It runs in a task of its own: while it has the limit alone nobody can acquire, and a future that is kept
            // may not be polled for long.
            agent.spawn(async move {
                let _ = done.send(this.change(&name, limit).await);
            });
            outcome.await.unwrap_or_else(|_| Err(ending.error()))
        }
    }

    async fn change(&self, name: &Name, limit: u32) -> Result<(), Error> {
        let change = self.0.limit.change().await;
        let http = &self.0.root.agent.http;
        let place = self.0.place(name);
        loop {
            let view = self.look(name).await?;
            let changed = match view.resize(&place.folder, limit) {
                Some(step) => http
                    .transact(&[step])
                    .await
                    .map_err(|fault| fault.error(name.as_str(), &http.node))?
                    .is_ok(),
                None => true,
            };
            if changed {
                change.to(limit);
                return Ok(());
            }
        }
    }

    runs! {
        /// Acquires a permit, runs the work under [`Lease::guard`], and waits for the release, as
        /// [`Mutex::run`](crate::Mutex::run) does. The work is `'static`; if it has to borrow, use [`Lease::guard`].
        run => acquire;
        try_run => try_acquire;
    }

    /// Checks the name, the limit and the settings without asking Consul, for programs that report bad settings when
    /// they start.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn validate(&self) -> Result<(), Error> {
        self.check(1).map(drop)
    }

    fn ask(&self, n: u32) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let (checked, lease) = (self.check(n), self.0.ask(n, true));
        async move {
            checked?;
            // A wait ends with a lease or with an error.
            lease.await?.ok_or(Error::Closed)
        }
    }

    async fn look(&self, name: &Name) -> Result<View, Error> {
        let (http, place) = (&self.0.root.agent.http, self.0.place(name));
        let (pairs, index) = http
            .list(&place.folder, None)
            .await
            .map_err(|fault| fault.error(name.as_str(), &http.node))?;
        View::read(self.0.form, &place.folder, &pairs, index)
            .map_err(|foreign| held::foreign(name, &foreign))
    }

    fn limit(&self) -> u32 {
        self.0.limit.get()
    }

    fn check(&self, n: u32) -> Result<Name, Error> {
        let (name, ..) = self.0.check()?;
        let limit = self.limit();
        check_limit(limit)?;
        if n == 0 || n > limit || n > held::MOST_AT_ONCE {
            return Err(held::too_many(n, limit));
        }
        Ok(name)
    }
}

fn check_limit(limit: u32) -> Result<(), Error> {
    match limit {
        1..=MOST => Ok(()),
        _ => Err(Error::Invalid(format!(
            "a limit of {limit} is not allowed: a semaphore in Consul has 1 to {MOST} permits"
        ))),
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.0.name)
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}
