//! The refusal: the answer of every fence to a token that is too old.

use std::fmt;

use crate::FencingToken;

/// A token was refused because the resource has seen a newer one: a later holder was there.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleToken {
    /// The resource that was to be written.
    pub resource: String,
    /// The token that was refused.
    pub token: FencingToken,
    /// The newest token that the resource has seen. If the resource was forgotten, it is the newest of all forgotten
    /// tokens.
    pub newest: FencingToken,
    /// True if a full [`Gate`](super::Gate) has forgotten resources with newer tokens than this, and does not know
    /// whether this resource was among them.
    pub forgotten: bool,
}

impl StaleToken {
    pub(crate) fn new(
        resource: impl Into<String>,
        token: FencingToken,
        newest: FencingToken,
        forgotten: bool,
    ) -> Self {
        Self {
            resource: resource.into(),
            token,
            newest,
            forgotten,
        }
    }
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            token,
            newest,
            forgotten,
        } = self;
        match forgotten {
            false => write!(
                f,
                "token {token} is stale for {resource:?}: token {newest} was there already"
            ),
            true => write!(
                f,
                "token {token} may be stale for {resource:?}: the gate is full and has forgotten \
                 resources with tokens up to {newest}; give it more room"
            ),
        }
    }
}

impl std::error::Error for StaleToken {}
