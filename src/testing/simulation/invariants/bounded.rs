//! Memory is bounded: the number of requests that one client has unanswered at one master stays small.

use super::{Held, Violation};

/// Far more than the programs of these schedules send at once.
const MOST: usize = 1_000;

/// Checks the number of requests that are unanswered at one master.
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
    fn too_many_unanswered_requests_are_found() {
        assert_eq!(check(0, MOST), Ok(()));
        assert!(check(0, MOST + 1).is_err());
    }
}
