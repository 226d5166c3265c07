//! The slots of a semaphore that are taken on a node: one bit for each, in the order of a server's `SETBIT`.

#![cfg_attr(not(feature = "unstable-node"), allow(unreachable_pub))]

use std::fmt;

/// One bit for each slot. Slots beyond the end are free, and the last byte is not zero.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Taken(Vec<u8>);

impl Taken {
    /// Reads the bytes of a server.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        let mut taken = Self(bytes.into());
        taken.trim();
        taken
    }

    /// Returns true if this slot is taken.
    pub fn has(&self, slot: u32) -> bool {
        let (byte, bit) = place(slot);
        self.0.get(byte).is_some_and(|byte| byte & bit != 0)
    }

    /// Takes a slot, or sets it free.
    pub fn set(&mut self, slot: u32, taken: bool) {
        let (byte, bit) = place(slot);
        if taken && self.0.len() <= byte {
            self.0.resize(byte + 1, 0);
        }
        if let Some(byte) = self.0.get_mut(byte) {
            match taken {
                true => *byte |= bit,
                false => *byte &= !bit,
            }
        }
        self.trim();
    }

    /// Also takes the slots that are taken in `other`.
    pub fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (one, other) in self.0.iter_mut().zip(&other.0) {
            *one |= other;
        }
    }

    /// How many slots are taken above this one.
    pub fn above(&self, slot: u32) -> u32 {
        let (byte, bit) = place(slot);
        let rest = self.0.iter().skip(byte + 1).map(|byte| byte.count_ones());
        let here = self.0.get(byte).map_or(0, |byte| byte & (bit - 1));
        here.count_ones() + rest.sum::<u32>()
    }

    /// How many slots are taken.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|byte| byte.count_ones()).sum()
    }

    fn trim(&mut self) {
        let used = self.0.iter().rposition(|byte| *byte != 0);
        self.0.truncate(used.map_or(0, |last| last + 1));
    }

    /// The slots that are taken, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = u32::try_from(self.0.len() * 8).unwrap_or(u32::MAX);
        (0..bits).filter(|slot| self.has(*slot))
    }

    /// The first free slot from `from` on, below `end`.
    #[cfg(any(test, feature = "test-util"))]
    pub fn next_free(&self, from: u32, end: u32) -> Option<u32> {
        (from..end).find(|slot| !self.has(*slot))
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The byte of a slot, and its bit in there.
fn place(slot: u32) -> (usize, u8) {
    (slot as usize / 8, 0x80 >> (slot % 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(slots: &[u32]) -> Taken {
        let mut taken = Taken::default();
        slots.iter().for_each(|slot| taken.set(*slot, true));
        taken
    }

    #[test]
    fn bits_are_counted_as_a_server_does() {
        // SETBIT b 0 1, SETBIT b 9 1
        assert_eq!(taken(&[0, 9]), Taken::from_bytes([0x80, 0x40]));
        assert_eq!(taken(&[0]), Taken::from_bytes([0x80, 0, 0]));
    }

    #[test]
    fn slots_above_a_slot_are_counted_without_it() {
        let some = taken(&[1, 3, 7, 8, 20]);
        for (slot, above) in [
            (0, 5),
            (1, 4),
            (2, 4),
            (3, 3),
            (7, 2),
            (8, 1),
            (19, 1),
            (20, 0),
            (99, 0),
        ] {
            assert_eq!(some.above(slot), above, "{slot}");
        }
    }

    #[test]
    fn slots_are_taken_and_freed_and_joined() {
        let mut some = taken(&[2, 70]);
        some.set(70, false);
        some.set(900, false);
        assert_eq!(some, taken(&[2]));
        assert_eq!(some.iter().collect::<Vec<_>>(), [2]);
        some.add(&taken(&[0, 11]));
        assert_eq!(some.iter().collect::<Vec<_>>(), [0, 2, 11]);
        assert_eq!(some.count(), 3);
        assert_eq!(some.next_free(0, 12), Some(1));
        assert_eq!(taken(&[0, 1]).next_free(0, 2), None);
        assert_eq!(taken(&[0, 1]).next_free(0, 3), Some(2));
    }
}
