//! Units that one process has taken ahead of their use.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use crate::{
    base::clock::Tick,
    protocol::rates::words::{Room, Units},
};

/// The number of bits of the word that count units; the others are ms of the clock.
const UNITS: u32 = 24;
/// The most units of a block.
pub(super) const MOST: u32 = (1 << UNITS) - 1;

/// The units that are left of a block. Taking some is one exchange of a word.
#[derive(Default)]
pub(super) struct Block {
    /// The end of their use, in ms, and how many there are.
    word: AtomicU64,
    /// The limit of the interval that bound when the block came, and when its units are all free again, in ms.
    limit: AtomicU32,
    free_at: AtomicU64,
    /// The nodes that gave the units. Unused units go back there.
    from: Mutex<Option<Box<Units>>>,
    /// Held by the one caller that asks for the next block. For slots, of which no block is taken, it is held by the
    /// first in this limiter's queue.
    pub(super) asks: tokio::sync::Mutex<()>,
    /// Counts the callers that wait for `asks`, or for units in the engine's queue.
    pub(super) waiting: AtomicUsize,
}

impl Block {
    /// Takes this many units, if they are there. Returns how many are left.
    pub(super) fn take(&self, now: Tick, units: u32) -> Option<u32> {
        let mut word = self.word.load(Relaxed);
        loop {
            let (until, there) = (word >> UNITS, word & u64::from(MOST));
            let left = there.checked_sub(units.into())?;
            // Both are rounded down, so units end up to 1 ms early.
            if ms(now) >= until || there == 0 {
                return None;
            }
            let next = (until << UNITS) | left;
            match self
                .word
                .compare_exchange_weak(word, next, Relaxed, Relaxed)
            {
                Ok(_) => return u32::try_from(left).ok(),
                Err(other) => word = other,
            }
        }
    }

    /// Replaces the block by the next one, of which `used` units are used already. Units left of the old block go back.
    pub(super) fn put(&self, units: Units, used: u32) {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        let left = units.count().saturating_sub(used).min(MOST);
        self.limit.store(units.room.limit, Relaxed);
        self.free_at.store(ms(units.room.free_at) + 1, Relaxed);
        let next = (ms(units.until) << UNITS) | u64::from(left);
        let unused = self.word.swap(next, Relaxed) & u64::from(MOST);
        if let Some(mut before) = from.replace(Box::new(units)) {
            before.use_all_but(u32::try_from(unused).unwrap_or(MOST));
        }
    }

    /// The room of the interval that bound when the block came, with this number of units left.
    pub(super) fn room(&self, left: u32) -> Room {
        Room {
            left,
            limit: self.limit.load(Relaxed),
            free_at: Tick::from_nanos(self.free_at.load(Relaxed).saturating_mul(1_000_000)),
        }
    }

    /// Gives the units that are left back: they are too old, or too few for the caller.
    pub(super) fn give_back(&self) {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = self.word.swap(0, Relaxed) & u64::from(MOST);
        if let Some(mut before) = from.take() {
            before.use_all_but(u32::try_from(unused).unwrap_or(MOST));
        }
    }

    /// Returns true if units are there.
    pub(super) fn is_good(&self, now: Tick) -> bool {
        self.take(now, 0).is_some()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let unused = *self.word.get_mut() & u64::from(MOST);
        let from = self.from.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut units) = from.take() {
            units.use_all_but(u32::try_from(unused).unwrap_or(MOST));
        }
    }
}

fn ms(at: Tick) -> u64 {
    at.nanos() / 1_000_000
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicBool},
        thread,
        time::Duration,
    };

    use super::*;
    use crate::{
        base::name::Name,
        base::quota::Stamp,
        protocol::rates::words::{Limited, Part, Purse},
    };

    /// Counts the units that come back.
    #[derive(Default)]
    struct Back(AtomicU64);

    impl Purse for Back {
        fn take_back(&self, _: &Arc<Limited>, parts: Vec<Part>) {
            let units = parts.iter().map(|part| u64::from(part.units));
            self.0.fetch_add(units.sum(), Relaxed);
        }
    }

    impl Back {
        fn units(&self) -> u64 {
            self.0.load(Relaxed)
        }
    }

    fn at(us: u64) -> Tick {
        Tick::default().plus(Duration::from_micros(us))
    }

    /// Units that two nodes gave.
    fn units(purse: &Arc<Back>, count: u32, until: Tick) -> Units {
        let stamps: Box<[Stamp]> = Box::default();
        let part = |node: usize, units: u32| Part {
            node,
            units,
            stamps: stamps.clone(),
        };
        let limited = Limited {
            name: Name::new("block").unwrap(),
            windows: Arc::default(),
        };
        let parts = vec![part(0, count / 3), part(1, count - count / 3)];
        let purse: Arc<dyn Purse> = Arc::clone(purse) as _;
        Units::new(
            limited.into(),
            parts,
            Arc::downgrade(&purse),
            until,
            Room::default(),
        )
    }

    #[test]
    fn block_units_are_good_until_their_last_whole_millisecond() {
        let (purse, block) = (Arc::<Back>::default(), Block::default());
        assert_eq!(block.take(at(0), 1), None);
        block.put(units(&purse, 9, at(50_700)), 1);
        assert_eq!(block.take(at(49_999), 1), Some(7));
        assert!(block.is_good(at(49_999)));
        for late in [50_000, 50_699, 50_700, 90_000] {
            assert_eq!(block.take(at(late), 1), None, "{late}");
            assert!(!block.is_good(at(late)), "{late}");
        }
    }

    #[test]
    fn only_the_unused_units_of_a_block_go_back() {
        let (purse, block) = (Arc::<Back>::default(), Block::default());
        block.put(units(&purse, 10, at(50_000)), 3);
        assert_eq!(block.take(at(0), 2), Some(5));
        assert_eq!(block.take(at(0), 6), None, "all or none");
        // The next block comes: the five units left of the first go back.
        block.put(units(&purse, 20, at(60_000)), 1);
        assert_eq!(purse.units(), 5);
        assert_eq!(block.take(at(0), 19), Some(0));
        assert!(!block.is_good(at(0)));
        block.give_back();
        assert_eq!(purse.units(), 5);
        block.put(units(&purse, 7, at(70_000)), 0);
        block.give_back();
        assert_eq!(purse.units(), 12);
        block.give_back();
        assert_eq!((purse.units(), block.take(at(0), 1)), (12, None));
        block.put(units(&purse, 4, at(70_000)), 1);
        drop(block);
        assert_eq!(purse.units(), 15);
    }

    /// It holds also while the next block replaces this one.
    #[test]
    fn each_unit_is_taken_by_one_thread_only() {
        const K: u32 = 1_000;
        for blocks in [1, 100] {
            let (purse, block) = (Arc::<Back>::default(), Block::default());
            let (taken, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
            let all_of_it = || {
                while !is_over.load(Relaxed) {
                    match block.take(at(0), 1) {
                        Some(_) => {
                            taken.fetch_add(1, Relaxed);
                        }
                        None => thread::yield_now(),
                    }
                }
            };
            thread::scope(|scope| {
                let threads = [(); 8].map(|()| scope.spawn(all_of_it));
                for _ in 0..blocks {
                    block.put(units(&purse, K, at(50_000)), 0);
                    thread::yield_now();
                }
                while block.is_good(at(0)) {
                    thread::yield_now();
                }
                is_over.store(true, Relaxed);
                drop(threads);
            });
            block.give_back();
            let (taken, back) = (taken.into_inner(), purse.units());
            println!("{taken} taken, {back} given back");
            assert_eq!(taken + back, blocks * u64::from(K));
            assert!(blocks > 1 || back == 0);
        }
    }
}
