//! What may be asked of a node about its admission, and what it may answer.

use super::{Stored, Terms};
use crate::base::name::Name;

/// What may be asked. None has a guard: a node that may not vote is asked too.
#[derive(Clone, Debug)]
pub enum Command {
    /// Meets the node: which memory is this, and may it vote?
    Handshake(Handshake),
    /// Was any token given out, and for which lock? Asked before a bootstrap.
    Survey,
    /// Bootstraps: lets the memory of this run and record vote from now on.
    Admit(Admit),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a handshake.
    Met(Box<Meeting>),
    /// To a survey.
    Surveyed {
        /// Whether counters stand there, as every grant leaves one.
        used: bool,
        /// One of the locks that they count; none where the node does not name one.
        lock: Option<Name>,
    },
    /// To an admission: whether it was still that run and record.
    Admitted(bool),
}

/// What a client brings to a meeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// N as this client counts it.
    pub masters: u64,
    /// Its word for the list of masters.
    pub list: String,
    /// The fleet's terms as this client sees them, or its own.
    pub terms: Terms,
    /// v: does the client see voters of its fleet?
    pub vouch: Vouch,
    /// u: it has met a voter of its fleet at some time.
    pub used: bool,
    /// Run and id as this client last read them here.
    pub known: Option<(String, String)>,
    /// x: the w it then read, and what its own clock counted since, in ms.
    pub witnessed: u64,
    /// A fresh id, should this be the first meeting.
    pub nonce: String,
}

/// v of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vouch {
    /// No voter is in sight, or one of another fleet.
    Stranger = 0,
    /// At least one voter is in sight.
    Voter = 1,
    /// A majority is, or an operator forces a bootstrap.
    Majority = 2,
}

/// What the server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `run_id`, the first 8 of `master_replid2`, and `second_repl_offset`: a master that was a
    /// replica meanwhile keeps its `run_id`, but not its leases.
    pub run: String,
    /// `master`, or else.
    pub role: String,
    /// `standalone`, or else.
    pub mode: String,
    /// `maxmemory_policy`.
    pub eviction: String,
    /// `valkey_version`, or else `redis_version`.
    pub version: String,
}

/// The outcome of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// What the server says of itself.
    pub server: Server,
    /// The record as it now stands.
    pub stored: Stored,
    /// Whether `open` now stands, so that guarded commands are obeyed.
    pub open: bool,
    /// TIME, in µs.
    pub time: u64,
    /// The outcome of the write that the handshake tried: the error with which the server refused it. None: it tried none,
    /// because another handshake had just written.
    pub write: Option<Result<(), String>>,
}

/// Why an ADMIT is wanted.
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
    /// The word for the list of masters.
    pub list: String,
    /// The run that was met.
    pub run: String,
    /// The record that was met.
    pub id: String,
    /// What to store.
    pub terms: Terms,
    /// w: what the record shall at least say was witnessed, in ms.
    pub witnessed: u64,
    /// Why.
    pub mode: Mode,
}
