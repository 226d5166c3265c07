//! Who enters fits: its slot, and those above it that are held then, are no more than the limit. That is more than to
//! count holders only after a limit was lowered, for nobody is thrown out.

use super::{Held, Operation, Violation};

/// A lease of this slot was granted, beside others that are good. `limit`: the greatest that may be in force for it.
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
    fn it_sees_who_does_not_fit() {
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
