//! Random numbers that depend only on the seed, on every machine and in every version (SplitMix64).

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Self(seed ^ 0x5DEE_CE66_D1CE_4E5B);
        dice.next();
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A random number from `0..n`, or 0 if n is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// A random number from `low..=high`.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A random number between low and high, both included.
    pub(crate) fn signed(&mut self, low: i64, high: i64) -> i64 {
        let span = u64::try_from(high.saturating_sub(low)).unwrap_or(0);
        low.saturating_add(i64::try_from(self.range(0, span)).unwrap_or(0))
    }

    /// True in `n` of a hundred cases.
    pub(crate) fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    /// True in `n` of a thousand cases.
    pub(crate) fn per_mille(&mut self, n: u64) -> bool {
        self.below(1000) < n
    }

    /// A random index into a collection of this length.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// A number that is mostly small and sometimes large: `low` at least, about `high` at most.
    pub(crate) fn skewed(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low);
        let part = self.below(1024).saturating_mul(self.below(1024)) / 1024;
        low + span / 1024 * part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_sequence() {
        let (mut a, mut b) = (Dice::new(7), Dice::new(7));
        assert_eq!(
            (0..9).map(|_| a.next()).collect::<Vec<_>>(),
            (0..9).map(|_| b.next()).collect::<Vec<_>>()
        );
        assert_ne!(Dice::new(7).next(), Dice::new(8).next());
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut dice = Dice::new(1);
        for _ in 0..1000 {
            assert!((3..=5).contains(&dice.range(3, 5)));
            assert!((-2..=2).contains(&dice.signed(-2, 2)));
            assert!((10..=2000).contains(&dice.skewed(10, 2000)));
        }
        assert_eq!(dice.below(0), 0);
    }
}
