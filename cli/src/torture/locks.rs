//! The locks that a section takes: a lock, a slot of a semaphore, one side of a read-write lock, or several locks at
//! once.

use std::time::Duration;

use quorate::{Error, Lease, Quorum, Renewal};

use super::history::{Locks, Side};
use crate::{
    args::{Asked, Load},
    wanted::{Terms, Wanted},
};

/// A section that takes several names takes at most this many.
const MOST: usize = 3;

/// The kind of lock under test, as the history records it.
pub(super) fn locks(load: &Load) -> Locks {
    Locks {
        limit: load.names.semaphore,
        readers: load.names.rwlock.then_some(load.readers),
        several: load.names.several,
    }
}

/// The locks that one task asks for again and again. It keeps its handles, because handles learn (a counter, a limit).
pub(super) struct Wishes {
    own: u64,
    locks: Locks,
    count: u64,
    /// The mutex or the semaphore of its name. For a read-write lock, the side that writes.
    alone: Wanted,
    /// The side of a read-write lock that reads.
    beside: Wanted,
    several: Box<dyn Fn(Vec<String>) -> Wanted + Send + Sync>,
}

/// The lock or locks that one section takes.
pub(super) struct Wish {
    pub(super) names: Vec<String>,
    pub(super) side: Option<Side>,
    wanted: Wanted,
}

impl Wishes {
    /// For the task whose name has this number.
    pub(super) fn new(
        quorum: &Quorum,
        load: &Load,
        own: u64,
        ttl: Duration,
        wait: Duration,
    ) -> Self {
        let (locks, name) = (locks(load), name(own));
        let quorum = quorum.clone();
        let terms = Terms {
            ttl,
            wait: Some(wait),
            renewal: Renewal::auto(),
        };
        let wanted = move |asked| Wanted::of(&quorum, &asked, terms);
        Self {
            own,
            locks,
            count: u64::from(load.names.count),
            alone: wanted(match (locks.limit, locks.readers) {
                (Some(limit), _) => Asked::Slot {
                    name: name.clone(),
                    limit,
                },
                (None, Some(_)) => Asked::Write(name.clone()),
                (None, None) => Asked::Mutex(name.clone()),
            }),
            beside: wanted(Asked::Read(name)),
            several: Box::new(move |names| wanted(Asked::Several(names))),
        }
    }

    /// The next thing to take. With several names: its own and up to two others.
    pub(super) fn next(&self) -> Wish {
        let below = |most: usize| rand::random_range(0..most);
        let mut names = vec![name(self.own)];
        if self.locks.several {
            let others = others(self.own, self.count, below(MOST), below);
            names.extend(others.into_iter().map(name));
        }
        let reads = |readers| match rand::random_range(0..100) < readers {
            true => Side::Reader,
            false => Side::Writer,
        };
        let side = self.locks.readers.map(reads);
        Wish {
            wanted: match (side, names.len()) {
                (Some(Side::Reader), _) => self.beside.clone(),
                (_, 1) => self.alone.clone(),
                _ => (self.several)(names.clone()),
            },
            names,
            side,
        }
    }
}

/// Chooses `more` of the other names, or all if there are fewer. `below` gives a random number below its argument.
fn others(own: u64, count: u64, more: usize, below: impl Fn(usize) -> usize) -> Vec<u64> {
    let mut left: Vec<u64> = (0..count).filter(|name| *name != own).collect();
    let mut taken = Vec::new();
    for _ in 0..more {
        if !left.is_empty() {
            taken.push(left.swap_remove(below(left.len())));
        }
    }
    taken
}

impl Wish {
    /// Waits until it is granted.
    pub(super) async fn take(&self) -> Result<Lease, Error> {
        self.wanted.take().await
    }

    /// Returns `None` if others have it.
    pub(super) async fn try_take(&self) -> Result<Option<Lease>, Error> {
        self.wanted.try_take().await
    }
}

/// The name with this number.
pub(super) fn name(index: u64) -> String {
    format!("torture-{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_distinct_and_not_the_own_one() {
        for below in [|_: usize| 0, |most: usize| most - 1] {
            for (count, more, taken) in [(8, 2, 2), (8, 0, 0), (2, 2, 1), (1, 2, 0)] {
                let own = 1.min(count - 1);
                let others = others(own, count, more, below);
                assert_eq!(others.len(), taken, "{count} {more}");
                assert!(!others.contains(&own), "{others:?}");
                assert!(others.first() != others.get(1) || taken < 2, "{others:?}");
            }
        }
    }
}
