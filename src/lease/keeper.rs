//! The operations that a lease needs of its backend.

use crate::{Error, lease::response::Response};

/// The id of a lease at its keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseId(pub(crate) u64);

/// Keeps leases alive and ends them. The engine is a keeper, and so is every other backend of leases. A keeper that is
/// gone answers `Closed`.
pub(crate) trait Keeper: Send + Sync {
    /// Extends the lease to its full ttl, now.
    fn extend(&self, lease: LeaseId) -> Response<()>;

    /// Makes a reader of a writer, and extends the lease to its full ttl. A backend without readers answers with an
    /// error.
    fn downgrade(&self, _: LeaseId) -> Response<()> {
        Response::ready(Err(no_readers()))
    }

    /// Frees the lock, and answers when that is confirmed. It goes on if nobody waits for the answer.
    fn release(&self, lease: LeaseId) -> Response<()>;

    /// Frees the lock in the background. It is called while something is dropped, so it never blocks.
    fn free(&self, lease: LeaseId);

    /// Stops renewing, and leaves the lock to its ttl.
    fn abandon(&self, lease: LeaseId);
}

pub(crate) fn no_readers() -> Error {
    Error::Invalid("only a lease of an RwLock can be downgraded".into())
}
