//! A lock that is held.

use std::time::Duration;

use crate::{base::owner::Entry, node::kinds::mutex::Ahead};

#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) entry: Entry,
    pub(super) came: Came,
    /// The last ms of TIME in which it is held: a server calls a key expired when TIME is past it.
    pub(super) until: u64,
}

/// How a holder came to its lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    /// By which request through the line; 0: not through it.
    pub(super) seq: u64,
    /// With which ticket.
    pub(super) ticket: u64,
}

impl Came {
    /// Not through the line.
    pub(super) const PLAIN: Self = Self::by(0, 0);

    pub(super) const fn by(seq: u64, ticket: u64) -> Self {
        Self { seq, ticket }
    }
}

impl Lock {
    pub(super) fn lives(&self, time: u64) -> bool {
        time / 1000 <= self.until
    }

    pub(super) fn left(&self, time: u64) -> Duration {
        Duration::from_millis(self.until.saturating_sub(time / 1000))
    }

    /// To one who waits for it.
    pub(super) fn ahead(&self, time: u64) -> Ahead {
        Ahead {
            remaining: Some(self.left(time)),
            ticket: self.came.ticket,
            holder: Some(self.entry.text()),
            is_reserved: false,
        }
    }
}
