//! Distributed locks over independent Redis or Valkey masters, with fencing tokens that only grow.
//!
//! A client asks N masters at once, each with a short timeout, and holds the lock when a majority granted it with
//! the same token. Start with [`Quorum::connect`] and [`Quorum::mutex`]; hand [`Lease::token`] to the store that
//! the lock protects, and let the store refuse an older one ([`fence`]). What is promised, and under which
//! assumptions, is in [`docs::guarantees`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
//! use quorate::{Quorum, fence::Gate};
//!
//! let quorum = Quorum::in_memory(5); // in production: Quorum::connect(["redis://…", …]).await?
//! let invoices = Gate::new();        // in production: the store checks the token
//!
//! let lease = quorum.mutex("invoice:42").lock().await?;
//! invoices.admit("invoice:42", lease.token()).expect("nobody newer has written");
//! lease.release().await?;  // or drop it: released in the background; if the process is killed, by its ttl
//!
//! quorum.shutdown().await; // the last line of main: waits until every release is confirmed
//! # Ok(()) }
//! ```
//!
//! Everything that waits may be dropped at any time: no lock stays behind on the nodes for longer than one ttl.
//! Background work runs on the runtime that connected. What remains of a lock when a program ends, in whatever way,
//! is in [`docs::shutdown`]. Layers for a service, streams, and calls that block, for threads: [`docs::faces`].

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod acquire;
mod ballot;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod claim;
mod clock;
mod columns;
#[cfg(feature = "consul")]
pub mod consul;
pub mod docs;
mod engine;
mod env;
mod error;
pub mod fence;
mod hold;
mod ids;
mod inspection;
mod lease;
mod limit;
mod line;
mod logs;
mod mutex;
mod name;
mod node;
mod owner;
mod quorum;
mod quota;
mod rate;
mod rate_limiter;
mod reentrant;
mod report;
mod response;
mod room;
mod rules;
mod rwlock;
mod semaphore;
mod settings;
mod slots;
mod start;
pub mod stream;
mod sweep;
mod taken;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
#[cfg(any(feature = "consul", feature = "tls-rustls"))]
mod tls;
mod token;
#[cfg(feature = "tower")]
pub mod tower;

pub use builder::Builder;
pub use engine::NodeChanges;
pub use error::{Error, LimitConflict, LossReason, Lost};
pub use inspection::{
    Holder, Inspection, NodeInspection, NodeRwlock, NodeSlots, Reader, Slot, Waiter, WaitingWriter,
};
pub use lease::{Lease, LeaseWatch, Renewal};
pub use mutex::Mutex;
pub use node::memory::server::MemoryNode;
pub use node::redis::IntoNode;
pub use node::status::{Health, NodeState, NodeStatus};
pub use quorum::Quorum;
pub use quota::Quota;
pub use rate_limiter::{Decision, Outage, RateLimitHeaders, RateLimiter};
pub use redis;
pub use reentrant::{Owner, ReentrantMutex};
pub use report::{NodeReport, Report, Silence, Vote};
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use token::{FencingToken, NotAToken};

#[cfg(feature = "unstable-node")]
#[doc(inline)]
pub use crate::{
    name::Name,
    node::{
        Answer, Command, Connection, Dial, DialError, Disconnected, Fault, Guard, Incoming, Node,
        Operation, Push, Reply, Says, kinds,
    },
    owner::Entry,
};

/// For the package `quorate-cli` only. Outside semver.
#[doc(hidden)]
pub mod cli {
    pub use crate::{
        columns::{are_needed, counted, seconds, table},
        env::{
            ALLOW_EVICTION, CONNECT_TIMEOUT, FLEET, KEY_PREFIX, LABEL, MAX_TTL, NODE_TIMEOUT,
            NODES, NODES_FILE, RESTART_MARGIN, SET_NODES, Variables, duration,
        },
    };
}

/// The README's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
