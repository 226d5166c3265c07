//! The input and the output of a search for a slot.

use crate::base::{clock::Tick, limit::Limit};

/// How a slot is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The first request: any slot. The number is step · limit + the slot that is looked at first.
    Pick(u32),
    /// This slot, in place of the slot that the search has.
    Move {
        /// The slot.
        want: u32,
        /// The greatest token in hand for it. The new counter must be beyond it. `None` means the clock.
        floor: Option<u64>,
    },
    /// No slot: the request only tells the node that the search is alive.
    Stay,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask these nodes.
    Take(Vec<usize>, Ask),
    /// Give back what these nodes may have given.
    Yield(Vec<usize>),
    /// Raise the counters of this slot to this token.
    Raise(u32, u64, Vec<usize>),
    Won(Won),
    /// No slot can be had now, and the search does not wait.
    Refused,
    /// Too few nodes answer.
    NoQuorum,
    /// Another limit stands.
    Conflict(Limit),
    /// Nothing to do before this time.
    Rest(Option<Tick>),
}

/// A slot that this search has on a majority, with one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Won {
    pub(crate) slot: u32,
    pub(crate) token: u64,
    /// The time from which it counts as held.
    pub(crate) since: Tick,
    /// The time until which it is good.
    pub(crate) end: Tick,
    /// The nodes that have it for this search, and their counters.
    pub(crate) held: Vec<(usize, u64)>,
    /// The nodes that have something else of this search: another slot, or its place in the queue.
    pub(crate) others: Vec<usize>,
}
