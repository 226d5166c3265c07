//! What is left of an engine whose runtime ends before its leases do.
//!
//! `main` returns, the runtime drops its tasks, mostly the oldest first, and the engine's is among the
//! oldest. Leases that lie in younger tasks are dropped only then. So the engine's task leaves behind
//! what a RELEASE needs, the connections and what it knows of the leases, and the thread that drops a
//! lease writes the RELEASE. Nobody waits: what the sockets do not take at once is left to the ttl.

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
pub(crate) struct Remains(Mutex<State>);

#[derive(Default)]
enum State {
    /// The task lives, or has ended with nothing left to do.
    #[default]
    None,
    /// Somebody is at work, and does these as well. The lock is never held meanwhile: what wakes up may
    /// drop a lease.
    Busy(Vec<Event>),
    Left(Box<Driver>),
}

impl Remains {
    /// The task is dropped before its end.
    pub(super) fn leave(&self, mut driver: Driver) {
        // First: from now on events that find the queue closed are kept here.
        *self.lock() = State::Busy(Vec::new());
        let left = self.unless_it_panics(move || {
            driver.leave();
            Box::new(driver)
        });
        if let Some(driver) = left {
            self.work(driver);
        }
    }

    /// What could not be put to the task, as its queue is closed.
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

    /// This runs while something is dropped, perhaps by a panic, where a second one ends the process. Ours
    /// do not panic, a program's log may.
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

/// The driver as a task. Dropped before its end, as a runtime does that ends, it leaves to the
/// handles what they need to release their leases.
pub(crate) struct Task {
    driver: Option<Driver>,
    remains: Arc<Remains>,
}

impl Task {
    pub(crate) fn new(driver: Driver, remains: Arc<Remains>) -> Self {
        let driver = Some(driver);
        Self { driver, remains }
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
            self.remains.leave(driver);
        }
    }
}
