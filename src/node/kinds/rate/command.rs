//! What may be asked of a node about the units of a rate limit, and what it may answer.

use std::{sync::Arc, time::Duration};

use super::Stamp;
use crate::{
    base::{name::Name, quota::Window},
    node::kinds::Guarded,
};

/// A limit, as one node counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Of what.
    pub name: Name,
    /// N: how many masters share the limit.
    pub masters: u32,
    /// Each interval, and this node's share of its limit. At least one.
    pub windows: Arc<[(Window, u32)]>,
}

/// What may be asked.
#[derive(Clone, Debug)]
pub enum Command {
    /// Takes units of every interval, or of none.
    Spend {
        /// The limit.
        meter: Meter,
        /// k: how many.
        units: u32,
        /// e: how long from now they may be used, at most E of each interval.
        age: Duration,
    },
    /// Gives back units that nobody will use, where what was counted then counts still.
    Refund {
        /// The limit.
        meter: Meter,
        /// How many.
        units: u32,
        /// Where they were counted, as the spending was told.
        stamps: Box<[Stamp]>,
    },
    /// Reads what is taken, and when it is free again.
    Look {
        /// The limit.
        meter: Meter,
    },
}

impl Command {
    /// The limit that it is about.
    pub(crate) fn meter(&self) -> &Meter {
        match self {
            Self::Spend { meter, .. } | Self::Refund { meter, .. } | Self::Look { meter } => meter,
        }
    }

    pub(crate) fn guarded(&self) -> Guarded {
        Guarded::Deed
    }
}
