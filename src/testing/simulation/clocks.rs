//! A clock with small errors: it slews within ±0.5 % and can be stepped.

/// True time and readings are in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Drifting {
    anchor: u64,
    reading: u64,
    /// How much faster than true time it runs, in millionths.
    ppm: i64,
}

/// The greatest slew that protocol §1 assumes.
pub(crate) const MOST_PPM: i64 = 5_000;

const MILLION: i128 = 1_000_000;

impl Drifting {
    pub(crate) fn new(now: u64, reading: u64, ppm: i64) -> Self {
        Self {
            anchor: now,
            reading,
            ppm,
        }
    }

    pub(crate) fn read(&self, now: u64) -> u64 {
        let passed = i128::from(now.saturating_sub(self.anchor));
        let counted = passed + passed * i128::from(self.ppm) / MILLION;
        self.reading
            .saturating_add(u64::try_from(counted).unwrap_or(0))
    }

    /// The first true instant at which the clock shows at least this.
    pub(crate) fn when(&self, reading: u64) -> u64 {
        let counted = i128::from(reading.saturating_sub(self.reading));
        let passed = counted * MILLION / (MILLION + i128::from(self.ppm));
        let mut at = self
            .anchor
            .saturating_add(u64::try_from(passed).unwrap_or(0));
        while self.read(at) < reading {
            at += 1;
        }
        at
    }

    /// From now on the clock runs at another speed.
    pub(crate) fn slew(&mut self, now: u64, ppm: i64) {
        *self = Self::new(now, self.read(now), ppm);
    }

    /// This much true time passes at once, and the clock counts it correctly.
    pub(crate) fn shift(&mut self, by: u64) {
        self.anchor += by;
        self.reading += by;
    }

    /// Steps the clock.
    pub(crate) fn step(&mut self, now: u64, by: i64) {
        *self = Self::new(now, self.read(now).saturating_add_signed(by), self.ppm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifting_clock_finds_when_it_shows_a_reading() {
        for ppm in [-5000, -3, 0, 17, 5000] {
            let clock = Drifting::new(1_000, 50_000, ppm);
            assert_eq!(clock.read(1_000), 50_000);
            for reading in [50_000, 50_001, 51_234_567, 9_050_000_001] {
                let at = clock.when(reading);
                assert!(clock.read(at) >= reading);
                assert!(at == 1_000 || clock.read(at - 1) < reading);
            }
        }
        assert_eq!(Drifting::new(0, 0, 5000).read(1_000_000), 1_005_000);
    }

    #[test]
    fn a_slew_goes_on_from_where_it_was_and_a_step_does_not() {
        let mut clock = Drifting::new(0, 0, 1000);
        clock.slew(1_000_000, -1000);
        assert_eq!(clock.read(1_000_000), 1_001_000);
        clock.step(1_000_000, -1_000);
        assert_eq!(clock.read(2_000_000), 1_999_000);
    }
}
