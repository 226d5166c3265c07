//! The requirements on every kind of node, as cases that can be run against any kind.
//!
//! A [`Subject`] is one master. It consists of a [`Node`] to dial and of further things that can be done to the master
//! ([`Power`]), such as filling it up. [`all`] runs every case. A case that fails panics, as an assertion does. A case
//! that needs a power which the subject lacks is not run, and the [`Outcome`] lists it. [`alike`] sends the same random
//! requests to two subjects.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use quorate::{MemoryNode, testing::conformance};
//! let outcome = conformance::mutex(&MemoryNode::new()).await;
//! assert!(outcome.not_run.is_empty(), "{outcome}");
//! # }
//! ```
//!
//! The cases stand beside the code that they test, in `cases.rs` of each kind in `src/node/kinds`. This crate runs them
//! on memory, Redis and Valkey in `tests/meta/conformance.rs`.
//!
//! | file | what it is |
//! | --- | --- |
//! | `subject` | the master that is tested, and what else can be done to it |
//! | `case` | one case, and running several of them |
//! | `trial` | a running case: a connection, and the requests on it |
//! | `random` | random sequences that two subjects must answer alike |
//! | `memory` | the node in this process as a subject |
//! | `rights` | the cases about rights that are withdrawn |
//! | `real` | a Redis or Valkey server as a subject |

pub(crate) mod case;
#[cfg(any(test, feature = "test-util"))]
mod memory;
pub(crate) mod random;
mod real;
mod rights;
mod subject;
pub(crate) mod trial;

use std::{sync::Arc, time::Duration};

pub use self::{
    case::{Ended, NotRun, Outcome, Verdict},
    random::{alike, limits_alike, rwlocks_alike, several_alike, slots_alike},
    real::Server,
    subject::{Change, Doing, Key, Power, Subject},
};
use crate::{
    Error,
    node::{
        Node, admission,
        kinds::held,
        mutex, rate,
        redis::{IntoNode, Keys, RedisNode, Target},
        rwlock, server, slots,
    },
};

/// The cases of every kind.
const ALL: [&[case::Case]; 9] = [
    admission::cases::CASES,
    held::CASES,
    mutex::cases::CASES,
    rwlock::cases::CASES,
    slots::cases::CASES,
    rate::cases::CASES,
    mutex::several::cases::CASES,
    server::cases::CASES,
    rights::CASES,
];

/// Runs every case of every kind. A case that fails panics.
pub async fn all(subject: &dyn Subject) -> Outcome {
    let mut outcome = Outcome::default();
    for cases in ALL {
        outcome.extend(case::run(cases, subject).await);
    }
    outcome
}

/// Runs every case of every kind. Each verdict is passed on when the case ends. A case that fails does not end the
/// others.
pub async fn judge(subject: &dyn Subject, mut verdict: impl FnMut(Verdict)) {
    for case in ALL.into_iter().flatten() {
        verdict(case::judge(case, subject).await);
    }
}

/// Runs the cases about admission: whether a memory may vote.
///
/// Protocol §2.
pub async fn admission(subject: &dyn Subject) -> Outcome {
    case::run(admission::cases::CASES, subject).await
}

/// Runs the cases that are the same for everything that can be held.
///
/// Protocol §3, §4, §6 and §8.
pub async fn held(subject: &dyn Subject) -> Outcome {
    case::run(held::CASES, subject).await
}

/// Runs the cases about a mutex. Those of [`held()`] also apply to it.
///
/// Protocol §3.
pub async fn mutex(subject: &dyn Subject) -> Outcome {
    case::run(mutex::cases::CASES, subject).await
}

/// Runs the cases about a read-write lock. Those of [`held()`] also apply to it.
///
/// Protocol §4.
pub async fn rwlock(subject: &dyn Subject) -> Outcome {
    case::run(rwlock::cases::CASES, subject).await
}

/// Runs the cases about the slots of a semaphore. Those of [`held()`] also apply to them.
///
/// Protocol §6.
pub async fn slots(subject: &dyn Subject) -> Outcome {
    case::run(slots::cases::CASES, subject).await
}

/// Runs the cases about the units of a rate limit.
///
/// Protocol §7.
pub async fn rate(subject: &dyn Subject) -> Outcome {
    case::run(rate::cases::CASES, subject).await
}

/// Runs the cases about several locks at once. Those of [`held()`] also apply to them.
///
/// Protocol §8.
pub async fn several(subject: &dyn Subject) -> Outcome {
    case::run(mutex::several::cases::CASES, subject).await
}

/// Runs the cases about connections and scripts.
pub async fn server(subject: &dyn Subject) -> Outcome {
    case::run(server::cases::CASES, subject).await
}

/// Runs the cases about a user that loses a right while it is logged in.
///
/// Protocol §3.
pub async fn rights(subject: &dyn Subject) -> Outcome {
    case::run(rights::CASES, subject).await
}

/// The prefix of the keys of [`redis_node`].
pub const PREFIX: &str = "quorate";

/// The node that this library makes from a URL. Its keys begin with [`PREFIX`].
pub fn redis_node(url: &str) -> Result<Arc<dyn Node>, Error> {
    node_with_prefix(url, PREFIX)
}

fn node_with_prefix(url: &str, prefix: &str) -> Result<Arc<dyn Node>, Error> {
    Ok(match url.into_node()? {
        Target::Server(address) => {
            let limit = Duration::from_secs(5);
            Arc::new(RedisNode::new(
                address,
                Arc::new(Keys::new(prefix)),
                None,
                limit,
            ))
        }
        Target::Memory(node) => Arc::new(node),
    })
}
