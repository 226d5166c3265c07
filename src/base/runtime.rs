//! The tokio runtime on which background work runs.

use tokio::runtime::Handle;

use crate::Error;

/// The runtime of the caller.
///
/// # Errors
/// `Invalid` outside of a runtime.
pub(crate) fn current() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        Error::Invalid(
            "this must be called within a tokio runtime, because the background work runs there: connect in async \
             code, or after Runtime::enter"
                .into(),
        )
    })
}
