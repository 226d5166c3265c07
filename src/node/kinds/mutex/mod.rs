//! A lock with one holder at a time, its counter and its queue (protocol §3 and §5). Several locks at once are in
//! `several/` (protocol §8).

mod apply;
pub(crate) mod batch;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod cases;
mod lines;
pub(crate) mod several;
mod wire;

pub(super) use self::wire::{
    acquired, encode, encode_evict, encode_inspect, evicted, inspected, our_holder,
};
pub(crate) use self::{apply::Memory, wire::SCRIPTS};
