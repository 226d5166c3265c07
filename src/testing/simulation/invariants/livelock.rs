//! No livelock: a clock must not ring at once again and again while nothing is done in between.

use super::{Held, Violation};

const MOST: u32 = 200;

/// Checks the number of ticks at one instant.
pub(crate) fn check(client: usize, ticks: u32) -> Held {
    if ticks <= MOST {
        return Ok(());
    }
    let what = format!("client {client} rang {ticks} times at one instant");
    Err(Violation::new("no livelock", what, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_livelock_is_found() {
        assert_eq!(check(0, MOST), Ok(()));
        assert!(check(0, MOST + 1).is_err());
    }
}
