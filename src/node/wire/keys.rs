//! The keys of a deployment, all under one prefix (protocol §1).

use super::Arg;
use crate::{
    base::{name::Name, quota::Window},
    node::request::{Family, Pool},
};

/// Comes before a name in the key of its lock and in the field of its counter. A prefix may not contain an `@`. So the
/// keys of two deployments differ even if one prefix begins with the other.
const MUTEX: &[u8] = b"@mutex:";

/// Comes before a name in the key of its queue. The scripts derive this key and the next one from the lock's key.
const LINE: &[u8] = b"@mutex-line:";

/// Comes before a name in the key of what the queue knows of each waiter.
const WAITERS: &[u8] = b"@mutex-waiters:";

/// Comes before a name in the mark that an eviction leaves.
const EVICTED: &[u8] = b"@mutex-evicted:";

/// Come before a name in the keys of a read-write lock. The first also comes before the name in the field of its
/// counter.
const RWLOCK: [&str; 7] = [
    "@rwlock:",
    "@rwlock-window:",
    "@rwlock-readers:",
    "@rwlock-writers:",
    "@rwlock-refused:",
    "@rwlock-wakes:",
    "@rwlock-evicted:",
];

/// Come before a name in the keys of a semaphore: its slots, their ends, and its queue. The first also comes before the
/// slot and the name in the field of a counter.
const PERMITS: [&str; 3] = ["@semaphore:", "@semaphore-ends:", "@semaphore-line:"];
const GATHERERS: [&str; 3] = ["@many:", "@many-ends:", "@many-line:"];

/// Comes before the interval, the number of masters and the name in the key of a rate limit. All limits of one interval
/// share the key, so that a changed limit counts the units that were taken before.
const RATE: &[u8] = b"@rate:";

/// The same as for a semaphore, for a rate limit with few units. The limit, the interval and the number of masters come
/// before the name.
const UNITS: [&str; 3] = ["@units:", "@units-ends:", "@units-line:"];

/// Comes before the random bits in the channel of a process.
const WAKE: &str = ":wake:";

/// The channel of one process. No other process has these bits.
pub(crate) fn channel(prefix: &str, bits: u128) -> String {
    format!("{prefix}{WAKE}{bits:032x}")
}

/// The keys of a deployment.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    boot: Vec<u8>,
    open: Vec<u8>,
    time: Vec<u8>,
    /// The key that exists while anybody may wait for any lock on this node.
    waiting: Vec<u8>,
    current: Vec<u8>,
    previous: Vec<u8>,
    /// The key of a lock without its name.
    lock: Vec<u8>,
    /// The key of a queue without its name.
    line: Vec<u8>,
    /// The key of a queue's waiters without its name.
    waiters: Vec<u8>,
    /// The key of an eviction's mark without its name.
    evicted: Vec<u8>,
    /// The seven keys of a read-write lock without its name.
    rwlock: [Vec<u8>; 7],
    /// The three keys of a semaphore without its name.
    permits: [Vec<u8>; 3],
    /// The same for the slot that callers take before they take several permits at once.
    gatherers: [Vec<u8>; 3],
    /// The same for units of rate limits that are slots.
    units: [Vec<u8>; 3],
    /// The key of a rate limit up to what it limits.
    rate: Vec<u8>,
    /// The channel of a process without its bits.
    wake: Vec<u8>,
}

/// The keys of a read-write lock.
pub(crate) struct Rwlock<'a> {
    /// The writer.
    pub(crate) lock: Arg<'a>,
    /// Exists while new readers go before writers that wait.
    pub(crate) window: Arg<'a>,
    /// The readers.
    pub(crate) readers: Arg<'a>,
    /// The writers that wait.
    pub(crate) writers: Arg<'a>,
    /// Exists while a reader waits.
    pub(crate) refused: Arg<'a>,
    /// The channels on which waiters are told that it was freed.
    pub(crate) wakes: Arg<'a>,
    /// Exists for a while after it was evicted.
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

    /// The key with which every guard is compared.
    pub(crate) fn open(&self) -> Arg<'_> {
        Arg::Bytes(&self.open)
    }

    /// The TIME that a handshake has left some seconds ago.
    pub(crate) fn time(&self) -> Arg<'_> {
        Arg::Bytes(&self.time)
    }

    /// The key that exists while anybody may wait for any lock on this node.
    pub(crate) fn waiting(&self) -> Arg<'_> {
        Arg::Bytes(&self.waiting)
    }

    /// The counters since the last rotation, `c0`.
    pub(crate) fn current(&self) -> Arg<'_> {
        Arg::Bytes(&self.current)
    }

    /// The counters before the last rotation, `c1`.
    pub(crate) fn previous(&self) -> Arg<'_> {
        Arg::Bytes(&self.previous)
    }

    /// The lock of this name.
    pub(crate) fn lock<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.lock, name)
    }

    /// The queue for the lock of this name.
    pub(crate) fn line<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.line, name)
    }

    /// The data with which the waiters for the lock of this name were registered.
    pub(crate) fn waiters<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.waiters, name)
    }

    /// The mark that stays for a while after the lock of this name was evicted.
    pub(crate) fn evicted<'a>(&'a self, name: &'a Name) -> Arg<'a> {
        Arg::Named(&self.evicted, name)
    }

    /// The keys of the read-write lock of this name.
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

    /// The slots of this pool, their ends, and its queue.
    pub(crate) fn semaphore<'a>(&'a self, pool: &'a Pool) -> [Arg<'a>; 3] {
        let sorts = match pool.family {
            Family::Permits => &self.permits,
            Family::Gatherers => &self.gatherers,
            Family::Units { .. } => &self.units,
        };
        sorts.each_ref().map(|sort| Arg::Named(sort, &pool.name))
    }

    /// The hashes that hold the counters of this pool's slots. Counters whose tokens are never shown to a caller need
    /// not outlive the pool. So they are kept in the hash of the slots and go with it.
    pub(crate) fn slot_counters<'a>(&'a self, pool: &'a Pool) -> [Arg<'a>; 2] {
        match pool.family {
            Family::Permits => [self.current(), self.previous()],
            Family::Gatherers | Family::Units { .. } => {
                let [slots, ..] = self.semaphore(pool);
                [slots, slots]
            }
        }
    }

    /// The key of a rate limit with this number of masters in this interval.
    pub(crate) fn rate(&self, name: &Name, masters: u32, window: Window) -> Vec<u8> {
        let mut key = self.rate.clone();
        key.extend_from_slice(format!("{}:{masters}:{name}", window.ms()).as_bytes());
        key
    }

    /// A key that is never used: that of the lock with the empty name, which no client can take.
    pub(crate) fn nobodys(&self) -> &[u8] {
        &self.lock
    }

    /// A channel that has no subscriber: the one without bits.
    pub(crate) fn nobodys_channel(&self) -> &[u8] {
        &self.wake
    }

    /// One key of each sort.
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

    /// The pattern for all keys, as in an ACL.
    pub(crate) fn pattern(&self) -> String {
        let prefix = self.boot.strip_suffix(b"boot").unwrap_or_default();
        format!("~{}*", String::from_utf8_lossy(prefix))
    }

    /// The pattern for all channels, as in an ACL.
    pub(crate) fn channels(&self) -> String {
        format!("&{}*", String::from_utf8_lossy(&self.wake))
    }
}

/// The name of a limit of few units, together with everything that makes it another limit: "12:60000:5:name".
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
        // The name stands as in the pool's keys, because the scripts take it from there.
        Family::Permits => format!("{sort}{slot}:{}", pool.name.in_keys().concat()).into_bytes(),
        Family::Gatherers | Family::Units { .. } => format!("#{slot}").into_bytes(),
    }
}

/// The name to which this counter belongs. `None` for other fields of the hash, such as `_`, which is the time at which
/// it was begun.
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
