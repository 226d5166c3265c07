//! The keys of a deployment, all under one prefix (protocol §1).

use super::Arg;
use crate::name::Name;

/// Stands before a name in the key of its lock and in the field of its counter. No prefix may hold
/// an `@`, so the keys of two deployments differ even where one's prefix begins with the other's.
const MUTEX: &[u8] = b"@mutex:";

/// Stands before a name in the mark that an eviction leaves.
const EVICTED: &[u8] = b"@mutex-evicted:";

/// The keys of a deployment.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    boot: Vec<u8>,
    open: Vec<u8>,
    time: Vec<u8>,
    current: Vec<u8>,
    previous: Vec<u8>,
    /// All of a lock's key but its name.
    lock: Vec<u8>,
    /// All of an eviction's mark but its name.
    evicted: Vec<u8>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let key = |rest: &[u8]| [prefix.as_bytes(), b":", rest].concat();
        Self {
            boot: key(b"boot"),
            open: key(b"open"),
            time: key(b"time"),
            current: key(b"c0"),
            previous: key(b"c1"),
            lock: key(MUTEX),
            evicted: key(EVICTED),
        }
    }

    /// The record of the memory.
    pub(crate) fn boot(&self) -> Arg<'_> {
        Arg::Bytes(&self.boot)
    }

    /// What every guard is compared with.
    pub(crate) fn open(&self) -> Arg<'_> {
        Arg::Bytes(&self.open)
    }

    /// TIME, as a handshake left it some seconds ago.
    pub(crate) fn time(&self) -> Arg<'_> {
        Arg::Bytes(&self.time)
    }

    /// The counters of this week, `c0`.
    pub(crate) fn current(&self) -> Arg<'_> {
        Arg::Bytes(&self.current)
    }

    /// The counters of the week before, `c1`.
    pub(crate) fn previous(&self) -> Arg<'_> {
        Arg::Bytes(&self.previous)
    }

    /// The lock of this name.
    pub(crate) fn lock<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.lock, name)
    }

    /// Stands there for a while after the lock of this name was evicted.
    pub(crate) fn evicted<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.evicted, name)
    }

    /// A key that nobody uses: that of the lock with the empty name, which no client can take.
    pub(crate) fn nobodys(&self) -> &[u8] {
        &self.lock
    }

    /// One of each sort.
    pub(crate) fn all(&self) -> [&[u8]; 7] {
        [
            self.nobodys(),
            &self.boot,
            &self.open,
            &self.time,
            &self.current,
            &self.previous,
            &self.evicted,
        ]
    }

    /// All of them, as an ACL has it.
    pub(crate) fn pattern(&self) -> String {
        let prefix = self.boot.strip_suffix(b"boot").unwrap_or_default();
        format!("~{}*", String::from_utf8_lossy(prefix))
    }
}

/// The field of a lock's counter, in `c0` and `c1`.
pub(crate) fn counter(name: &Name) -> Arg<'_> {
    Arg::Named(MUTEX, name)
}

/// The lock of a counter. Not every field of their hash is one: `_` is the time of its beginning.
pub(crate) fn counted(field: &[u8]) -> Option<Name> {
    let name = str::from_utf8(field.strip_prefix(MUTEX)?).ok()?;
    Name::new(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_of_a_counter_holds_its_name() {
        let longest = format!("@mutex:{}", "a".repeat(512));
        for (field, name) in [
            (&b"@mutex:a:b"[..], Some("a:b")),
            (b"@mutex:_", Some("_")),
            (b"@mutex:@mutex:", Some("@mutex:")),
            (longest.as_bytes(), longest.strip_prefix("@mutex:")),
            (format!("{longest}a").as_bytes(), None),
            (b"@mutex:", None),
            (b"@mutex:\xff", None),
            (b"_", None),
            (b"", None),
        ] {
            let read = counted(field);
            assert_eq!(read.as_ref().map(Name::as_str), name, "{field:?}");
        }
    }
}
