//! The parts that all handles share: their setters, and running work under a lease.

use std::future::Future;

use crate::{Error, Lease, LeaseWatch, Report, base::logs};

/// The setters of a handle, each with the handle's own doc. The first line names the field that holds its
/// [`LeaseOptions`](super::options::LeaseOptions).
macro_rules! setters {
    (
        $($options:tt).+;
        $(#[$ttl:meta])* ttl;
        $(#[$wait_timeout:meta])* wait_timeout;
        $(#[$renewal:meta])* renewal;
        $(#[$lock_delay:meta])* lock_delay;
        $(#[$label:meta])* label;
    ) => {
        $(#[$ttl])*
        pub fn ttl(mut self, d: std::time::Duration) -> Self {
            self.$($options).+.set_ttl(d);
            self
        }

        $(#[$wait_timeout])*
        pub fn wait_timeout(mut self, d: std::time::Duration) -> Self {
            self.$($options).+.wait_timeout = Some(d);
            self
        }

        $(#[$renewal])*
        pub fn renewal(mut self, renewal: $crate::Renewal) -> Self {
            self.$($options).+.renewal = renewal;
            self
        }

        $(#[$lock_delay])*
        pub fn lock_delay(mut self, d: std::time::Duration) -> Self {
            self.$($options).+.lock_delay = d;
            self
        }

        $(#[$label])*
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.$($options).+.label = $crate::base::owner::Label::new(&label.into()).map(Some);
            self
        }
    };
}
pub(crate) use setters;

/// Two methods that run work under a lease: one waits for the lease of `$lock`, the other runs only if `$try_lock`
/// wins. Both may have an argument before the work.
macro_rules! runs {
    (
        $(#[$run_doc:meta])*
        $run:ident => $lock:ident;
        $(#[$try_run_doc:meta])*
        $try_run:ident => $try_lock:ident;
        $($owner:ident: $Owner:ty;)?
    ) => {
        $(#[$run_doc])*
        ///
        /// # Errors
        #[doc = concat!("- As for [`", stringify!($lock), "`](Self::", stringify!($lock), ").")]
        /// - `Lost` if the lease was lost before the work was done. The work was dropped then.
        ///
        /// It is not an error if the release cannot be confirmed.
        ///
        /// # Cancel safety
        /// May be dropped: that drops the work, and the lock is released in the background.
        pub fn $run<F, W, T>(
            &self,
            $($owner: $Owner,)?
            work: F,
        ) -> impl std::future::Future<Output = Result<T, $crate::Error>> + Send + 'static + use<F, W, T>
        where
            F: FnOnce($crate::LeaseWatch) -> W + Send + 'static,
            W: Future<Output = T> + Send + 'static,
            T: Send + 'static,
        {
            let lease = self.$lock($($owner)?);
            async move { $crate::locks::handle::run(lease.await?, work).await }
        }

        #[doc = concat!(
            "Does what [`", stringify!($run), "`](Self::", stringify!($run), ") does if [`", stringify!($try_lock),
            "`](Self::", stringify!($try_lock), ") wins. Otherwise it returns `None`.",
        )]
        ///
        $(#[$try_run_doc])*
        /// # Errors
        #[doc = concat!("- As for [`", stringify!($try_lock), "`](Self::", stringify!($try_lock), ").")]
        #[doc = concat!("- `Lost` as for [`", stringify!($run), "`](Self::", stringify!($run), ").")]
        ///
        /// # Cancel safety
        #[doc = concat!("As for [`", stringify!($run), "`](Self::", stringify!($run), ").")]
        pub fn $try_run<F, W, T>(
            &self,
            $($owner: $Owner,)?
            work: F,
        ) -> impl std::future::Future<Output = Result<Option<T>, $crate::Error>> + Send + 'static + use<F, W, T>
        where
            F: FnOnce($crate::LeaseWatch) -> W + Send + 'static,
            W: Future<Output = T> + Send + 'static,
            T: Send + 'static,
        {
            let attempt = self.$try_lock($($owner)?);
            async move {
                match attempt.await? {
                    Some(lease) => $crate::locks::handle::run(lease, work).await.map(Some),
                    None => Ok(None),
                }
            }
        }
    };
}
pub(crate) use runs;

/// Runs the work under the lease, and waits for the release.
pub(crate) async fn run<F, W, T>(lease: Lease, work: F) -> Result<T, Error>
where
    F: FnOnce(LeaseWatch) -> W,
    W: Future<Output = T>,
{
    let done = lease.guard(work(lease.watch())).await;
    match lease.release().await {
        Ok(()) | Err(Error::Lost(_)) => {}
        Err(error) => logs::warn!(
            name = error.report().map(Report::subject),
            reason = error.to_string(),
            nodes = error.report().map(Report::to_string),
            "a release was not confirmed"
        ),
    }
    Ok(done?)
}
