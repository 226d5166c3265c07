//! What may be asked of a node, and what it may answer, as data.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::admission::{Admit, Handshake, Meeting};
use crate::{name::Name, owner::Entry};

/// One request. What a node does with it is written down twice: as Lua in `redis/lua`, and as
/// Rust in `memory/store.rs`; a test holds the two together.
#[derive(Clone, Debug)]
pub enum Command {
    /// Meets the node: which memory is this, and may it vote? No guard.
    ///
    /// Protocol §2.
    Handshake(Handshake),
    /// Takes the lock if it is free.
    ///
    /// Protocol §3.
    Acquire {
        /// The lock.
        name: Name,
        /// The new holder.
        entry: Entry,
        /// For how long, lock-delay included.
        ttl: Duration,
        /// p: where the counter should at least be, in µs of the wall clock.
        floor: u64,
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
    },
    /// Raises the counter to the token, if the lock is ours.
    Raise {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// The token.
        token: u64,
        /// The fleet's: no counter goes beyond TIME and this.
        max_ttl: Duration,
    },
    /// Prolongs the lock, if it is ours; never shortens, never re-creates.
    Extend {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
        /// From now, lock-delay included.
        ttl: Duration,
    },
    /// Frees the lock, if it is ours. No guard: it is obeyed by a node that may not vote too.
    Release {
        /// The lock.
        name: Name,
        /// The holder.
        entry: Entry,
    },
    /// Reads who holds.
    Inspect {
        /// The lock.
        name: Name,
    },
    /// Frees the lock, whoever holds it.
    Evict {
        /// The lock.
        name: Name,
    },
    /// Was any token given out, and for which lock? Asked before a bootstrap. No guard.
    Survey,
    /// Bootstraps: lets the memory of this run and record vote from now on. No guard.
    Admit(Admit),
    /// Ends an older connection of ours, with whatever still travels on it.
    Disconnect {
        /// Its id on the server.
        client: u64,
    },
    /// Gives the server all scripts again.
    LoadScripts,
}

/// What a node says to a [`Command`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a handshake.
    Met(Box<Meeting>),
    /// Acquired; the counter is now this.
    Granted(u64),
    /// Somebody else holds it.
    Held {
        /// For so much longer; none: without an end.
        remaining: Option<Duration>,
        /// The counter.
        counter: u64,
        /// The entry of whoever holds; none where what stands there is not one.
        holder: Option<Arc<str>>,
    },
    /// Raised; the counter is now this.
    Raised(u64),
    /// Extended.
    Extended,
    /// The lock is not ours: to a raise or an extension.
    Lost,
    /// To a release: whether it was ours.
    Released(bool),
    /// To an inspection.
    Inspected {
        /// Entry and remaining time of whoever holds.
        holder: Option<(String, Option<Duration>)>,
        /// The counter: the newest token that was given out here; 0 if none.
        counter: u64,
    },
    /// To an eviction: whether anybody held it.
    Evicted(bool),
    /// To a survey.
    Surveyed {
        /// Whether counters stand there, as every grant leaves one.
        used: bool,
        /// One of the locks that they count; none where the node does not name one.
        lock: Option<Name>,
    },
    /// To an admission: whether it was still that run and record.
    Admitted(bool),
    /// To a disconnect: whether there was such a connection.
    Disconnected(bool),
    /// All scripts are there.
    Loaded,
}

/// A node's error reply. It is no answer: never a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This memory is not admitted. Nothing was done.
    ///
    /// The guard of protocol §2.
    NotAdmitted,
    /// The script is not there. Nothing was done.
    NoScript,
    /// The server's ACL does not permit a command that this needs, in the server's words. It may have
    /// been done in part.
    Withheld(String),
    /// Anything else, in the server's words. It may have been done in part.
    Error(String),
}

/// A node's answer to one command.
pub type Answer = Result<Reply, Fault>;

impl Command {
    /// Whether it is obeyed only where `<prefix>:open` says what the client expects.
    pub fn is_guarded(&self) -> bool {
        match self {
            Self::Acquire { .. }
            | Self::Raise { .. }
            | Self::Extend { .. }
            | Self::Inspect { .. }
            | Self::Evict { .. } => true,
            Self::Handshake(_)
            | Self::Release { .. }
            | Self::Survey
            | Self::Admit(_)
            | Self::Disconnect { .. }
            | Self::LoadScripts => false,
        }
    }
}

/// Commands that travel together, the same for every node but for the guard. Its encoding is made
/// once, by the first node that needs it, and shared.
#[derive(Debug)]
pub struct Batch {
    commands: Vec<Command>,
    wire: OnceLock<Wire>,
}

/// The bytes of a batch, and where in them each node's own guard belongs.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) bytes: Vec<u8>,
    /// In growing order.
    pub(crate) guards: Vec<usize>,
}

/// What `<prefix>:open` says on one node while it votes.
#[derive(Debug, Default)]
pub struct Guard {
    text: String,
    wire: OnceLock<Vec<u8>>,
}

impl Guard {
    pub(crate) fn new(text: String) -> Arc<Self> {
        let wire = OnceLock::new();
        Arc::new(Self { text, wire })
    }

    /// As it stands on the node.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The encoding, made by `encode` the first time.
    pub(crate) fn wire(&self, encode: impl FnOnce(&str) -> Vec<u8>) -> &[u8] {
        self.wire.get_or_init(|| encode(&self.text))
    }
}

impl Batch {
    pub(crate) fn new(commands: Vec<Command>) -> Arc<Self> {
        Arc::new(Self {
            commands,
            wire: OnceLock::new(),
        })
    }

    /// Bytes to which no answer comes.
    pub(crate) fn unanswered(bytes: Vec<u8>) -> Arc<Self> {
        let guards = Vec::new();
        Arc::new(Self {
            commands: Vec::new(),
            wire: OnceLock::from(Wire { bytes, guards }),
        })
    }

    pub(crate) fn one(command: Command) -> Arc<Self> {
        Self::new(vec![command])
    }

    /// In this order, one answer each.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// The encoding, made by `encode` the first time.
    pub(crate) fn wire(&self, encode: impl FnOnce(&Self) -> Wire) -> &Wire {
        self.wire.get_or_init(|| encode(self))
    }
}
