//! How a map with an entry for each key of a crowd is looked through for entries that nobody uses any more.

use std::time::Duration;

/// A smaller map is never looked through.
pub(crate) const CROWD: usize = 1024;
/// The time between two sweeps.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// The number of entries that one sweep looks at, so that no call waits until a million are looked at. Each is looked
/// at once in this time.
pub(crate) fn part(entries: usize, within: Duration) -> usize {
    let ticks = usize::try_from(within.as_millis() / TICK.as_millis());
    entries.div_ceil(ticks.unwrap_or(usize::MAX).max(1))
}

/// Returns true if so few entries are left that the room of the others should be given back.
pub(crate) fn is_too_wide(entries: usize, room: usize) -> bool {
    entries < room / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_looked_at_once_in_the_time() {
        assert_eq!(part(1_000, 4 * TICK), 250);
        assert_eq!(part(1_001, 4 * TICK), 251);
        assert_eq!(part(1_000, TICK / 2), 1_000);
        assert_eq!(part(0, TICK), 0);
    }
}
