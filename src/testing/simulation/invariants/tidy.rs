//! After a quiet time a client keeps nothing: no task, no timer, and no release that is still to be confirmed.

use super::{Held, Violation};

/// Checks what is left, by name and number.
pub(crate) fn check(client: usize, left: &[(&'static str, usize)]) -> Held {
    match left.iter().find(|(_, n)| *n > 0) {
        None => Ok(()),
        Some((what, n)) => {
            let what = format!("client {client} keeps {n} {what} though nothing goes on");
            Err(Violation::new("tidy", what, &[]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftover_state_of_a_client_is_found() {
        assert_eq!(check(0, &[("tasks", 0)]), Ok(()));
        assert!(check(0, &[("tasks", 0), ("timers", 2)]).is_err());
    }
}
