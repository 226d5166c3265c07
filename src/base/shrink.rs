//! The room that a crowd took is given back when the crowd is gone.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hash},
};

/// What is empty keeps room for this many.
const KEPT: usize = 64;
/// From here on it was a crowd. What fills and empties all day below this asks for memory once.
const CROWD: usize = 16 * KEPT;

/// What is filled and emptied again and again.
pub(crate) trait Room {
    /// How many there are, and for how many there is room.
    fn taken(&self) -> (usize, usize);

    fn shrink(&mut self, to: usize);

    /// Nobody is there any more: the room of a crowd is given back. A look, where there was none.
    fn give_back(&mut self) {
        let (taken, room) = self.taken();
        if taken == 0 && room > CROWD {
            self.shrink(KEPT);
        }
    }
}

impl<T> Room for Vec<T> {
    fn taken(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink(&mut self, to: usize) {
        self.shrink_to(to);
    }
}

impl<T> Room for VecDeque<T> {
    fn taken(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink(&mut self, to: usize) {
        self.shrink_to(to);
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Room for hashbrown::HashMap<K, V, S> {
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
    fn a_crowd_that_is_gone_takes_no_room() {
        let mut queue: VecDeque<u64> = (0..10_000).collect();
        queue.give_back();
        assert!(queue.capacity() >= 10_000, "they are still there");
        queue.clear();
        queue.give_back();
        let kept = queue.capacity();
        assert!((KEPT..2 * KEPT).contains(&kept), "{kept}");
        queue.extend(0..500);
        queue.clear();
        let few = queue.capacity();
        queue.give_back();
        assert_eq!(queue.capacity(), few, "those were no crowd");
    }
}
