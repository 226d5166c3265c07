//! All or none: no node ever has only a part of the names that one holder asked for together. (This is not checked
//! where operators free single names. That leaves a part until the holder learns of it.)

use super::{Held, Violation};

/// A node has `held` of the `of` names that this holder asked for.
pub(crate) fn check(node: usize, holder: &str, held: usize, of: usize) -> Held {
    if held == 0 || held == of {
        return Ok(());
    }
    let what = format!("node {node} has {held} of {of} names for {holder}");
    Err(Violation::new("all or none", what, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partly_granted_set_is_found() {
        assert_eq!(check(0, "a", 0, 3), Ok(()));
        assert_eq!(check(0, "a", 3, 3), Ok(()));
        assert!(check(0, "a", 2, 3).is_err());
    }
}
