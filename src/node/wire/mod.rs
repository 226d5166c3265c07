//! The words of the wire that all kinds share: what a server is sent, and what it replies (RESP3).
//!
//! | file | what it is |
//! | --- | --- |
//! | `keys` | the keys of a deployment |
//! | `script` | a script that a server runs by its hash, and the pieces that scripts share |
//! | `writer` | commands as bytes |
//! | `read` | replies as numbers and texts |
//!
//! Which bytes a command is, and what a reply to it means, is in `wire.rs` of its kind.

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

/// In whole ms, rounded up: what a node is told of a duration is never less than what was meant.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
