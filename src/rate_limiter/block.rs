//! Units that one process has taken ahead of their use.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use crate::{clock::Tick, rate::words::Units};

/// How many bits of the word are units; the others are ms of the clock.
const UNITS: u32 = 24;
/// The most units of a block.
pub(super) const MOST: u32 = (1 << UNITS) - 1;

/// What is left of a block. Taking from it is one exchange of a word.
#[derive(Default)]
pub(super) struct Block {
    /// Until when they may be used, in ms, and how many there are.
    word: AtomicU64,
    /// Where they came from: what is not used goes back there.
    from: Mutex<Option<Units>>,
    /// One at a time asks for the next.
    pub(super) asks: tokio::sync::Mutex<()>,
    /// How many wait for units in the engine's line.
    pub(super) waiting: AtomicUsize,
}

impl Block {
    /// Takes so many, if they are there. How many are left.
    pub(super) fn take(&self, now: Tick, units: u32) -> Option<u32> {
        let mut word = self.word.load(Relaxed);
        loop {
            let (until, there) = (word >> UNITS, word & u64::from(MOST));
            let left = there.checked_sub(units.into())?;
            // A whole ms early: both are rounded down.
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

    /// The next block, of which so many are used already. What was left of the one before goes back.
    pub(super) fn put(&self, units: Units, used: u32) {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        let left = units.count().saturating_sub(used).min(MOST);
        let next = (ms(units.until) << UNITS) | u64::from(left);
        let unused = self.word.swap(next, Relaxed) & u64::from(MOST);
        if let Some(mut before) = from.replace(units) {
            before.use_all_but(u32::try_from(unused).unwrap_or(MOST));
        }
    }

    /// What is left goes back: it is too old, or too little for whoever asks.
    pub(super) fn give_back(&self) {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = self.word.swap(0, Relaxed) & u64::from(MOST);
        if let Some(mut before) = from.take() {
            before.use_all_but(u32::try_from(unused).unwrap_or(MOST));
        }
    }

    /// Whether units are there.
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
