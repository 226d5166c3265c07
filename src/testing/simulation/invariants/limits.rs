//! A limit never goes back. Until a memory forgets a semaphore's limit, its next answer about it is the same as before,
//! or a newer version, or the same version with fewer slots.

use std::collections::BTreeMap;

use super::{Held, Violation};
use crate::base::limit::Limit;

/// The last answer of one memory, by semaphore.
#[derive(Debug, Default)]
pub(crate) struct Limits(BTreeMap<String, (Limit, u64)>);

impl Limits {
    /// Checks an answer at this TIME (µs). A limit that nobody has used for `kept` may be forgotten.
    pub(crate) fn said(
        &mut self,
        node: usize,
        name: &str,
        limit: Limit,
        time: u64,
        kept: u64,
    ) -> Held {
        let before = self.0.insert(name.to_owned(), (limit, time));
        let Some((last, _)) = before.filter(|(_, at)| time.saturating_sub(*at) < kept) else {
            return Ok(());
        };
        let rank = |limit: Limit| (limit.version, u32::MAX - limit.slots);
        if rank(limit) >= rank(last) {
            return Ok(());
        }
        let what = format!("node {node}: {name:?} had {last:?}, and then {limit:?}");
        Err(Violation::new("a limit never goes back", what, &[]))
    }

    /// The node has another memory now.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_goes_back_is_found() {
        let mut limits = Limits::default();
        let mut said = |version, slots, time| {
            limits
                .said(0, "a", Limit { version, slots }, time, 100)
                .is_ok()
        };
        assert!(said(1, 5, 0));
        assert!(said(1, 3, 1), "of two at once the smaller");
        assert!(said(2, 9, 2));
        assert!(!said(1, 3, 3));
        assert!(said(2, 7, 4) && !said(2, 9, 5));
        assert!(said(0, 4, 105), "forgotten");
    }
}
