//! Several mutexes at once: all, or none (protocol §8).

mod apply;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod cases;
mod wire;

pub(in crate::node::kinds) use self::wire::SCRIPTS;
pub(super) use self::{
    apply::apply,
    wire::{acquired, encode},
};
