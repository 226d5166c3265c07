//! One master: it answers requests, and pushes messages to waiters.
//!
//! A [`Node`] knows how to reach a server, and a [`Connection`] carries commands to it in order. [`session`] decides
//! what may be sent when: the handshake first, nothing to stalled nodes, little in a quarantine, and releases until
//! they are answered. It is pure, and the same for every kind of node.

// Public only with the feature `unstable-node`.
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
    time::Duration,
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
/// The contract: the operations that are sent on one [`Connection`] take effect in the order in which they were sent,
/// or not at all, and are answered in that order. A connection reaches one server process and never reconnects by
/// itself. A server that restarted is met again by a handshake before it may vote (protocol §2).
pub trait Node: Send + Sync + fmt::Debug {
    /// The node's address for people, as host:port. It never contains a password.
    fn id(&self) -> &str;

    /// Opens a connection that is ready for its first command and receives what is published on this channel. It limits
    /// its own time. Dropping the future gives up.
    fn dial(&self, channel: &Arc<str>) -> Dial;
}

/// A connection in the making.
pub type Dial = Pin<Box<dyn Future<Output = Result<Box<dyn Connection>, DialError>> + Send>>;

/// An ordered connection to one server process.
pub trait Connection: Send {
    /// The server's number for this connection (`CLIENT ID`), by which `CLIENT KILL` can end it.
    fn client_id(&self) -> u64;

    /// Anything that an operator should know about the server, such as a missing right that locks do not need. The
    /// node's status shows it.
    fn note(&self) -> Option<&str>;

    /// Logs in with new credentials, behind all operations that were sent. [`Incoming::LoggedIn`] says how it ended.
    fn log_in(&mut self) {}

    /// Queues the operation behind all earlier ones. It leaves with the next [`poll_flush`](Self::poll_flush). A
    /// guarded command is carried out only if `<prefix>:open` contains `guard`.
    fn send(&mut self, operation: Arc<Operation>, guard: Arc<Guard>);

    /// Writes what was queued, as much as the server accepts.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Disconnected>>;

    /// Returns true if it receives what is published on the channel that it was dialled with. If not, its node is
    /// polled.
    fn hears(&self) -> bool {
        false
    }

    /// The next input: one answer for each operation, in the order in which they were sent, with the node's pushes
    /// between them.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, Disconnected>>;

    /// From now on no answer is wanted. A server that answers on a closed connection drops the client, and with it the
    /// commands that it has not read yet. If it is told before, it reads all of them.
    fn hush(&mut self) {}

    /// Takes back the operations of which no byte was written yet. These are the last ones that were sent. Returns how
    /// many there were.
    fn withdraw(&mut self) -> usize;
}

/// Input from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The answer to the oldest operation that is unanswered.
    Answer(Answered),
    /// A message that the node sends unasked. It does not answer any request.
    Push(Push),
    /// For how long the server accepts the login; `None` if it does not expire. It comes after [`Connection::log_in`],
    /// and first on a connection whose login expires. An error is the reason why the connection still has its old login.
    LoggedIn(Result<Option<Duration>, String>),
    /// A message that this client does not use.
    Nothing,
}

/// The connection has ended. It is not known if the unanswered operations were done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnected(pub String);

/// The reason why no connection was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialError {
    /// Nothing answers there. It is tried again soon.
    Unreachable(String),
    /// The server answers but rejects this client, or is not fit. Somebody must act.
    Refused(String),
}
