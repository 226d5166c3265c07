//! Requests to a node, in a folder for each kind of thing. Every request is answered by an
//! [`Answer`](super::answer::Answer).
//!
//! | file of a kind | contents |
//! | --- | --- |
//! | `command.rs` | requests and answers that are not in [`request`](super::request) |
//! | `wire.rs`, `*.lua` | on a real server: the bytes of a request, the parsing of replies, and the scripts |
//! | `apply.rs` | in this process: the executable meaning of the scripts |
//! | `cases.rs` | cases of the conformance suite. Those that are the same for everything that is held: `held.rs` |
//!
//! Most code uses the methods below, which say what a command does, and does not match on its kind.

pub mod admission;
pub(crate) mod air;
pub(crate) mod counters;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod held;
pub(crate) mod moment;
pub(crate) mod mutex;
pub mod rate;
pub(crate) mod rwlock;
pub(crate) mod scripts;
pub mod server;
pub(crate) mod slots;
mod wire;

use super::request::{Guarded, Question, Request, Units};
use crate::base::owner::Entry;

/// A request to a node. Its meaning is written down twice: in Lua, and in Rust in `apply.rs` of its folder. The
/// conformance suite checks that the two agree.
#[derive(Clone, Debug)]
pub enum Command {
    /// May this memory vote?
    ///
    /// Protocol §2.
    Admission(admission::Command),
    /// The server itself: its connections and its scripts.
    Server(server::Command),
    /// A request about something that an entry holds or waits for.
    ///
    /// Protocol §3 to §6 and §8.
    Request(Request),
    /// A request about a name as a whole, for no particular entry.
    Question(Question),
    /// The units of a rate limit.
    ///
    /// Protocol §7.
    Rate(Units),
}

impl Command {
    /// The use of the guard.
    pub fn guarded(&self) -> Guarded {
        match self {
            Self::Admission(_) | Self::Server(_) => Guarded::Nothing,
            Self::Request(request) => request.guarded(),
            Self::Question(_) | Self::Rate(_) => Guarded::Deed,
        }
    }

    /// The request of an entry.
    pub(crate) fn request(&self) -> Option<&Request> {
        match self {
            Self::Request(request) => Some(request),
            _ => None,
        }
    }

    /// The same request as an operation of a batch. An operation that travels alone is a batch of one. None: the
    /// request has a script of its own.
    pub(crate) fn rider(&self) -> Option<mutex::batch::Rider<'_>> {
        mutex::batch::Rider::of(self.request()?)
    }

    /// The entry, if this is a request for which the closure returns true.
    pub(crate) fn entry_that(&self, does: impl Fn(&Request) -> bool) -> Option<&Entry> {
        let request = self.request().filter(|request| does(request))?;
        Some(&request.entry)
    }

    /// Returns true if it only prolongs what a majority holds for the entry.
    pub(crate) fn extends(&self) -> bool {
        self.request().is_some_and(Request::extends)
    }

    /// Returns true if a server must permit it to its users before it can vote.
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

impl From<server::Command> for Command {
    fn from(command: server::Command) -> Self {
        Self::Server(command)
    }
}

impl From<Request> for Command {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

impl From<Question> for Command {
    fn from(question: Question) -> Self {
        Self::Question(question)
    }
}

impl From<Units> for Command {
    fn from(units: Units) -> Self {
        Self::Rate(units)
    }
}
