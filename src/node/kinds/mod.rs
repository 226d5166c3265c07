//! The requests to a node, with a folder for each kind. Every kind is answered by an
//! [`Answer`](super::answer::Answer).
//!
//! | file of a kind | what it is |
//! | --- | --- |
//! | `command.rs` | what may be asked |
//! | `wire.rs`, `*.lua` | the same for a real server: bytes there, replies back, and the scripts between |
//! | `apply.rs` | the same for a node in this process: what the scripts mean |
//! | `cases.rs` | what every kind of node has to do, as cases of the conformance suite |
//!
//! Outside its folder a kind is its [`Command`]. Most code asks a command by the methods below
//! what it does, and does not look which it is.

pub mod admission;
pub(crate) mod air;
pub(crate) mod counters;
pub(crate) mod moment;
pub mod mutex;
pub mod rate;
pub mod rwlock;
pub(crate) mod scripts;
pub mod server;
pub mod several;
pub mod slots;
mod wire;

use crate::base::owner::Entry;

/// One request. What a node does with it is written down twice: as Lua, and as Rust in `apply.rs` of its
/// folder; a test holds the two together.
#[derive(Clone, Debug)]
pub enum Command {
    /// May this memory vote?
    ///
    /// Protocol §2.
    Admission(admission::Command),
    /// A lock that one holds at a time.
    ///
    /// Protocol §3.
    Mutex(mutex::Command),
    /// The server itself: its connections and its scripts.
    Server(server::Command),
    /// The slots of a semaphore.
    ///
    /// Protocol §6.
    Slots(slots::Command),
    /// The units of a rate limit.
    ///
    /// Protocol §7.
    Rate(rate::Command),
    /// Readers or one writer.
    ///
    /// Protocol §4.
    Rwlock(rwlock::Command),
    /// Several locks of [`mutex`] at once.
    ///
    /// Protocol §8.
    Several(several::Command),
}

/// What the guard decides: whether `<prefix>:open` says what the client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// Nothing: none is sent.
    Nothing,
    /// The answer. What is asked is done in any case.
    Answer,
    /// Whether anything is done at all.
    Deed,
}

impl Command {
    /// What the guard decides.
    pub fn guarded(&self) -> Guarded {
        match self {
            Self::Admission(_) | Self::Server(_) => Guarded::Nothing,
            Self::Mutex(command) => command.guarded(),
            Self::Slots(command) => command.guarded(),
            Self::Rate(command) => command.guarded(),
            Self::Rwlock(command) => command.guarded(),
            Self::Several(command) => command.guarded(),
        }
    }

    /// The same as one of a batch, which it is even if it travels alone. None: it has a script of its own.
    pub(crate) fn rider(&self) -> Option<mutex::batch::Rider<'_>> {
        match self {
            Self::Mutex(command) => command.rider(),
            _ => None,
        }
    }

    /// The entry that it may leave on the node. It is sent once only, and what it leaves is taken back by
    /// the command that [`frees`](Self::frees) the same entry.
    pub(crate) fn takes(&self) -> Option<&Entry> {
        match self {
            Self::Admission(_) | Self::Server(_) | Self::Rate(_) => None,
            Self::Mutex(command) => command.takes(),
            Self::Slots(command) => command.takes(),
            Self::Rwlock(command) => command.takes(),
            Self::Several(command) => command.takes(),
        }
    }

    /// The entry, where it is the first command that takes for it: if it never left, nothing stands there.
    pub(crate) fn begins(&self) -> Option<&Entry> {
        match self {
            Self::Mutex(command) => command.begins(),
            Self::Several(command) => command.begins(),
            _ => None,
        }
    }

    /// The entry that it removes, wherever that stands.
    pub(crate) fn frees(&self) -> Option<&Entry> {
        match self {
            Self::Admission(_) | Self::Server(_) | Self::Rate(_) => None,
            Self::Mutex(command) => command.frees(),
            Self::Slots(command) => command.frees(),
            Self::Rwlock(command) => command.frees(),
            Self::Several(command) => command.frees(),
        }
    }

    /// The entry, where its answer says what that one holds, and another command for the same entry gives it up.
    pub(crate) fn holds(&self) -> Option<&Entry> {
        match self {
            Self::Slots(command) => command.holds(),
            _ => None,
        }
    }

    /// Whether it prolongs what is held on a majority, and takes nothing anew.
    pub(crate) fn extends(&self) -> bool {
        match self {
            Self::Admission(_) | Self::Server(_) | Self::Rate(_) => false,
            Self::Mutex(command) => command.extends(),
            Self::Slots(command) => command.extends(),
            Self::Rwlock(command) => command.extends(),
            Self::Several(command) => command.extends(),
        }
    }

    /// Whether a server must permit it to its users before it can vote.
    pub(crate) fn needs_voters_rights(&self) -> bool {
        !matches!(
            self,
            Self::Admission(admission::Command::Survey)
                | Self::Server(server::Command::Disconnect { .. })
        )
    }
}

impl From<admission::Command> for Command {
    fn from(command: admission::Command) -> Self {
        Self::Admission(command)
    }
}

impl From<mutex::Command> for Command {
    fn from(command: mutex::Command) -> Self {
        Self::Mutex(command)
    }
}

impl From<server::Command> for Command {
    fn from(command: server::Command) -> Self {
        Self::Server(command)
    }
}

impl From<slots::Command> for Command {
    fn from(command: slots::Command) -> Self {
        Self::Slots(command)
    }
}

impl From<rate::Command> for Command {
    fn from(command: rate::Command) -> Self {
        Self::Rate(command)
    }
}

impl From<rwlock::Command> for Command {
    fn from(command: rwlock::Command) -> Self {
        Self::Rwlock(command)
    }
}

impl From<several::Command> for Command {
    fn from(command: several::Command) -> Self {
        Self::Several(command)
    }
}
