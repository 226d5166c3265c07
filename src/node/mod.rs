//! One master: it only answers.
//!
//! A [`Node`] knows how to reach a server, and a [`Connection`] carries commands to it in order.
//! What may travel when (handshake first, quarantine, stalled nodes, releases until answered) is
//! decided in [`session`], which is pure and the same for every kind of node.

// Public by the feature `unstable-node` alone.
#![cfg_attr(not(feature = "unstable-node"), allow(unreachable_pub))]

pub mod answer;
pub(crate) mod batch;
pub(crate) mod fault;
pub mod kinds;
pub(crate) mod memory;
pub(crate) mod operation;
pub(crate) mod push;
pub(crate) mod redis;
pub mod request;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod wire;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

pub(crate) use self::kinds::{admission, mutex, rate, rwlock, server, slots};
#[cfg_attr(not(feature = "unstable-node"), allow(unused_imports))]
pub use self::{
    answer::{Answer, Answered},
    fault::Fault,
    kinds::Command,
    operation::{Guard, Operation},
    push::{Push, Says},
};

/// One master.
///
/// The contract: what is sent on one [`Connection`] takes effect in the order it was sent or not at
/// all, and is answered in that order. A connection reaches one server process and never reconnects
/// by itself: a server that restarted is met again by a handshake before it may vote (protocol §2).
pub trait Node: Send + Sync + fmt::Debug {
    /// host:port for people; never a password.
    fn id(&self) -> &str;

    /// Opens a connection, ready for its first command, that hears what is published on this channel. Bounds its
    /// own time; dropping the future gives up.
    fn dial(&self, channel: &Arc<str>) -> Dial;
}

/// A connection in the making.
pub type Dial = Pin<Box<dyn Future<Output = Result<Box<dyn Connection>, DialError>> + Send>>;

/// An ordered connection to one server process.
pub trait Connection: Send {
    /// The server's number for this connection (`CLIENT ID`); it ends it with `CLIENT KILL`.
    fn client_id(&self) -> u64;

    /// What an operator should know of the server, such as a missing right that locks do not need.
    /// The node's status shows it.
    fn note(&self) -> Option<&str>;

    /// Takes the operation behind all earlier ones. It leaves with the next [`poll_flush`](Self::poll_flush).
    /// A guarded command is obeyed only where `<prefix>:open` says `guard`.
    fn send(&mut self, operation: Arc<Operation>, guard: Arc<Guard>);

    /// Writes what was sent, as far as the server takes it.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Disconnected>>;

    /// Whether it hears what is published on the channel that it was dialled with. If not, its node is polled.
    fn hears(&self) -> bool {
        false
    }

    /// What comes next: answers, one for each operation in the order they were sent, and between them what the
    /// node says unasked.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, Disconnected>>;

    /// No answer is wanted from here on. A server that answers one whose connection is closed drops the
    /// client, with commands that it has not read yet; told before, it reads all of them.
    fn hush(&mut self) {}

    /// Takes back the operations of which no byte was written yet: the last ones that were sent. How many.
    fn withdraw(&mut self) -> usize;
}

/// What comes from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The answer to the oldest operation that is unanswered.
    Answer(Answered),
    /// What it says unasked. It answers nothing.
    Push(Push),
    /// A message that says nothing to anybody here.
    Nothing,
}

/// The connection is over: whether what is unanswered was done is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnected(pub String);

/// Why no connection came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialError {
    /// Nobody answers; it is tried again soon.
    Unreachable(String),
    /// The server answers and will not have us, or is not fit: it needs somebody's hand.
    Refused(String),
}
