//! A node's admission: may this memory vote, and from when (protocol §2).
//!
//! A master that restarts without its memory would vote twice. So every memory carries a record of how long clients
//! have witnessed it. It votes only once that is longer than any lease that it may have forgotten. A record that does
//! not vote binds nobody. If a client with wrong settings wrote it, a client that sees voting nodes replaces it.

mod apply;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod cases;
mod command;
mod identity;
pub(crate) mod meet;
pub(crate) mod record;
mod wire;

pub(crate) use self::{
    apply::Memory,
    identity::Identity,
    meet::{is_mine, run, same_run},
    wire::SCRIPTS,
};
pub use self::{
    command::{Admit, Command, Handshake, Meeting, Mode, Reply, Server, Vouch},
    record::{BootRecord, Stored, Terms},
};
