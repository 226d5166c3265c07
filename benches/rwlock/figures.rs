//! Measured times, and statistics of them.

use std::time::Duration;

use rand::random_range;

/// The time of each measurement.
#[derive(Clone, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The value that this percentage of the times did not exceed. 100 is the longest time.
    pub fn at(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let last = sorted.len().saturating_sub(1);
        sorted
            .get((sorted.len() * percent / 100).min(last))
            .copied()
            .unwrap_or_default()
    }

    pub fn mean(&self) -> Duration {
        self.0.iter().sum::<Duration>() / self.0.len().max(1) as u32
    }
}

impl FromIterator<Duration> for Times {
    fn from_iter<I: IntoIterator<Item = Duration>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

pub fn in_units_of(unit: Duration, time: Duration) -> f64 {
    time.as_secs_f64() / unit.as_secs_f64()
}

pub fn exponential(mean: Duration) -> Duration {
    let uniform: f64 = random_range(f64::EPSILON..1.0);
    mean.mul_f64(-uniform.ln())
}

pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
