//! The thread on which everything in the background lives, and the way to wait for it.

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
/// The name of those that run callbacks and look names of hosts up.
const ASIDE: &str = "quorate-aside";
/// More than tokio lets a task do before it has to let others run (128).
const MORE_THAN_A_TASK_MAY: usize = 256;

/// What is done at the end.
type Last = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A runtime on a thread of its own. It ends with the last of those who have it.
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
    /// - `System` where there is no thread to be had.
    pub(super) fn start() -> Result<Arc<Self>, Error> {
        check()?;
        let failed =
            |error: std::io::Error| Error::System(format!("no thread for {NAME}: {error}"));
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
                // No lease is left, so each callback is due by now or never. Nobody sends anything.
                callbacks.recv().await;
            });
            // A callback that is still at work does not keep the thread.
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

    /// What is to be done at the end, once nobody has this any more. The first call counts.
    pub(super) fn at_the_end<F>(&self, last: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let _ = self.last.set(Box::new(move || Box::pin(last())));
    }

    /// Waits for it, on this thread.
    ///
    /// # Errors
    /// `Invalid` in async code: nothing is begun then.
    pub(super) fn wait<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        check()?;
        if Handle::try_current().is_ok() && !self.may_block() {
            return Err(in_async_code());
        }
        Ok(self.runtime.block_on(future))
    }

    /// Whether tokio lets this thread wait. If not it panics, and prints that: this finds the few that `is_async` does not.
    fn may_block(&self) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(async {}))).is_ok()
    }

    /// Does something within the runtime that does not wait.
    pub(super) fn within<T>(&self, does: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        does()
    }

    /// Waits in the background, and then calls this on a thread where it may block, unless there is nothing to tell.
    /// The end waits until it has begun.
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

/// Whether this thread polls a task of tokio.
///
/// That there is a runtime says nothing: there is one too in `spawn_blocking` and behind `Runtime::enter`, where a thread may
/// block. And tokio's own way to find out is a panic. But a task that is polled may do only so much before it has to let
/// others run, and nobody else is counted so: who can do more than that is no task. Nothing of it is used up: each step is
/// taken back, the last one first.
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
