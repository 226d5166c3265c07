//! The keys of a deployment, all under one prefix (protocol §1).

use super::Arg;
use crate::{
    base::{name::Name, quota::Window},
    node::request::{Family, Pool},
};

/// Stands before a name in the key of its lock and in the field of its counter. No prefix may hold
/// an `@`, so the keys of two deployments differ even where one's prefix begins with the other's.
const MUTEX: &[u8] = b"@mutex:";

/// Stands before a name in the key of its line. The scripts make this key, and the next one, of the lock's.
const LINE: &[u8] = b"@mutex-line:";

/// Stands before a name in the key of what its line knows of each waiter.
const WAITERS: &[u8] = b"@mutex-waiters:";

/// Stands before a name in the mark that an eviction leaves.
const EVICTED: &[u8] = b"@mutex-evicted:";

/// What stands before a name in the keys of a read-write lock. The first stands before it in the field of its counter too.
const RWLOCK: [&str; 7] = [
    "@rwlock:",
    "@rwlock-window:",
    "@rwlock-readers:",
    "@rwlock-writers:",
    "@rwlock-refused:",
    "@rwlock-wakes:",
    "@rwlock-evicted:",
];

/// What stands before a name in the keys of a semaphore: its slots, when they end, who waits. The first stands before the
/// slot and the name in the field of a counter.
const PERMITS: [&str; 3] = ["@semaphore:", "@semaphore-ends:", "@semaphore-line:"];
const GATHERERS: [&str; 3] = ["@many:", "@many-ends:", "@many-line:"];

/// Stands before the limit, the interval, the number of masters and the name in the key of what counts of a rate limit.
const RATE: &[u8] = b"@rate:";

/// As those of a semaphore, of a rate limit with few units. The limit, the interval and the number of masters
/// stand before the name there too.
const UNITS: [&str; 3] = ["@units:", "@units-ends:", "@units-line:"];

/// Stands before the random bits in the channel of a process.
const WAKE: &str = ":wake:";

/// The channel of one process: nobody else's has these bits.
pub(crate) fn channel(prefix: &str, bits: u128) -> String {
    format!("{prefix}{WAKE}{bits:032x}")
}

/// The keys of a deployment.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    boot: Vec<u8>,
    open: Vec<u8>,
    time: Vec<u8>,
    /// Stands there while anybody may wait for any lock on this node.
    waiting: Vec<u8>,
    current: Vec<u8>,
    previous: Vec<u8>,
    /// All of a lock's key but its name.
    lock: Vec<u8>,
    /// All of a line's key but its name.
    line: Vec<u8>,
    /// All of its waiters' key but its name.
    waiters: Vec<u8>,
    /// All of an eviction's mark but its name.
    evicted: Vec<u8>,
    /// All of a read-write lock's seven keys but its name.
    rwlock: [Vec<u8>; 7],
    /// All of a semaphore's three keys but its name.
    permits: [Vec<u8>; 3],
    /// The same of those who take several permits at once.
    gatherers: [Vec<u8>; 3],
    /// The same of the units of rate limits that are slots.
    units: [Vec<u8>; 3],
    /// All of a rate limit's key but what it limits.
    rate: Vec<u8>,
    /// All of a process's channel but its bits.
    wake: Vec<u8>,
}

/// The keys of a read-write lock.
pub(crate) struct Rwlock<'a> {
    /// Who writes.
    pub(crate) lock: Arg<'a>,
    /// There while new readers are let in before writers that wait.
    pub(crate) window: Arg<'a>,
    /// Who reads.
    pub(crate) readers: Arg<'a>,
    /// Who waits to write.
    pub(crate) writers: Arg<'a>,
    /// There while a reader waits.
    pub(crate) refused: Arg<'a>,
    /// Who hears that it was freed.
    pub(crate) wakes: Arg<'a>,
    /// Stands there for a while after it was evicted.
    pub(crate) evicted: Arg<'a>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let key = |rest: &[u8]| [prefix.as_bytes(), b":", rest].concat();
        Self {
            boot: key(b"boot"),
            open: key(b"open"),
            time: key(b"time"),
            waiting: key(b"waiting"),
            current: key(b"c0"),
            previous: key(b"c1"),
            lock: key(MUTEX),
            line: key(LINE),
            waiters: key(WAITERS),
            evicted: key(EVICTED),
            rwlock: RWLOCK.map(|sort| key(sort.as_bytes())),
            permits: PERMITS.map(|sort| key(sort.as_bytes())),
            gatherers: GATHERERS.map(|sort| key(sort.as_bytes())),
            units: UNITS.map(|sort| key(sort.as_bytes())),
            rate: key(RATE),
            wake: [prefix, WAKE].concat().into_bytes(),
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

    /// There while anybody may wait for any lock on this node.
    pub(crate) fn waiting(&self) -> Arg<'_> {
        Arg::Bytes(&self.waiting)
    }

    /// The counters since the last rotation, `c0`.
    pub(crate) fn current(&self) -> Arg<'_> {
        Arg::Bytes(&self.current)
    }

    /// Those of before, `c1`.
    pub(crate) fn previous(&self) -> Arg<'_> {
        Arg::Bytes(&self.previous)
    }

    /// The lock of this name.
    pub(crate) fn lock<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.lock, name)
    }

    /// Who waits for the lock of this name.
    pub(crate) fn line<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.line, name)
    }

    /// What those who wait for the lock of this name were registered with.
    pub(crate) fn waiters<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.waiters, name)
    }

    /// Stands there for a while after the lock of this name was evicted.
    pub(crate) fn evicted<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.evicted, name)
    }

    /// Those of the read-write lock of this name.
    pub(crate) fn rwlock<'a>(&'a self, name: &'a Name) -> Rwlock<'a> {
        let all = self.rwlock.each_ref().map(|sort| Arg::Named(sort, name));
        let [lock, window, readers, writers, refused, wakes, evicted] = all;
        Rwlock {
            lock,
            window,
            readers,
            writers,
            refused,
            wakes,
            evicted,
        }
    }

    /// The slots of this semaphore, when they end, and who waits.
    pub(crate) fn semaphore<'a>(&'a self, pool: &'a Pool) -> [Arg<'a>; 3] {
        let sorts = match pool.family {
            Family::Permits => &self.permits,
            Family::Gatherers => &self.gatherers,
            Family::Units { .. } => &self.units,
        };
        sorts.each_ref().map(|sort| Arg::Named(sort, &pool.name))
    }

    /// Where the counters of this semaphore's slots stand. Tokens that nobody is shown need not grow when all is over, so these
    /// stand beside the slots and go with them.
    pub(crate) fn slot_counters<'a>(&'a self, pool: &'a Pool) -> [Arg<'a>; 2] {
        match pool.family {
            Family::Permits => [self.current(), self.previous()],
            Family::Gatherers | Family::Units { .. } => {
                let [slots, ..] = self.semaphore(pool);
                [slots, slots]
            }
        }
    }

    /// What counts of a limit of so many masters in this interval.
    pub(crate) fn rate(&self, name: &Name, masters: u32, window: Window) -> Vec<u8> {
        let mut key = self.rate.clone();
        key.extend_from_slice(limited(masters, window, name.as_str()).as_bytes());
        key
    }

    /// A key that nobody uses: that of the lock with the empty name, which no client can take.
    pub(crate) fn nobodys(&self) -> &[u8] {
        &self.lock
    }

    /// A channel to which nobody listens: that of no bits.
    pub(crate) fn nobodys_channel(&self) -> &[u8] {
        &self.wake
    }

    /// One of each sort.
    pub(crate) fn all(&self) -> [&[u8]; 27] {
        let [lock, window, readers, writers, refused, wakes, evicted] = &self.rwlock;
        let [slots, ends, slot_line] = &self.permits;
        let [many, many_ends, many_line] = &self.gatherers;
        let [units, units_ends, units_line] = &self.units;
        [
            self.nobodys(),
            &self.boot,
            &self.open,
            &self.time,
            &self.current,
            &self.previous,
            &self.evicted,
            &self.waiting,
            &self.line,
            &self.waiters,
            slots,
            ends,
            slot_line,
            many,
            many_ends,
            many_line,
            units,
            units_ends,
            units_line,
            &self.rate,
            lock,
            window,
            readers,
            writers,
            refused,
            wakes,
            evicted,
        ]
    }

    /// All of them, as an ACL has it.
    pub(crate) fn pattern(&self) -> String {
        let prefix = self.boot.strip_suffix(b"boot").unwrap_or_default();
        format!("~{}*", String::from_utf8_lossy(prefix))
    }

    /// All channels, as an ACL has them.
    pub(crate) fn channels(&self) -> String {
        format!("&{}*", String::from_utf8_lossy(&self.wake))
    }
}

/// What is limited, with what makes it another limit: "2000:60000:5:name".
pub(crate) fn limited(masters: u32, window: Window, name: &str) -> String {
    format!("{}:{}:{masters}:{name}", window.limit, window.ms())
}

/// The field of a lock's counter, in `c0` and `c1`.
pub(crate) fn counter(name: &Name) -> Arg<'_> {
    Arg::Named(MUTEX, name)
}

/// The field of a read-write lock's counter.
pub(crate) fn rwlock_counter(name: &Name) -> Arg<'_> {
    let [sort, ..] = RWLOCK;
    Arg::Named(sort.as_bytes(), name)
}

/// The field of a slot's counter.
pub(crate) fn slot_counter(pool: &Pool, slot: u32) -> Vec<u8> {
    let [sort, ..] = PERMITS;
    match pool.family {
        // As the name stands in the pool's keys, of which the scripts take it.
        Family::Permits => format!("{sort}{slot}:{}", pool.name.in_keys().concat()).into_bytes(),
        Family::Gatherers | Family::Units { .. } => format!("#{slot}").into_bytes(),
    }
}

/// The name of what has this counter. Not every field of their hash is one: `_` is the time of its beginning.
pub(crate) fn counted(field: &[u8]) -> Option<Name> {
    let ([rwlock, ..], [semaphore, ..]) = (RWLOCK, PERMITS);
    let of_slot = || {
        let slot_and_name = field.strip_prefix(semaphore.as_bytes())?;
        let at = slot_and_name.iter().position(|b| *b == b':')?;
        slot_and_name.get(at + 1..)
    };
    let name = field.strip_prefix(MUTEX);
    let name = name
        .or_else(|| field.strip_prefix(rwlock.as_bytes()))
        .or_else(of_slot);
    Name::of_key(str::from_utf8(name?).ok()?)
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
            (b"@mutex:@rwlock-turn:a", None),
            (b"@semaphore:7:a:b", Some("a:b")),
            (b"@rwlock:a:b", Some("a:b")),
            (b"@many:65535:a", None),
            (b"@semaphore:7:", None),
            (b"@semaphore:7", None),
            (b"@mutex:\xff", None),
            (b"_", None),
            (b"", None),
        ] {
            let read = counted(field);
            assert_eq!(read.as_ref().map(Name::as_str), name, "{field:?}");
        }
    }
}
