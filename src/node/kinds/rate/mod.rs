//! The units of a rate limit that one node has given out of its share (protocol §7).

mod apply;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod cases;
mod ledger;
mod wire;

pub(crate) use self::{apply::Memory, wire::SCRIPTS};
#[cfg_attr(not(feature = "unstable-node"), allow(unused_imports))]
pub use crate::base::quota::Stamp;
