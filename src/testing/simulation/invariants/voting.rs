//! The fleet goes on voting. After the last fault, a quarantine and a reconnect, every client with a right
//! configuration counts enough masters. Clients in a crash loop do not change that.

use super::{Held, Violation};

/// Checks how many masters vote for this client against how many should.
pub(crate) fn check(client: usize, voting: usize, needed: usize, states: &str) -> Held {
    if voting >= needed {
        return Ok(());
    }
    let what =
        format!("for client {client} {voting} masters vote, of {needed} that should: {states}");
    Err(Violation::new("the rest goes on voting", what, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_that_stops_voting_is_found() {
        assert_eq!(check(0, 2, 2, ""), Ok(()));
        assert!(check(0, 1, 2, "").is_err());
    }
}
