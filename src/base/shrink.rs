//! Gives back the memory that a collection took for a crowd, once the crowd is gone.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hash},
};

/// An empty collection keeps room for this many items.
const KEPT: usize = 64;
/// More room than this was for a crowd. A smaller collection that fills and empties all day asks for memory once.
const CROWD: usize = 16 * KEPT;

/// A collection that is filled and emptied again and again.
pub(crate) trait Shrink {
    /// The number of items, and the room for items.
    fn taken(&self) -> (usize, usize);

    fn shrink(&mut self, to: usize);

    /// Gives the room of a crowd back if nothing is left. Otherwise it costs only a look.
    fn shrink_if_empty(&mut self) {
        let (taken, room) = self.taken();
        if taken == 0 && room > CROWD {
            self.shrink(KEPT);
        }
    }
}

impl<T> Shrink for Vec<T> {
    fn taken(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink(&mut self, to: usize) {
        self.shrink_to(to);
    }
}

impl<T> Shrink for VecDeque<T> {
    fn taken(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink(&mut self, to: usize) {
        self.shrink_to(to);
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Shrink for hashbrown::HashMap<K, V, S> {
    fn taken(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink(&mut self, to: usize) {
        self.shrink_to(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_collection_shrinks_once_it_is_empty() {
        let mut queue: VecDeque<u64> = (0..10_000).collect();
        queue.shrink_if_empty();
        assert!(queue.capacity() >= 10_000, "they are still there");
        queue.clear();
        queue.shrink_if_empty();
        let kept = queue.capacity();
        assert!((KEPT..2 * KEPT).contains(&kept), "{kept}");
        queue.extend(0..500);
        queue.clear();
        let few = queue.capacity();
        queue.shrink_if_empty();
        assert_eq!(queue.capacity(), few, "those were no crowd");
    }
}
