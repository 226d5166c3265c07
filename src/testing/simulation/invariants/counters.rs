//! A node's counters never go back while its memory is the same. Names that nobody asked for in 2 days are the
//! exception.

use std::collections::BTreeMap;

use super::{Held, Violation};

const TWO_DAYS_US: u64 = 2 * 24 * 3600 * 1_000_000;

/// The counters of one memory.
#[derive(Debug, Default)]
pub(crate) struct Counters(BTreeMap<String, (u64, u64)>);

impl Counters {
    /// Notes a counter of a reply at this TIME (µs). A grant must have raised it.
    pub(crate) fn seen(
        &mut self,
        node: usize,
        name: &str,
        counter: u64,
        time: u64,
        granted: bool,
    ) -> Held {
        let (last, at) = self.0.get(name).copied().unwrap_or((0, time));
        let remembered = time.saturating_sub(at) <= TWO_DAYS_US;
        self.0.insert(name.to_owned(), (counter, time));
        if remembered && (counter < last || granted && counter == last && last > 0) {
            let what = format!("node {node}: {name:?} was at {last}, and then at {counter}");
            return Err(Violation::new("counters never go back", what, &[]));
        }
        Ok(())
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
    fn a_counter_that_goes_back_or_stands_still_is_found() {
        let mut c = Counters::default();
        assert_eq!(c.seen(0, "a", 7, 10, true), Ok(()));
        assert_eq!(
            c.seen(0, "a", 7, 11, false),
            Ok(()),
            "a raise to what stands, or a refusal"
        );
        assert!(c.seen(0, "a", 7, 11, true).is_err());
        assert!(c.seen(0, "a", 6, 12, false).is_err());
        assert_eq!(
            c.seen(0, "a", 3, 12 + TWO_DAYS_US + 1, true),
            Ok(()),
            "forgotten after two days"
        );
        c.forget();
        assert_eq!(c.seen(0, "a", 1, 13, true), Ok(()));
    }
}
