//! All or none: no node ever has a part of the names that one holder asked for together. (Where operators free single
//! names this is not looked at: that leaves a part, until its holder learns of it.)

use super::{Held, Violation};

/// Of the names that this holder asked for a node has so many for it.
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
    fn it_sees_a_part() {
        assert_eq!(check(0, "a", 0, 3), Ok(()));
        assert_eq!(check(0, "a", 3, 3), Ok(()));
        assert!(check(0, "a", 2, 3).is_err());
    }
}
