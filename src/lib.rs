//! Distributed locks over independent Redis or Valkey masters, with fencing tokens that only grow.
//!
//! You hold a lock when a majority of the masters grants it, so of five masters any two may be down. Start with
//! [`Quorum::connect`] and [`Quorum::mutex`]. Hand [`Lease::token`] to the store that the lock protects, and let the
//! store refuse an older one ([`fence`]). [`docs::guarantees`] lists what is promised, and under which assumptions.
//!
//! | to | use |
//! | --- | --- |
//! | let in one holder at a time | [`Mutex`] |
//! | lock several names, all or none | [`Quorum::mutex_all`] |
//! | let the holder lock again | [`ReentrantMutex`] |
//! | let in many readers or one writer | [`RwLock`] |
//! | let in up to `n` holders | [`Semaphore`] |
//! | limit how many operations start in an interval | [`RateLimiter`] |
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
//! lease.release().await?; // or drop it: the release then runs in the background
//!
//! quorum.shutdown().await; // the last line of main, when all leases are dropped: waits for the releases, 5 s at most
//! # Ok(()) }
//! ```
//!
//! You may drop any future at any time: no lock stays behind on the nodes for longer than one ttl. Background work runs
//! on the runtime that connected. [`docs::shutdown`] says what remains of a lock when a program ends.
//! [`docs::integrations`] covers layers for services, streams, and blocking calls for threads.
//!
//! # Cargo features
//!
//! It needs Rust 1.88 or later, and tokio with its I/O and time drivers (`enable_all`).
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `tls-rustls` | yes | `rediss://`, with the system's root certificates or your own ([`Builder::ca_certificates`]) |
//! | `fence-redis` | yes | `fence::redis`: writes to Redis or Valkey that refuse a stale holder; [`IntoNode`] for types of the `redis` crate |
//! | `postgres` | | `fence::postgres::admit` for tokio-postgres; the SQL itself needs no feature |
//! | `tower` | | `quorate::tower`: layers for rate limits, permits and tokens |
//! | `blocking` | | `quorate::blocking`: every primitive for threads, on a runtime of its own |
//! | `consul` | | `quorate::consul`: locks and semaphores in Consul |
//! | `serde` | | [`FencingToken`] as a JSON number; `quorate::Config`, the settings in a configuration file; a password command that prints JSON |
//! | `unstable-node` | | masters of another kind; outside semver |
//! | `conformance` | | the requirements on every kind of node, as cases; outside semver |
//! | `test-util` | | this crate's own simulation and its rule switches; outside semver |

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

mod base;
pub mod docs;
mod engine;
pub mod fence;
mod integrations;
mod lease;
mod locks;
mod node;
mod protocol;
mod quorum;
mod report;
#[cfg(any(test, feature = "conformance"))]
pub mod testing;

/// The `redis` crate, in the version whose types [`IntoNode`] and [`fence::redis`] take.
#[cfg(feature = "fence-redis")]
pub use redis;

#[cfg(feature = "blocking")]
pub use integrations::blocking;
#[cfg(feature = "consul")]
pub use integrations::consul;
pub use integrations::stream;
#[cfg(feature = "tower")]
pub use integrations::tower;

pub use base::quota::Quota;
pub use base::token::{FencingToken, NotAToken};
pub use engine::NodeChanges;
pub use lease::{Lease, LeaseWatch, Renewal};
pub use locks::mutex::Mutex;
pub use locks::rate_limiter::{Decision, Outage, RateLimitHeaders, RateLimiter};
pub use locks::reentrant::{Owner, ReentrantMutex};
pub use locks::rwlock::RwLock;
pub use locks::semaphore::Semaphore;
pub use node::memory::server::MemoryNode;
pub use node::redis::{Credentials, IntoNode};
pub use node::status::{Health, NodeState, NodeStatus};
pub use quorum::Quorum;
pub use quorum::builder::Builder;
#[cfg(feature = "serde")]
pub use quorum::config::{Config, CredentialsConfig, TlsConfig};
pub use report::error::{Error, LimitConflict, LossReason, Lost};
pub use report::inspection::{
    Holder, Inspection, NodeInspection, NodeRwlock, NodeSlots, Reader, Slot, Waiter, WaitingWriter,
};
pub use report::{NodeReport, Report, Silence, Vote};

#[cfg(feature = "unstable-node")]
#[doc(inline)]
pub use crate::{
    base::{
        name::{Name, Names},
        owner::Entry,
    },
    node::{
        Answer, Answered, Command, Connection, Dial, DialError, Disconnected, Fault, Guard,
        Incoming, Node, Operation, Push, Says, answer, kinds, request,
    },
};

/// For the package `quorate-cli` only. Outside semver.
#[doc(hidden)]
pub mod cli {
    #[cfg(feature = "serde")]
    pub use crate::quorum::config::has_password;
    pub use crate::{
        base::quota::SLOTS_UP_TO,
        base::text::{are_needed, counted, seconds, table},
        quorum::{
            env::{CONFIG, NODES, NODES_FILE, SET_NODES, Variables},
            settings::{Kind, Options, SETTINGS, Setting, duration},
        },
    };
}

/// Compiles the README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
