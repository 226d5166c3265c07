//! Timers, each with a key for what is due. At most one timer per key counts; a superseded one is ignored.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::event::AcquisitionId;
use crate::{
    base::{clock::Tick, ids::ById},
    lease::keeper::LeaseId,
    node::session::Tag,
};

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// Answers to a request are due.
    Round(Tag),
    Lease(LeaseId),
    /// The next step of an acquisition: the end of a rest or of a wait, or the next look at one that is queued.
    Acquisition(AcquisitionId),
    /// There may be units for a caller that waits for units.
    Limit(LimitId),
    /// The end of a sleep that a caller asked for.
    Sleep(SleepId),
    /// The next look for rate limits that nobody uses any more.
    Sweep,
}

impl Key {
    /// The key for the answers to a request of a round.
    pub(crate) fn of(tag: Tag) -> Self {
        Self::Round(tag)
    }
}

/// A sleep that a caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SleepId(pub(crate) u64);

/// One rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LimitId(pub(crate) u64);

/// Tables with room for more entries than this are shrunk after a crowd has gone.
const CROWD: usize = 1024;

/// A heap of timers.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Tick, Key)>>,
    armed: ById<Key, Tick>,
}

impl Timers {
    /// Rings for `key` at `at`, or at an earlier time that was set before.
    pub(crate) fn at(&mut self, key: Key, at: Tick) {
        if self.armed.get(&key).is_some_and(|armed| *armed <= at) {
            return;
        }
        self.armed.insert(key, at);
        self.heap.push(Reverse((at, key)));
        debug_assert!(
            self.armed.len() <= self.heap.len(),
            "a timer that never rings"
        );
    }

    /// Takes out a key whose time has come.
    pub(crate) fn pop(&mut self, now: Tick) -> Option<Key> {
        while let Some(Reverse((at, key))) = self.heap.peek().copied() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if self.armed.get(&key) == Some(&at) {
                self.armed.remove(&key);
                return Some(key);
            }
        }
        None
    }

    /// Cancels the timer for `key`.
    pub(crate) fn cancel(&mut self, key: Key) {
        self.armed.remove(&key);
        // The timer that is cancelled is usually the oldest. Removing it here keeps the heap as small as the work under
        // way, and nothing wakes up for a request that was answered long ago.
        while let Some(Reverse((at, key))) = self.heap.peek() {
            if self.armed.get(key) == Some(at) {
                break;
            }
            self.heap.pop();
        }
        debug_assert!(
            self.armed.is_empty() || !self.heap.is_empty(),
            "a timer is lost"
        );
        // Any number of cancelled timers may lie behind one that counts.
        if self.heap.len() > 2 * self.armed.len() + 64 {
            let armed = &self.armed;
            self.heap
                .retain(|Reverse((at, key))| armed.get(key) == Some(at));
        }
        self.shrink_after_crowd();
    }

    /// Gives back the memory of a crowd that has gone. It waits until a good part of the memory is unused, because
    /// otherwise the memory would soon be needed again.
    fn shrink_after_crowd(&mut self) {
        let (armed, room) = (self.armed.len(), self.armed.capacity());
        if room > CROWD && armed < room / 8 * 3 {
            self.armed.shrink_to(armed / 4 * 5);
        }
        let (kept, room) = (self.heap.len(), self.heap.capacity());
        if room > CROWD && kept < room / 8 * 3 {
            self.heap.shrink_to(kept / 4 * 5);
        }
    }

    /// The number of timers in memory, cancelled ones included.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn len(&self) -> usize {
        self.heap.len().max(self.armed.len())
    }

    pub(crate) fn next(&self) -> Option<Tick> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::session::{Purpose, RoundId};

    fn lease(id: u64) -> Key {
        Key::Lease(LeaseId(id))
    }

    fn round(id: u64) -> Key {
        Key::of(Purpose::Acquire.of(RoundId(id)))
    }

    #[test]
    fn the_earliest_time_of_a_timer_fires_once() {
        let t = Tick::from_nanos;
        let mut timers = Timers::default();
        timers.at(lease(1), t(50));
        timers.at(lease(1), t(20));
        timers.at(lease(1), t(30));
        timers.at(round(1), t(30));
        assert_eq!(timers.pop(t(19)), None);
        assert_eq!(timers.pop(t(20)), Some(lease(1)));
        assert_eq!(timers.pop(t(40)), Some(round(1)));
        assert_eq!(timers.pop(t(60)), None, "the superseded one is not heard");
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_cancelled_timer_does_not_wake() {
        let t = Tick::from_nanos;
        let mut timers = Timers::default();
        timers.at(round(1), t(10));
        timers.at(round(2), t(20));
        timers.at(round(3), t(30));
        timers.cancel(round(2));
        assert_eq!(timers.next(), Some(t(10)));
        timers.cancel(round(1));
        assert_eq!(timers.next(), Some(t(30)));
    }

    #[test]
    fn timers_free_their_memory_after_a_crowd() {
        let t = Tick::from_nanos;
        let mut timers = Timers::default();
        for id in 0..10_000 {
            timers.at(round(id), t(id));
        }
        for id in 0..9_990 {
            timers.cancel(round(id));
        }
        assert!(timers.armed.capacity() < 2 * CROWD);
        assert!(timers.heap.capacity() < 2 * CROWD);
        assert_eq!(timers.pop(t(20_000)), Some(round(9_990)));
    }

    #[test]
    fn cancelled_timers_are_freed_behind_a_live_one() {
        let t = Tick::from_nanos;
        let mut timers = Timers::default();
        timers.at(lease(0), t(1));
        for id in 1..10_000 {
            timers.at(lease(id), t(1000 + id));
            timers.cancel(lease(id));
        }
        assert!(timers.len() < 100, "{}", timers.len());
        assert_eq!(timers.next(), Some(t(1)));
    }
}
