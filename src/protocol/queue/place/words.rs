//! What a place in line is told, and what it wants.

use std::time::Duration;

use crate::{base::clock::Tick, protocol::queue::votes::Won};

/// A node's answer to a request of one who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// It is ours, by the request with this number.
    Taken { seq: u64, token: u64 },
    /// It is another's.
    Behind {
        /// How many stand before us.
        rank: u64,
        /// For how much longer; none: without an end.
        remaining: Option<Duration>,
        /// The ticket that it came with; 0: it did not wait.
        ticket: u64,
        /// Its entry comes before ours: what decides between equal tickets.
        is_first: bool,
        /// It is free, and kept for one who was called.
        is_reserved: bool,
        /// A number for its entry, where that is known.
        holder: u32,
    },
    /// It gives no place: we would come before others.
    Refused,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// These nodes are to be asked by the request with this number.
    Ask(Vec<usize>, u64),
    /// These grants are to be given back: node and request.
    GiveWay(Vec<(usize, u64)>),
    /// The counters for these grants are to be raised to this token.
    Raise(u64, Vec<(usize, u64)>),
    Won(Won),
    /// Others came before: this place is given up, and another taken behind all that were named.
    Again,
    /// Too few nodes say anything of this place: it is given up, and the lock asked for as if nobody waited.
    Unheard,
    /// Nothing before this.
    Rest(Option<Tick>),
}

/// What a place keeps while tokens are unequal.
#[derive(Debug, Default)]
pub(super) struct Unequal {
    /// When to stop waiting for the rest.
    pub(super) settle_at: Option<Tick>,
    /// Until when a raise may take.
    pub(super) raise_until: Option<Tick>,
    /// Grants that came while others were being raised: to which token, and node and request.
    pub(super) late: Vec<(u64, (usize, u64))>,
}
