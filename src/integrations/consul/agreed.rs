//! The limit that the clones of a semaphore ask with. It does not change while an attempt is under way.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use tokio::sync::{OwnedRwLockReadGuard, RwLock, RwLockWriteGuard};

/// A limit. A lock's limit is 1.
#[derive(Debug)]
pub(super) struct Agreed {
    limit: AtomicU32,
    /// Attempts share it. A change needs it alone.
    gate: Arc<RwLock<()>>,
}

/// The limit does not change while this lives.
pub(super) type Settled = OwnedRwLockReadGuard<()>;

/// A change that is under way. There is one at a time.
pub(super) struct Change<'a> {
    agreed: &'a Agreed,
    _alone: RwLockWriteGuard<'a, ()>,
}

impl Agreed {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit: AtomicU32::new(limit),
            gate: Arc::default(),
        }
    }

    pub(super) fn get(&self) -> u32 {
        self.limit.load(SeqCst)
    }

    /// Waits until no change is under way, and lets none begin.
    pub(super) async fn settled(&self) -> Settled {
        Arc::clone(&self.gate).read_owned().await
    }

    /// Waits for the attempts that are under way, because an attempt that was sent writes the limit that it was made
    /// with.
    pub(super) async fn change(&self) -> Change<'_> {
        Change {
            agreed: self,
            _alone: self.gate.write().await,
        }
    }
}

impl Change<'_> {
    /// Sets the new limit.
    pub(super) fn to(&self, limit: u32) {
        self.agreed.limit.store(limit, SeqCst);
    }
}
