//! When a map of what is in use is looked through for what nobody uses any more.

use std::time::Duration;

use crate::base::clock::Tick;

/// Never with fewer than this.
const CROWD: usize = 1024;
/// When it was this long ago, or when there are twice as many as were left the last time.
const AFTER: Duration = Duration::from_secs(60);

/// The last time, and how many were left.
#[derive(Default)]
pub(crate) struct Sweep {
    left: usize,
    at: Tick,
}

impl Sweep {
    pub(crate) fn is_due(&self, there: usize, now: Tick) -> bool {
        there >= CROWD && (there >= 2 * self.left || now.since(self.at) >= AFTER)
    }

    pub(crate) fn done(&mut self, left: usize, now: Tick) {
        *self = Self { left, at: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_after_a_while_or_when_there_are_twice_as_many() {
        let mut sweep = Sweep::default();
        let now = Tick::default().plus(AFTER);
        assert!(!sweep.is_due(CROWD - 1, now));
        assert!(sweep.is_due(CROWD, now));
        sweep.done(CROWD, now);
        assert!(!sweep.is_due(2 * CROWD - 1, now));
        assert!(sweep.is_due(2 * CROWD, now));
        let later = now.plus(AFTER);
        assert!(!sweep.is_due(CROWD, later.minus(Duration::from_millis(1))));
        assert!(sweep.is_due(CROWD, later));
        assert!(!sweep.is_due(CROWD - 1, later));
    }
}
