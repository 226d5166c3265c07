//! What a seat is told, and what it wants.

use std::time::Duration;

use crate::base::{clock::Tick, limit::Limit, taken::Taken};

/// A node's answer to a TAKE.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    /// The slot that is ours there, and its counter.
    pub(crate) mine: Option<(u32, u64)>,
    pub(crate) taken: Taken,
    /// The version of the limit.
    pub(crate) version: u64,
    /// What is free there may be taken.
    pub(crate) may_take: bool,
    /// The place in line there; 0 for none.
    pub(crate) ticket: u64,
    /// When the first of those that are taken is free, unless it is renewed.
    pub(crate) next_free: Option<Duration>,
}

/// How a slot is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// For the first time: any. Step · limit + the slot that is looked at first.
    Pick(u32),
    /// This one, in place of what is ours. `floor`: what its counter should be beyond; none: the clock.
    Move {
        /// Which.
        want: u32,
        /// The greatest token in hand for it.
        floor: Option<u64>,
    },
    /// None: only to be heard of.
    Stay,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// These nodes are to be asked.
    Take(Vec<usize>, Ask),
    /// What these nodes may have given is to be given back.
    Yield(Vec<usize>),
    /// The counters of this slot are to be raised to this token.
    Raise(u32, u64, Vec<usize>),
    Won(Won),
    /// It cannot be had now, and it is not waited for.
    Refused,
    /// Too few nodes answer.
    NoQuorum,
    /// Another limit stands.
    Conflict(Limit),
    /// Nothing before this.
    Rest(Option<Tick>),
}

/// A slot that is ours on a majority, with one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Won {
    pub(crate) slot: u32,
    pub(crate) token: u64,
    /// Since when it counts as held.
    pub(crate) since: Tick,
    /// Until when it is good.
    pub(crate) end: Tick,
    /// The nodes that have it for us, and their counters.
    pub(crate) held: Vec<(usize, u64)>,
    /// The nodes that have something else of ours, or our place in line.
    pub(crate) others: Vec<usize>,
}
