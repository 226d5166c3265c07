//! CLIENT KILL ends only connections of the client that sends it.

use super::{Held, Violation};

/// Client and incarnation of the sender, and of the owner of the connection.
pub(crate) fn check(killer: (usize, u64), victim: (usize, u64), id: u64) -> Held {
    if killer == victim {
        return Ok(());
    }
    let what = format!(
        "client {}.{} ended connection {id}, which is client {}.{}'s",
        killer.0, killer.1, victim.0, victim.1
    );
    Err(Violation::new("no stranger dies", what, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_of_a_strangers_connection_is_found() {
        assert_eq!(check((1, 0), (1, 0), 7), Ok(()));
        assert!(check((1, 0), (2, 0), 7).is_err());
        assert!(check((1, 1), (1, 0), 7).is_err());
    }
}
