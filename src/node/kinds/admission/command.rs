//! Requests to a node about its admission, and their answers.

use super::{Stored, Terms};
use crate::base::name::Name;

/// A request about admission. It has no guard, because a node that may not vote must answer it too.
#[derive(Clone, Debug)]
pub enum Command {
    /// Meets the node: which memory is it, and may it vote?
    Handshake(Handshake),
    /// Was any token given out, and for which lock? Asked before a bootstrap.
    Survey,
    /// Bootstraps: lets the memory of this run and record vote from now on.
    Admit(Admit),
}

/// The answer to such a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a handshake.
    Met(Box<Meeting>),
    /// To a survey.
    Surveyed {
        /// True if the node has counters. Every grant leaves one.
        used: bool,
        /// A lock that has one of the counters. None if the node names none.
        lock: Option<Name>,
    },
    /// To an admission: true if the run and the record were still those of the request.
    Admitted(bool),
}

/// The arguments that a client brings to a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// N as this client counts it.
    pub masters: u64,
    /// The fleet id, which stands for the list of masters.
    pub list: String,
    /// The fleet's terms as this client sees them, or its own terms.
    pub terms: Terms,
    /// v: whether the client sees voters of its fleet.
    pub vouch: Vouch,
    /// u: the client has met a voter of its fleet at some time.
    pub used: bool,
    /// Run and id as the client last read them from this node.
    pub known: Option<(String, String)>,
    /// x: the w that it read then, plus the time that its own clock has counted since, in ms.
    pub witnessed: u64,
    /// A fresh id, used if the handshake makes a new record.
    pub nonce: String,
}

/// v of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vouch {
    /// No voter of this fleet is in sight, or a voter of another fleet is.
    Stranger = 0,
    /// At least one voter is in sight.
    Voter = 1,
    /// A majority of the nodes is in sight as voters, or an operator forces a bootstrap.
    Majority = 2,
}

/// The server's report about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `run_id`, the first 8 digits of `master_replid2`, and `second_repl_offset`. A master that was a replica in
    /// between keeps its `run_id` but not its leases.
    pub run: String,
    /// `master`, or another role.
    pub role: String,
    /// `standalone`, or another mode.
    pub mode: String,
    /// `maxmemory_policy`.
    pub eviction: String,
    /// `valkey_version`, or `redis_version` if there is none.
    pub version: String,
}

/// The outcome of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The server's report about itself.
    pub server: Server,
    /// The record as it stands after the handshake.
    pub stored: Stored,
    /// True if `open` stands now, so that the node obeys guarded commands.
    pub open: bool,
    /// TIME, in µs.
    pub time: u64,
    /// The result of the write that the handshake tried, with the server's error if it was refused. None: it tried
    /// none, because the record is not of the client's fleet.
    pub write: Option<Result<(), String>>,
}

/// The reason for an ADMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// These servers have never held a lock.
    New,
    /// The fleet votes and gets greater terms.
    Raise,
    /// An operator says so.
    Forced,
}

/// ADMIT: the memory of this run and record votes from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit {
    /// N.
    pub masters: u64,
    /// The fleet id, which stands for the list of masters.
    pub list: String,
    /// The run that the handshake found.
    pub run: String,
    /// The id of the record that the handshake found.
    pub id: String,
    /// The terms to store.
    pub terms: Terms,
    /// The least w that the record gets, in ms.
    pub witnessed: u64,
    /// The reason for it.
    pub mode: Mode,
}
