//! Mutual exclusion: no two leases of one name are good at one instant of true time, each by its own
//! holder's clock.

use super::{Held, Operation, Violation, ms};

/// All leases of one name that nobody gave up, and whether each is good by its holder's clock now.
pub(crate) fn check<'a>(now: u64, leases: impl Iterator<Item = (&'a Operation, bool)>) -> Held {
    let mut first: Option<&Operation> = None;
    for (lease, good) in leases {
        match first {
            _ if !good => {}
            None => first = Some(lease),
            Some(first) => {
                let what = format!("at {} both are holders", ms(now));
                return Err(Violation::new("mutual exclusion", what, &[first, lease]));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn it_sees_two_holders() {
        let (a, b, c) = (
            operation(1, 5, 0, 10),
            operation(2, 6, 5, 20),
            operation(3, 7, 8, 30),
        );
        assert_eq!(
            check(30, [(&a, true), (&b, false), (&c, false)].into_iter()),
            Ok(())
        );
        let two = check(30, [(&a, true), (&b, false), (&c, true)].into_iter()).unwrap_err();
        assert_eq!(two.operations, [a, c]);
    }
}
