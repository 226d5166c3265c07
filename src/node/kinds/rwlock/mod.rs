//! A lock for many readers or one writer, and its counter (protocol §4).

mod apply;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod cases;
mod wire;

pub(super) use self::wire::{acquired, encode, encode_evict, encode_inspect, evicted, inspected};
pub(crate) use self::{apply::Memory, wire::SCRIPTS};
