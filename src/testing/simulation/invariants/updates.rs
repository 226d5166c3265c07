//! Fenced updates: behind a store that checks tokens, at reads and at writes, no update is lost and
//! none is written over by an older holder, whatever the clocks do and however late a write comes.
//! Exclusion may break; this may not.

use super::{Operation, Violation};

/// One resource in a store that checks tokens.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    mark: u64,
    written: u64,
    last: Option<Operation>,
}

impl Updates {
    fn admits(&mut self, token: u64) -> bool {
        let admits = token >= self.mark;
        self.mark = self.mark.max(token);
        admits
    }

    /// How many updates there were so far, for a holder that is not stale.
    pub(crate) fn read(&mut self, token: u64) -> Option<u64> {
        self.admits(token).then_some(self.written)
    }

    /// One more than it read, from a holder that is careless: it writes whether or not its lease is
    /// good. Whether it was let.
    pub(crate) fn write(&mut self, op: &Operation, read: u64) -> Result<bool, Violation> {
        if !self.admits(op.token.unwrap_or(0)) {
            return Ok(false);
        }
        if self.written != read {
            let last = self.last.clone().unwrap_or_else(|| op.clone());
            let what = "a write was accepted over one that its holder had not read";
            return Err(Violation::new("fenced updates", what, &[&last, op]));
        }
        self.written += 1;
        self.last = Some(op.clone());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_late_write_is_refused_and_one_over_another_is_seen() {
        let mut store = Updates::default();
        assert_eq!(store.read(5), Some(0));
        assert_eq!(store.read(6), Some(0));
        assert_eq!(store.write(&operation(1, 5, 0, 10), 0), Ok(false));
        assert_eq!(store.write(&operation(2, 6, 5, 20), 0), Ok(true));
        assert_eq!(store.written, 1, "the older one was refused");
        assert_eq!(store.read(4), None);
        // The same token twice: whoever writes second has not read what the first one wrote.
        assert_eq!((store.read(7), store.read(7)), (Some(1), Some(1)));
        assert_eq!(store.write(&operation(1, 7, 0, 10), 1), Ok(true));
        let violation = store.write(&operation(2, 7, 5, 20), 1).unwrap_err();
        assert_eq!(violation.invariant, "fenced updates");
    }
}
