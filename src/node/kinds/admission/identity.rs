//! The fields of INFO of an in-process server.

use super::{Server, run};

/// The fields of INFO that a handshake reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) run_id: String,
    pub(crate) replid2: String,
    pub(crate) second_offset: String,
    pub(crate) role: String,
    pub(crate) mode: String,
    pub(crate) eviction: String,
    pub(crate) version: String,
}

impl Identity {
    /// A master that was never a replica.
    pub(crate) fn master(run_id: impl Into<String>) -> Self {
        Self {
            run_id: run_id.into(),
            replid2: "0".repeat(40),
            second_offset: "-1".into(),
            role: "master".into(),
            mode: "standalone".into(),
            eviction: "noeviction".into(),
            version: "9.0.0".into(),
        }
    }

    /// Identifies its process and its memory: see [`Server::run`].
    pub(crate) fn run(&self) -> String {
        run(&self.run_id, &self.replid2, &self.second_offset)
    }

    /// As a handshake reports it.
    pub(crate) fn server(&self) -> Server {
        Server {
            run: self.run(),
            role: self.role.clone(),
            mode: self.mode.clone(),
            eviction: self.eviction.clone(),
            version: self.version.clone(),
        }
    }
}
