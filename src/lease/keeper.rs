//! What a lease needs of its backend.

use crate::{Error, lease::response::Response};

/// A lease, as its keeper knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseId(pub(crate) u64);

/// Keeps leases alive and ends them: the engine, or whatever else gives leases. A keeper that is gone
/// answers `Closed`.
pub(crate) trait Keeper: Send + Sync {
    /// Extends to the full ttl, now.
    fn extend(&self, lease: LeaseId) -> Response<()>;

    /// Makes a reader of a writer, and extends to the full ttl. What has no readers says so.
    fn downgrade(&self, _: LeaseId) -> Response<()> {
        Response::ready(Err(no_readers()))
    }

    /// Frees what is held, and answers when that is confirmed. It goes on if nobody waits.
    fn release(&self, lease: LeaseId) -> Response<()>;

    /// Frees what is held, in the background. Called while something is dropped: never blocks.
    fn free(&self, lease: LeaseId);

    /// Stops renewing, and leaves what is held to its ttl.
    fn abandon(&self, lease: LeaseId);
}

pub(crate) fn no_readers() -> Error {
    Error::Invalid("only a lease of an RwLock can be downgraded".into())
}
