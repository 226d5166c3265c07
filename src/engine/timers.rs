//! When to look at what again. At most one timer per key counts; superseded ones are ignored.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::event::WishId;
use crate::{
    base::{clock::Tick, ids::ById},
    lease::keeper::LeaseId,
    node::session::Tag,
};

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// Answers to a request are due.
    Round(Tag),
    Lease(LeaseId),
    /// The end of a wait in line, or of a rest.
    Wish(WishId),
    /// There may be units for who waits for some.
    Limit(LimitId),
    /// The end of a rest that a caller asked for.
    Rest(RestId),
}

impl Key {
    /// For the answers to a request of a round.
    pub(crate) fn of(tag: Tag) -> Self {
        Self::Round(tag)
    }
}

/// One rest of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RestId(pub(crate) u64);

/// One rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LimitId(pub(crate) u64);

/// From so much room on it is a crowd's.
const CROWD: usize = 1024;

/// A heap of instants.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Tick, Key)>>,
    armed: ById<Key, Tick>,
}

impl Timers {
    /// Rings for `key` at `at`, or at an earlier instant that was asked for before.
    pub(crate) fn at(&mut self, key: Key, at: Tick) {
        if self.armed.get(&key).is_some_and(|armed| *armed <= at) {
            return;
        }
        self.armed.insert(key, at);
        self.heap.push(Reverse((at, key)));
    }

    /// A key whose time has come.
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

    /// Does not ring for `key` any more.
    pub(crate) fn cancel(&mut self, key: Key) {
        self.armed.remove(&key);
        // What is done is mostly the oldest, so the heap stays as small as what is under way, and
        // nobody is woken for a request that was answered long ago.
        while let Some(Reverse((at, key))) = self.heap.peek() {
            if self.armed.get(key) == Some(at) {
                break;
            }
            self.heap.pop();
        }
        // Behind one that counts there may be any number that do not.
        if self.heap.len() > 2 * self.armed.len() + 64 {
            let armed = &self.armed;
            self.heap
                .retain(|Reverse((at, key))| armed.get(key) == Some(at));
        }
        self.give_back();
    }

    /// The room that a crowd took on its way in, whose requests are answered. Not before a good part of it is empty: it is
    /// taken again before long otherwise.
    fn give_back(&mut self) {
        let (armed, room) = (self.armed.len(), self.armed.capacity());
        if room > CROWD && armed < room / 8 * 3 {
            self.armed.shrink_to(armed / 4 * 5);
        }
        let (kept, room) = (self.heap.len(), self.heap.capacity());
        if room > CROWD && kept < room / 8 * 3 {
            self.heap.shrink_to(kept / 4 * 5);
        }
    }

    /// How many are kept, heard or not.
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
    fn the_earliest_counts_once() {
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
    fn what_is_cancelled_is_not_woken_for() {
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
    fn the_room_of_a_crowd_is_given_back() {
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
    fn what_is_cancelled_is_not_kept_behind_what_is_not() {
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
