//! A clock that is told to ring at once, again and again, with nothing done in between.

use super::{Held, Violation};

const MOST: u32 = 200;

/// The most ticks that there may be at one instant.
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
    fn it_sees_one() {
        assert_eq!(check(0, MOST), Ok(()));
        assert!(check(0, MOST + 1).is_err());
    }
}
