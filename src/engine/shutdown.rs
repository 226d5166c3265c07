//! Shutdown: no new acquisitions are taken, and callers wait until everything is released.

use std::{mem, time::Duration};

use tokio::sync::oneshot;

use crate::base::clock::Tick;

/// Says if the quorum is closed, and keeps the callers that wait for the end.
#[derive(Default)]
pub(super) struct Shutdown {
    closed: bool,
    gave_up: bool,
    callers: Vec<Caller>,
}

struct Caller {
    deadline: Tick,
    reply: oneshot::Sender<Vec<String>>,
}

impl Shutdown {
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Returns true if the time for a clean end is over.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Adds a caller that waits for the end, for `within` at most.
    pub(super) fn wait(
        &mut self,
        now: Tick,
        within: Duration,
        reply: oneshot::Sender<Vec<String>>,
    ) {
        let deadline = now.plus(within);
        self.callers.push(Caller { deadline, reply });
    }

    /// Returns true if the callers can be answered: nothing is left to wait for, or the time is over.
    pub(super) fn is_due(&self, now: Tick, may_end: impl FnOnce() -> bool) -> bool {
        !self.callers.is_empty() && (self.callers.iter().any(|c| c.deadline <= now) || may_end())
    }

    /// Answers the callers with the names that are still held.
    pub(super) fn end(&mut self, held: &[String]) {
        self.gave_up = true;
        for caller in mem::take(&mut self.callers) {
            let _ = caller.reply.send(held.to_owned());
        }
    }

    /// The callers find their channels closed.
    pub(super) fn forget(&mut self) {
        self.callers.clear();
    }

    pub(super) fn next_tick(&self) -> Option<Tick> {
        self.callers.iter().map(|caller| caller.deadline).min()
    }
}
