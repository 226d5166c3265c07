//! What is asked for, and what is given.

use std::{
    fmt, mem,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::base::{
    clock::Tick,
    name::Name,
    quota::{Stamp, Window},
};

/// What is limited: a name, and each interval in which every node has units of its own to give out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limited {
    pub(crate) name: Name,
    pub(crate) windows: Vec<Window>,
}

/// The number of units that a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Fewer units than this are a denial.
    pub(crate) least: u32,
    /// The preferred number.
    pub(crate) most: u32,
}

impl Amount {
    pub(crate) fn exactly(units: u32) -> Self {
        Self {
            least: units,
            most: units,
        }
    }
}

/// How old units may be when they are used, counted from when the request for them was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grace {
    /// Where the nodes are near.
    pub(crate) least: Duration,
    /// Where they are far away. A setting of the user is both.
    pub(crate) most: Duration,
}

impl Grace {
    /// The age of units that are asked for over this mean round trip: twice that, so that an answer may be late.
    pub(crate) fn age(self, round_trip: Duration) -> Duration {
        (round_trip * 2).clamp(self.least, self.most)
    }

    /// Covers those of several callers who are served together.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            least: self.least.max(other.least),
            most: self.most.max(other.most),
        }
    }
}

/// Units that one node has given.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) node: usize,
    pub(crate) units: u32,
    pub(crate) stamps: Box<[Stamp]>,
}

/// What was said to one who asked.
#[derive(Debug)]
pub(crate) enum Outcome {
    Given(Units),
    /// Not now.
    Denied {
        /// Until there are as many as were asked for, unless others take them.
        wait: Duration,
        /// How many there are.
        left: u32,
    },
}

/// Who takes units back.
pub(crate) trait Purse: Send + Sync {
    fn take_back(&self, limited: &Arc<Limited>, parts: Vec<Part>);
}

/// Units that were given, until they are used. Those that never are go back when this is dropped.
pub(crate) struct Units {
    pub(crate) limited: Arc<Limited>,
    parts: Vec<Part>,
    purse: Weak<dyn Purse>,
    /// They may be used before then.
    pub(crate) until: Tick,
    /// How many are left for others, as far as that is known.
    pub(crate) left: u32,
}

impl Units {
    pub(crate) fn new(
        limited: Arc<Limited>,
        parts: Vec<Part>,
        purse: Weak<dyn Purse>,
        until: Tick,
        left: u32,
    ) -> Self {
        Self {
            limited,
            parts,
            purse,
            until,
            left,
        }
    }

    /// How many.
    pub(crate) fn count(&self) -> u32 {
        let units = self.parts.iter().map(|part| part.units);
        units.fold(0, u32::saturating_add)
    }

    /// They are used, all but so many.
    pub(crate) fn use_all_but(&mut self, mut unused: u32) {
        self.parts.retain_mut(|part| {
            part.units = part.units.min(unused);
            unused -= part.units;
            part.units > 0
        });
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        if !self.parts.is_empty()
            && let Some(purse) = self.purse.upgrade()
        {
            purse.take_back(&self.limited, mem::take(&mut self.parts));
        }
    }
}

impl fmt::Debug for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Units")
            .field("parts", &self.parts)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}
