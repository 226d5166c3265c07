//! A lease as other tasks see it.

use std::{future::Future, time::Duration};

use super::view::View;
use crate::{FencingToken, LossReason, Lost};

/// A view of a [`Lease`](crate::Lease) that other tasks may keep.
///
/// It does not keep the lease. A lease that is released or dropped is lost for its watches, with the reason `Released`.
///
/// [`Mutex::run`](crate::Mutex::run) hands a watch to the work. With [`Renewal::heartbeat`](crate::Renewal::heartbeat)
/// the work uses it to report that it goes on:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
/// use std::time::Duration;
/// use quorate::{Quorum, Renewal};
///
/// let quorum = Quorum::in_memory(3);
/// let import = quorum
///     .mutex("import")
///     .renewal(Renewal::auto().heartbeat(Duration::from_secs(30)));
/// let rows = import
///     .run(|watch| async move {
///         let mut rows = 0;
///         for _page in 0..3 {
///             // … import a page
///             rows += 100;
///             watch.beat();
///         }
///         rows
///     })
///     .await?;
/// assert_eq!(rows, 300);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LeaseWatch(View);

impl LeaseWatch {
    pub(super) fn new(view: View) -> Self {
        Self(view)
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.0.name().as_str()
    }

    /// The fencing token.
    pub fn token(&self) -> FencingToken {
        self.0.token()
    }

    /// The time that is left, by this process's own clock. Zero once the lease is over.
    pub fn validity(&self) -> Duration {
        self.0.validity()
    }

    /// For tests: how long before its end a loss is announced.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn notice(&self) -> Duration {
        self.0.notice()
    }

    /// Returns true while any validity is left. Once false, it stays false.
    pub fn is_valid(&self) -> bool {
        !self.validity().is_zero()
    }

    /// Tells a lease with [`Renewal::heartbeat`](crate::Renewal::heartbeat) that the work goes on, as
    /// [`Lease::beat`](crate::Lease::beat) does. It costs one atomic store, and does nothing once the lease is over.
    pub fn beat(&self) {
        self.0.beat();
    }

    /// Waits until the lease is over.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn lost(&self) -> LossReason {
        self.0.lost().await
    }

    /// Runs `future` while the lease is valid, and drops it when the lease is over, as
    /// [`Lease::guard`](crate::Lease::guard) does.
    ///
    /// It does not keep the lease: when the lease is released or dropped, `future` is dropped too. Tasks that the
    /// future spawned go on.
    ///
    /// # Errors
    /// `Lost`, with the reason. The reason is `Released` if the holder gave the lease up.
    ///
    /// # Cancel safety
    /// May be dropped: that drops `future`, and the lease stays as it was.
    pub async fn guard<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        self.0.guard(future).await
    }
}
