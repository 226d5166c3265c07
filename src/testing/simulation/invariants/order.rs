//! Token order: a later grant of a name has a greater token.

use super::{Held, Operation, Violation};

/// The grants of one name.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Sorted by true time.
    granted: Vec<Operation>,
}

impl Order {
    /// Checks a grant. If `strict`, its token must be greater than those of all grants before it. Otherwise (where an
    /// operator frees names under their holders) it must be greater than those of all grants before it was asked for.
    pub(crate) fn granted(&mut self, lease: &Operation, strict: bool) -> Held {
        let earlier = |other: &&Operation| strict || other.answered_at <= Some(lease.asked_at);
        let older = self
            .granted
            .iter()
            .filter(earlier)
            .max_by_key(|other| other.token);
        let held = match older {
            Some(other) if other.token >= lease.token => {
                let what = "the later holder's token is not greater";
                Err(Violation::new("token order", what, &[other, lease]))
            }
            _ => Ok(()),
        };
        self.granted.push(lease.clone());
        held
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_smaller_or_equal_token_is_found() {
        let mut order = Order::default();
        assert_eq!(order.granted(&operation(1, 5, 0, 10), true), Ok(()));
        assert_eq!(order.granted(&operation(2, 6, 5, 20), true), Ok(()));
        assert!(
            order.granted(&operation(3, 6, 21, 30), true).is_err(),
            "equal"
        );
        assert!(
            order.granted(&operation(3, 4, 21, 30), true).is_err(),
            "smaller"
        );
    }

    #[test]
    fn if_names_are_freed_only_later_requests_are_compared() {
        let mut order = Order::default();
        assert_eq!(order.granted(&operation(1, 6, 5, 20), false), Ok(()));
        assert_eq!(order.granted(&operation(2, 5, 19, 30), false), Ok(()));
        assert!(order.granted(&operation(3, 6, 30, 40), false).is_err());
    }
}
