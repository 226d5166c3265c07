//! The wire format that all kinds share: how commands are written, and how replies are read (RESP3).
//!
//! | file | what it is |
//! | --- | --- |
//! | `keys` | the keys of a deployment |
//! | `script` | a script that a server runs by its hash, and the pieces that scripts share |
//! | `writer` | commands as bytes |
//! | `read` | replies as numbers and texts |
//!
//! The bytes of a command and the meaning of its reply are in `wire.rs` of its kind.

pub(crate) mod keys;
pub(crate) mod read;
pub(crate) mod script;
pub(crate) mod writer;

use std::time::Duration;

pub(crate) use self::{
    keys::Keys,
    script::Script,
    writer::{Arg, Writer},
};

/// A duration in whole ms, rounded up, so that a node is never told less than what was meant.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
