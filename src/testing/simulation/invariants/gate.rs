//! The store behind the lock accepts a write only with the newest token that it has seen. It must never refuse a holder
//! whose lease is good. If it does, a token from the past was in use.

use std::collections::BTreeMap;

use super::{Held, Operation, Violation};

/// One resource.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    newest: Option<Operation>,
    accepted: BTreeMap<u64, u64>,
}

impl Gate {
    /// Returns true if the write is accepted.
    pub(crate) fn write(&mut self, token: u64) -> bool {
        let takes = self
            .newest
            .as_ref()
            .and_then(|n| n.token)
            .is_none_or(|newest| token >= newest);
        if takes {
            *self.accepted.entry(token).or_default() += 1;
        }
        takes
    }

    /// Checks the write of a holder whose lease is good by its own clock.
    pub(crate) fn holder_writes(&mut self, lease: &Operation) -> Held {
        if !self.write(lease.token.unwrap_or(0)) {
            let newest = self.newest.clone().unwrap_or_else(|| lease.clone());
            let what = "a good lease has a token from the past";
            return Err(Violation::new(
                "the gate takes every holder's write",
                what,
                &[&newest, lease],
            ));
        }
        self.newest = Some(lease.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn an_older_write_is_refused_and_found_if_its_lease_was_good() {
        let mut gate = Gate::default();
        assert_eq!(gate.holder_writes(&operation(1, 5, 0, 10)), Ok(()));
        assert_eq!(gate.holder_writes(&operation(2, 8, 20, 30)), Ok(()));
        assert!(!gate.write(5), "late, and refused");
        assert_eq!(gate.holder_writes(&operation(2, 8, 20, 30)), Ok(()));
        assert!(gate.holder_writes(&operation(1, 5, 0, 10)).is_err());
    }
}
