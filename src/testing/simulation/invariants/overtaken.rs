//! No waiter starves: only a bounded number of writers may get a read-write lock while a caller that asked earlier
//! still waits.

use super::{Held, Operation, Violation};

/// Called when a writer is granted the lock while a reader or a writer that asked earlier still waits. `times`: how
/// often that has happened to this waiter. `most`: how often it may.
pub(crate) fn check(waits: &Operation, granted: &Operation, times: u64, most: u64) -> Held {
    match times <= most {
        true => Ok(()),
        false => {
            let what = format!("{times} writers came before one who asked earlier, {most} may");
            Err(Violation::new("nobody starves", what, &[waits, granted]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_writer_that_is_overtaken_too_often_is_found() {
        let (waits, granted) = (operation(1, 5, 0, 0), operation(2, 6, 10, 20));
        assert_eq!(check(&waits, &granted, 3, 3), Ok(()));
        let found = check(&waits, &granted, 4, 3).unwrap_err();
        assert_eq!(found.invariant, "nobody starves");
        assert!(found.what.contains("4 writers"));
    }
}
