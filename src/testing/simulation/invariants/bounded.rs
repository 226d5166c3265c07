//! Memory is bounded: what one client has unanswered at one master stays small.

use super::{Held, Violation};

/// Far more than the programs of these schedules ask for at once.
const MOST: usize = 1_000;

/// The most requests that may be unanswered at one master.
pub(crate) fn check(client: usize, in_flight: usize) -> Held {
    if in_flight <= MOST {
        return Ok(());
    }
    let what = format!("client {client} has {in_flight} requests in flight to one master");
    Err(Violation::new("memory is bounded", what, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sees_what_piles_up() {
        assert_eq!(check(0, MOST), Ok(()));
        assert!(check(0, MOST + 1).is_err());
    }
}
