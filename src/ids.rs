//! Maps by numbers that this process counts itself.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map by such numbers. Nobody else chooses them, so they need no hash that withstands attackers: std's takes four
/// times as long, and an engine looks something up for every answer of every node.
pub(crate) type ById<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies by an odd number: numbers in a row get distinct hashes.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0.rotate_left(5) ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, small: u8) {
        self.write_u64(u64::from(small));
    }

    /// Which variant of an enum.
    fn write_isize(&mut self, variant: isize) {
        self.write_u64(variant as u64);
    }

    /// The table looks at the lowest bits and at the highest.
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        hash::{BuildHasher, Hash},
    };

    use super::*;

    fn hash(what: impl Hash) -> u64 {
        BuildHasherDefault::<IdHasher>::default().hash_one(what)
    }

    /// As the keys of timers are: a variant, a number, a small number.
    #[test]
    fn numbers_in_a_row_are_spread() {
        const N: usize = 4096;
        let hashes: Vec<u64> = (0..N as u64 / 4)
            .flat_map(|id| {
                [
                    hash((0_isize, id, 0_u8)),
                    hash((0_isize, id, 1_u8)),
                    hash((1_isize, id)),
                    hash((2_isize, id)),
                ]
            })
            .collect();
        let distinct = |of: &dyn Fn(u64) -> u64| {
            let all: HashSet<u64> = hashes.iter().map(|hash| of(*hash)).collect();
            all.len()
        };
        assert!(distinct(&|hash| hash) > N * 99 / 100);
        // Of so many random ones 63 % would be distinct.
        let low = distinct(&|hash| hash % N as u64);
        assert!(low > N * 6 / 10, "{low}");
        assert_eq!(distinct(&|hash| hash >> 57), 128);
    }
}
