//! The limit that the clones of a semaphore ask with. While it is being changed nobody decides by it.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A limit. A lock's is 1.
#[derive(Debug)]
pub(super) struct Agreed {
    limit: AtomicU32,
    /// How many changes are under way.
    changes: AtomicU32,
}

/// A change that is under way.
pub(super) struct Change<'a>(&'a Agreed);

impl Agreed {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit: AtomicU32::new(limit),
            changes: AtomicU32::new(0),
        }
    }

    pub(super) fn get(&self) -> u32 {
        self.limit.load(SeqCst)
    }

    /// The record may have another limit already.
    pub(super) fn is_changing(&self) -> bool {
        self.changes.load(SeqCst) > 0
    }

    pub(super) fn change(&self) -> Change<'_> {
        self.changes.fetch_add(1, SeqCst);
        Change(self)
    }
}

impl Change<'_> {
    /// It is done.
    pub(super) fn to(&self, limit: u32) {
        self.0.limit.store(limit, SeqCst);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.changes.fetch_sub(1, SeqCst);
    }
}
