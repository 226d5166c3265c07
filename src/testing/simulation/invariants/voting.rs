//! The rest goes on voting: a quarantine and a reconnect after the last fault every client whose
//! configuration is right counts enough masters, whatever clients in a crash loop do meanwhile.

use super::{Held, Violation};

/// How many masters vote for this client, and how many should.
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
    fn it_sees_a_fleet_that_stands_still() {
        assert_eq!(check(0, 2, 2, ""), Ok(()));
        assert!(check(0, 1, 2, "").is_err());
    }
}
