//! The slots of a semaphore, and their counters (protocol §6).

mod apply;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod cases;
mod kept;
mod line;
mod wire;

pub(super) use self::wire::{encode, encode_inspect, encode_resize, inspected, resized, taken};
pub(crate) use self::{apply::Memory, wire::SCRIPTS};
