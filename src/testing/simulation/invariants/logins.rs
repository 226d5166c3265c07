//! Logins that expire are renewed in time, and one at a time in each client.

use super::{Held, Violation};

/// Checks the number of nodes on which a client logs in again at this instant.
pub(crate) fn check_turns(client: usize, logins: usize) -> Held {
    if logins <= 1 {
        return Ok(());
    }
    let what = format!("client {client} logs in again on {logins} nodes at once");
    Err(Violation::new("one login at a time", what, &[]))
}

/// A login has expired although every new one would have been accepted in time.
pub(crate) fn check_renewed(client: usize, server: usize) -> Held {
    let what = format!("the login of client {client} on server {server} has expired");
    Err(Violation::new("logins are renewed", what, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_logins_at_once_are_found() {
        assert_eq!(check_turns(0, 1), Ok(()));
        assert!(check_turns(0, 2).is_err());
        assert!(check_renewed(0, 0).is_err());
    }
}
