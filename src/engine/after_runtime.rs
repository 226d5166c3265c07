//! The connections of an engine whose runtime ended before its leases did.
//!
//! When `main` returns, the runtime drops its tasks, usually the oldest first, and the engine's task is among the
//! oldest. Leases that belong to younger tasks are dropped only after it. So the engine's task leaves behind what a
//! RELEASE needs: the connections, and what it knows of the leases. The thread that drops a lease then writes the
//! RELEASE. Nothing waits: a RELEASE that the sockets do not take at once is not sent, and the lock is left to its ttl.

use std::{
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use super::{driver::Driver, event::Event};

/// Shared by all handles of one engine.
#[derive(Default)]
pub(crate) struct AfterRuntime(Mutex<State>);

#[derive(Default)]
enum State {
    /// The task is running, or has ended with nothing left to do.
    #[default]
    None,
    /// A thread is at work, and handles these events as well. The mutex is never held meanwhile, because a waker that
    /// runs may drop a lease.
    Busy(Vec<Event>),
    Left(Box<Driver>),
}

impl AfterRuntime {
    /// The task was dropped before its end.
    pub(super) fn leave(&self, mut driver: Driver) {
        // This comes first. From now on events that find the queue closed are kept here.
        *self.lock() = State::Busy(Vec::new());
        let left = self.unless_it_panics(move || {
            driver.leave();
            Box::new(driver)
        });
        if let Some(driver) = left {
            self.work(driver);
        }
    }

    /// Handles an event that could not be sent to the task, because its queue is closed.
    pub(super) fn tell(&self, event: Event) {
        let mut state = self.lock();
        let driver = match mem::take(&mut *state) {
            State::None => return,
            State::Busy(mut waiting) => {
                waiting.push(event);
                *state = State::Busy(waiting);
                return;
            }
            State::Left(driver) => driver,
        };
        *state = State::Busy(vec![event]);
        drop(state);
        self.work(driver);
    }

    fn work(&self, mut driver: Box<Driver>) {
        loop {
            let mut state = self.lock();
            let events = match mem::take(&mut *state) {
                State::Busy(events) if !events.is_empty() => events,
                _ => {
                    if driver.can_release() {
                        *state = State::Left(driver);
                    }
                    return;
                }
            };
            *state = State::Busy(Vec::new());
            drop(state);
            let obeyed = self.unless_it_panics(move || {
                driver.obey_last(events);
                driver
            });
            match obeyed {
                Some(left) => driver = left,
                None => return,
            }
        }
    }

    /// Catches a panic. This code runs while something is dropped, perhaps because of a panic, and a second panic would
    /// end the process. The program's logger may panic, and in a debug build an assertion of the engine.
    fn unless_it_panics<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(act)).ok();
        if done.is_none() {
            *self.lock() = State::None;
        }
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The driver as a task. A runtime that ends drops it before its end. It then leaves to the handles what they need to
/// release their leases.
pub(crate) struct Task {
    driver: Option<Driver>,
    after_runtime: Arc<AfterRuntime>,
}

impl Task {
    pub(crate) fn new(driver: Driver, after_runtime: Arc<AfterRuntime>) -> Self {
        let driver = Some(driver);
        Self {
            driver,
            after_runtime,
        }
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.driver {
            Some(driver) => Pin::new(driver).poll(cx),
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take()
            && !driver.is_done()
        {
            self.after_runtime.leave(driver);
        }
    }
}
