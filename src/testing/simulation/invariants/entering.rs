//! A new holder fits: its slot and the slots above it that are held then are no more than the limit. This is stricter
//! than counting holders only after a limit was lowered, because no holder is evicted then.

use super::{Held, Operation, Violation};

/// Checks the grant of this slot beside other good leases. `limit` is the greatest limit that may be in force for it.
pub(crate) fn check(
    lease: &Operation,
    slot: u32,
    others: &[(u32, &Operation)],
    limit: u32,
) -> Held {
    let above = others.iter().filter(|(other, _)| *other > slot);
    let mut together: Vec<&Operation> = above.map(|(_, op)| *op).collect();
    if (slot as usize).saturating_add(together.len()) < limit as usize {
        return Ok(());
    }
    let what = format!(
        "slot {slot} is entered below {} others, and the limit is {limit}",
        together.len()
    );
    together.push(lease);
    Err(Violation::new("who enters fits", what, &together))
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_holder_that_does_not_fit_is_found() {
        let (a, b, c) = (
            operation(1, 5, 0, 10),
            operation(2, 6, 5, 20),
            operation(3, 7, 8, 30),
        );
        let others = [(1, &a), (4, &b)];
        assert_eq!(check(&c, 0, &others, 3), Ok(()));
        assert!(check(&c, 0, &others, 2).is_err(), "both are above");
        assert_eq!(check(&c, 2, &others, 4), Ok(()), "one is below");
        assert!(check(&c, 2, &others, 3).is_err());
        assert!(check(&c, 3, &[], 3).is_err(), "beyond the limit");
    }
}
