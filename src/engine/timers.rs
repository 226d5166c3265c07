//! When to look at what again. At most one timer per key counts; older ones ring unheard.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use crate::clock::Tick;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Task(u64),
    Lease(u64),
    /// The end of a wait in line.
    Turn(u64),
}

/// A heap of instants.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Tick, Key)>>,
    armed: HashMap<Key, Tick>,
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

    #[test]
    fn the_earliest_counts_once() {
        let t = Tick::from_nanos;
        let mut timers = Timers::default();
        timers.at(Key::Lease(1), t(50));
        timers.at(Key::Lease(1), t(20));
        timers.at(Key::Lease(1), t(30));
        timers.at(Key::Task(1), t(30));
        assert_eq!(timers.pop(t(19)), None);
        assert_eq!(timers.pop(t(20)), Some(Key::Lease(1)));
        assert_eq!(timers.pop(t(40)), Some(Key::Task(1)));
        assert_eq!(timers.pop(t(60)), None, "the superseded one is not heard");
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn what_is_cancelled_is_not_woken_for() {
        let t = Tick::from_nanos;
        let mut timers = Timers::default();
        timers.at(Key::Task(1), t(10));
        timers.at(Key::Task(2), t(20));
        timers.at(Key::Task(3), t(30));
        timers.cancel(Key::Task(2));
        assert_eq!(timers.next(), Some(t(10)));
        timers.cancel(Key::Task(1));
        assert_eq!(timers.next(), Some(t(30)));
    }

    #[test]
    fn what_is_cancelled_is_not_kept_behind_what_is_not() {
        let t = Tick::from_nanos;
        let mut timers = Timers::default();
        timers.at(Key::Lease(0), t(1));
        for lease in 1..10_000 {
            timers.at(Key::Lease(lease), t(1000 + lease));
            timers.cancel(Key::Lease(lease));
        }
        assert!(timers.len() < 100, "{}", timers.len());
        assert_eq!(timers.next(), Some(t(1)));
    }
}
