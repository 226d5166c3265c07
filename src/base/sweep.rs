//! Decides when to look through a map for entries that nobody uses any more.

use std::time::Duration;

use crate::base::clock::Tick;

/// A smaller map is never looked through.
const CROWD: usize = 1024;
/// The time between two looks. A look also comes when there are twice as many entries as were left after the last one.
const AFTER: Duration = Duration::from_secs(60);

/// The last look, and how many entries it left.
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
    fn a_sweep_is_due_after_a_while_or_when_entries_have_doubled() {
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
