//! The thread for all background work, and the way to wait for it.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    thread,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::{mpsc, oneshot},
    task::coop,
};

use crate::Error;

/// The name of the thread.
const NAME: &str = "quorate";
/// The name of the threads that run callbacks and look up host names.
const ASIDE: &str = "quorate-aside";
/// More steps than tokio lets a task make before it has to let others run (128).
const MORE_THAN_A_TASK_MAY: usize = 256;

/// The last work of the thread.
type Last = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A runtime on a thread of its own. It ends when the last reference to this is gone.
pub(super) struct Root {
    runtime: Handle,
    end: Option<oneshot::Sender<Option<Last>>>,
    last: OnceLock<Box<dyn Fn() -> Last + Send + Sync>>,
    /// Each callback that may still begin has one of these.
    pending: mpsc::Sender<()>,
}

impl Root {
    /// Starts the thread.
    ///
    /// # Errors
    /// - `Invalid` in async code.
    /// - `System` if no thread can be started.
    pub(super) fn start() -> Result<Arc<Self>, Error> {
        check()?;
        let failed = |error: std::io::Error| {
            Error::System(format!("cannot start a thread for {NAME}: {error}"))
        };
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().thread_name(ASIDE).build();
        let runtime = runtime.map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<Option<Last>>();
        let (pending, mut callbacks) = mpsc::channel(1);
        let life = move || {
            runtime.block_on(async {
                if let Ok(Some(last)) = ended.await {
                    last.await;
                }
                // No lease is left, so each callback is either due by now or never called. `recv` returns when the last
                // sender is dropped, because nobody sends anything.
                callbacks.recv().await;
            });
            // A callback that is still running does not keep the thread.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(NAME.to_owned());
        thread.spawn(life).map_err(failed)?;
        Ok(Arc::new(Self {
            runtime: handle,
            end: Some(end),
            last: OnceLock::new(),
            pending,
        }))
    }

    /// Sets the last work, which is done once nobody has this any more. Only the first call counts.
    pub(super) fn at_the_end<F>(&self, last: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let _ = self.last.set(Box::new(move || Box::pin(last())));
    }

    /// Waits for a future on this thread.
    ///
    /// # Errors
    /// `Invalid` in async code: then nothing has begun.
    pub(super) fn wait<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        check()?;
        if Handle::try_current().is_ok() && !self.may_block() {
            return Err(in_async_code());
        }
        Ok(self.runtime.block_on(future))
    }

    /// Returns true if tokio lets this thread wait. Otherwise tokio panics, and prints that. This finds the few cases
    /// that `is_async` does not find.
    fn may_block(&self) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(async {}))).is_ok()
    }

    /// Calls something that does not wait, within the runtime.
    pub(super) fn within<T>(&self, does: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        does()
    }

    /// Waits for `news` in the background, and then calls `callback` on a thread where it may block. Without news it is
    /// not called. The end waits until the callback has begun.
    pub(super) fn call_after<T: Send + 'static>(
        &self,
        news: impl Future<Output = Option<T>> + Send + 'static,
        callback: impl FnOnce(T) + Send + 'static,
    ) {
        let (runtime, pending) = (self.runtime.clone(), self.pending.clone());
        self.runtime.spawn(async move {
            if let Some(news) = news.await {
                runtime.spawn_blocking(move || {
                    drop(pending);
                    callback(news);
                });
            }
        });
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let last = self.last.get().map(|last| last());
        if let Some(end) = self.end.take() {
            let _ = end.send(last);
        }
    }
}

/// # Errors
/// `Invalid` in async code.
fn check() -> Result<(), Error> {
    match is_async() {
        false => Ok(()),
        true => Err(in_async_code()),
    }
}

fn in_async_code() -> Error {
    Error::Invalid(
        "a call of quorate::blocking in async code would stop the other tasks of this thread: use the primitives of \
         quorate itself and .await, or tokio::task::spawn_blocking"
            .to_owned(),
    )
}

/// Returns true if this thread polls a task of tokio.
///
/// The presence of a runtime says nothing: `spawn_blocking` and `Runtime::enter` have one too, and there a thread may
/// block. Tokio's own way to find out is a panic. But a task that is polled may make only a limited number of steps
/// before it has to let others run, and only tasks are limited so. Code that can make more steps is not a task. The
/// test uses no step up: each step is given back, the last one first.
fn is_async() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut steps = Vec::with_capacity(MORE_THAN_A_TASK_MAY);
    let mut is_counted = false;
    for _ in 0..MORE_THAN_A_TASK_MAY {
        match coop::poll_proceed(&mut cx) {
            Poll::Ready(step) => steps.push(step),
            Poll::Pending => {
                is_counted = true;
                break;
            }
        }
    }
    while let Some(step) = steps.pop() {
        drop(step);
    }
    is_counted
}
