//! The types in which units are asked for and given.

use std::{
    cmp::Reverse,
    fmt, mem,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::base::{
    clock::Tick,
    name::Name,
    quota::{Stamp, Window},
};

/// A limit: its name, and each interval in which every node gives out units of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limited {
    pub(crate) name: Name,
    pub(crate) windows: Arc<[Window]>,
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
    /// The age if the nodes are near.
    pub(crate) least: Duration,
    /// The age if the nodes are far away. If the user has set the age, both are that.
    pub(crate) most: Duration,
}

impl Grace {
    /// The age of units that are asked for over this mean round trip. It is twice the round trip, so that an answer may
    /// be late.
    pub(crate) fn age(self, round_trip: Duration) -> Duration {
        (round_trip * 2).clamp(self.least, self.most)
    }

    /// A grace that is enough for several callers that are served together.
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

/// The units that are left of a limit, and the interval that binds: the first one to deny.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// The number of units that are left, in all intervals.
    pub(crate) left: u32,
    /// The limit of the interval that binds.
    pub(crate) limit: u32,
    /// When all units of that interval are free again, unless others take some.
    pub(crate) free_at: Tick,
}

impl Room {
    /// The room in the denial of a demand for `n` units. Others that wait, or asked at the same time, come first.
    pub(crate) fn below(self, n: u32) -> Self {
        Self {
            left: self.left.min(n.saturating_sub(1)),
            ..self
        }
    }

    /// Combines the rooms of two kinds of intervals.
    pub(crate) fn less(self, other: Self) -> Self {
        let denial = |room| Denial {
            wait: Duration::ZERO,
            room,
        };
        denial(self).longer(denial(other)).room
    }
}

/// There are not enough units now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Denial {
    /// The time until there are as many as were asked for, unless others take them.
    pub(crate) wait: Duration,
    /// The units that are left.
    pub(crate) room: Room,
}

impl Denial {
    /// Combines two denials: the longer wait binds. If both waits are equal, the fewer units do.
    pub(crate) fn longer(self, other: Self) -> Self {
        let strict = |it: &Self| (it.wait, Reverse(it.room.left), it.room.free_at);
        let left = self.room.left.min(other.room.left);
        let Self { wait, room } = std::cmp::max_by_key(self, other, strict);
        Self {
            wait,
            room: Room { left, ..room },
        }
    }
}

/// The answer to a caller that asked for units.
#[derive(Debug)]
pub(crate) enum Outcome {
    Given(Units),
    Denied(Denial),
}

/// Something that takes units back.
pub(crate) trait Purse: Send + Sync {
    fn take_back(&self, limited: &Arc<Limited>, parts: Vec<Part>);
}

/// A map that has many entries, of which most may be unused.
pub(crate) trait Crowd: Send + Sync {
    /// Drops entries that are not needed any more. Returns false if it need not be called again.
    fn forget(&self, now: Tick) -> bool;
}

/// Units that were given. Those that are not used when this is dropped go back.
pub(crate) struct Units {
    pub(crate) limited: Arc<Limited>,
    parts: Vec<Part>,
    purse: Weak<dyn Purse>,
    /// They may be used before this time.
    pub(crate) until: Tick,
    /// The units that are left for others, by the knowledge of this process.
    pub(crate) room: Room,
}

impl Units {
    pub(crate) fn new(
        limited: Arc<Limited>,
        parts: Vec<Part>,
        purse: Weak<dyn Purse>,
        until: Tick,
        room: Room,
    ) -> Self {
        Self {
            limited,
            parts,
            purse,
            until,
            room,
        }
    }

    /// The number of units.
    pub(crate) fn count(&self) -> u32 {
        let units = self.parts.iter().map(|part| part.units);
        units.fold(0, u32::saturating_add)
    }

    /// Marks all units as used, except this number of them.
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
