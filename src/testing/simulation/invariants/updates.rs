//! Fenced updates: a store that checks tokens at reads and at writes loses no update, and an older holder overwrites
//! none. This holds no matter what the clocks do and how late a write comes. Exclusion may break, but this may not. The
//! check is the real [`Gate`]. A second store checks nothing and gets the same reads and writes, to show what would be
//! lost.

use std::collections::BTreeMap;

use super::{Operation, Violation};
use crate::{FencingToken, fence::Gate};

/// The value that a holder read, to write one more later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// The number of updates so far. `None` where the store refused the token.
    pub(crate) fenced: Option<u64>,
    unfenced: u64,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// True if the store that checks tokens accepted it. `None` where it had refused the holder's read.
    pub(crate) fenced: Option<bool>,
    /// In the store without a check, it overwrote an update that its holder had not read.
    pub(crate) lost_unfenced: bool,
}

/// Both stores.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    gate: Gate,
    resources: BTreeMap<String, Resource>,
}

#[derive(Debug, Default)]
struct Resource {
    written: u64,
    last: Option<Operation>,
    written_unfenced: u64,
}

impl Updates {
    pub(crate) fn read(&mut self, name: &str, token: FencingToken) -> Read {
        let admitted = self.gate.admit(name, token).is_ok();
        let resource = self.resources.entry(name.into()).or_default();
        Read {
            fenced: admitted.then_some(resource.written),
            unfenced: resource.written_unfenced,
        }
    }

    /// Writes one more than was read. The holder is careless: it writes whether or not its lease is good.
    pub(crate) fn write(
        &mut self,
        op: &Operation,
        token: FencingToken,
        read: Read,
    ) -> Result<Written, Violation> {
        let resource = self.resources.entry(op.name.clone()).or_default();
        let mut written = Written {
            fenced: None,
            lost_unfenced: resource.written_unfenced != read.unfenced,
        };
        resource.written_unfenced += 1;
        let Some(read) = read.fenced else {
            return Ok(written);
        };
        let admitted = self.gate.admit(&op.name, token).is_ok();
        written.fenced = Some(admitted);
        if !admitted {
            return Ok(written);
        }
        if resource.written != read {
            let last = resource.last.clone().unwrap_or_else(|| op.clone());
            let what = "a write was accepted over one that its holder had not read";
            return Err(Violation::new("fenced updates", what, &[&last, op]));
        }
        resource.written += 1;
        resource.last = Some(op.clone());
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    const fn token(number: u64) -> FencingToken {
        FencingToken::from_counter(number)
    }

    fn write(
        store: &mut Updates,
        client: usize,
        number: u64,
        read: Read,
    ) -> Result<Written, Violation> {
        store.write(&operation(client, number, 0, 10), token(number), read)
    }

    #[test]
    fn a_late_write_is_refused_and_one_over_another_is_seen() {
        let mut store = Updates::default();
        let name = operation(1, 5, 0, 10).name;
        let (old, new) = (store.read(&name, token(5)), store.read(&name, token(6)));
        assert_eq!((old.fenced, new.fenced), (Some(0), Some(0)));
        let done = write(&mut store, 2, 6, new).unwrap();
        assert_eq!((done.fenced, done.lost_unfenced), (Some(true), false));
        let done = write(&mut store, 1, 5, old).unwrap();
        assert_eq!((done.fenced, done.lost_unfenced), (Some(false), true));
        let refused = store.read(&name, token(4));
        assert_eq!((refused.fenced, refused.unfenced), (None, 2));
        assert_eq!(write(&mut store, 1, 4, refused).unwrap().fenced, None);
        // The same token is used twice: the second writer has not read what the first one wrote.
        let same = store.read(&name, token(7));
        assert_eq!(same.fenced, Some(1), "the older one was refused");
        assert_eq!(write(&mut store, 1, 7, same).unwrap().fenced, Some(true));
        let violation = write(&mut store, 2, 7, same).unwrap_err();
        assert_eq!(violation.invariant, "fenced updates");
    }
}
