//! Token uniqueness: no token of a name is given twice.

use std::collections::BTreeMap;

use super::{Held, Operation, Violation};

/// The tokens of one name.
#[derive(Debug, Default)]
pub(crate) struct Uniqueness(BTreeMap<u64, Operation>);

impl Uniqueness {
    pub(crate) fn granted(&mut self, lease: &Operation) -> Held {
        match self.0.insert(lease.token.unwrap_or(0), lease.clone()) {
            None => Ok(()),
            Some(other) => Err(Violation::new(
                "token uniqueness",
                "one token, two holders",
                &[&other, lease],
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_token_given_to_two_operations_is_found() {
        let mut tokens = Uniqueness::default();
        assert_eq!(tokens.granted(&operation(1, 5, 0, 10)), Ok(()));
        assert_eq!(tokens.granted(&operation(1, 6, 0, 10)), Ok(()));
        assert!(tokens.granted(&operation(2, 5, 70, 90)).is_err());
    }
}
