//! The end: no new wishes, and callers that wait until all is released.

use std::{mem, time::Duration};

use tokio::sync::oneshot;

use crate::base::clock::Tick;

/// Whether the quorum is closed, and who waits for that.
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

    /// The time for a clean end is over.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// A caller waits for the end, for this long at most.
    pub(super) fn wait(
        &mut self,
        now: Tick,
        within: Duration,
        reply: oneshot::Sender<Vec<String>>,
    ) {
        let deadline = now.plus(within);
        self.callers.push(Caller { deadline, reply });
    }

    /// Returns true if callers can be told: nothing is left to wait for, or time is over.
    pub(super) fn is_due(&self, now: Tick, may_end: impl FnOnce() -> bool) -> bool {
        !self.callers.is_empty() && (self.callers.iter().any(|c| c.deadline <= now) || may_end())
    }

    /// Tells them which names are still held.
    pub(super) fn end(&mut self, held: &[String]) {
        self.gave_up = true;
        for caller in mem::take(&mut self.callers) {
            let _ = caller.reply.send(held.to_owned());
        }
    }

    /// Callers find their channels closed.
    pub(super) fn forget(&mut self) {
        self.callers.clear();
    }

    pub(super) fn next_tick(&self) -> Option<Tick> {
        self.callers.iter().map(|caller| caller.deadline).min()
    }
}
