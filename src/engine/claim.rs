//! What is claimed: the operations that a round puts to the nodes, and what their answers say, for each
//! kind of thing that can be held. Above `node/` they are known here alone.
//!
//! | file | what it is |
//! | --- | --- |
//! | `wants.rs`, `held.rs` | what somebody wants, and what is held |
//! | `lock.rs`, `line.rs`, `pool.rs` | what is asked for a lock, for a place in line, of a semaphore |
//! | `question.rs` | what operators ask |
//! | `units.rs` | the units of a rate limit |

mod held;
mod line;
mod lock;
mod pool;
mod question;
pub(crate) mod units;
mod wants;

use std::time::Duration;

use crate::base::owner::Entry;

pub(crate) use self::{
    held::Claim,
    line::{Place, give_way, join},
    lock::{Lock, Side, Waits},
    pool::{
        Family, Mode, Pool, Seated, Wanted, give_back, leave, look, looked, resize, take, too_many,
    },
    question::{Evicted, evict, evict_rwlock, evicted, inspect, inspect_rwlock, seen, seen_rwlock},
    wants::{Queue, Slot, Wants},
};

/// What the nodes are asked for with an acquisition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// For how long, lock-delay included.
    pub(crate) ttl: Duration,
    /// p: where the counter should at least be, in µs of the wall clock.
    pub(crate) floor: u64,
}

/// How something is given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undo<'u> {
    /// p: where the counter should be for who gets it next.
    pub(crate) floor: u64,
    /// For how long readers that were refused are let in before writers that wait. Zero of an attempt in vain: then nobody is
    /// told of it either.
    pub(crate) window: Duration,
    /// Who waits no more for a read-write lock; none: it does, or nobody did.
    pub(crate) waits: Option<&'u Entry>,
}
