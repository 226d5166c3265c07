//! What one node has told of a name, as operators read it.

use std::{sync::Arc, time::Duration};

use crate::{
    FencingToken, Holder, NodeInspection, NodeRwlock, NodeSlots, Reader, Silence, Slot, Vote,
    Waiter, WaitingWriter,
    base::owner::{Entry, label_of},
    node::answer::{Answer, MutexInspection, PoolInspection, RwlockInspection},
    protocol::ballot::answers::{Evidence, Heard},
};

/// The answer of one node to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    /// True if anybody held it.
    pub(super) held: bool,
    /// Those of the holders that the node has named.
    pub(super) holders: Vec<Entry>,
}

impl Evidence for Evicted {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

pub(super) fn mutex(answer: Answer) -> Option<MutexInspection> {
    match answer {
        Answer::InspectedMutex(inspection) => Some(*inspection),
        _ => None,
    }
}

pub(super) fn rwlock(answer: Answer) -> Option<RwlockInspection> {
    match answer {
        Answer::InspectedRwlock(inspection) => Some(*inspection),
        _ => None,
    }
}

pub(super) fn evicted(answer: Answer) -> Option<Evicted> {
    let Answer::Evicted { held, holders } = answer else {
        return None;
    };
    let holders = holders.iter().filter_map(|text| Entry::read(text));
    Some(Evicted {
        held,
        holders: holders.collect(),
    })
}

/// Of the mutex, of the semaphore and of the read-write lock of one name.
pub(super) fn inspection(
    node: &Arc<str>,
    mutex: &Heard<MutexInspection>,
    semaphore: &Heard<PoolInspection>,
    rwlock: &Heard<RwlockInspection>,
) -> NodeInspection {
    let mut told = NodeInspection {
        node: Arc::clone(node),
        holder: None,
        token: None,
        line: Vec::new(),
        waiting: 0,
        semaphore: None,
        rwlock: None,
        silence: silence(mutex, semaphore, rwlock),
    };
    if let Heard::Said(seen) = mutex {
        told.holder = seen
            .holder
            .as_ref()
            .map(|(entry, remaining)| holder(entry, *remaining));
        told.token = token(seen.counter);
        told.line = line(node, &seen.line);
        told.waiting = seen.waiting;
    }
    if let Heard::Said(inspected) = semaphore {
        told.semaphore = slots(node, inspected);
    }
    if let Heard::Said(seen) = rwlock {
        told.rwlock = shares(node, seen);
    }
    told
}

/// Of an eviction: that of the mutex and that of the read-write lock have to be done, as far as the user may do them.
pub(super) fn eviction(
    mutex: &Heard<Evicted>,
    rwlock: &Heard<Evicted>,
) -> Result<Evicted, Silence> {
    match (mutex, rwlock) {
        (Heard::Said(mutex), Heard::Said(rwlock)) => Ok(Evicted {
            held: mutex.held || rwlock.held,
            holders: [&*mutex.holders, &*rwlock.holders].concat(),
        }),
        (Heard::Said(done), Heard::Silent(why)) | (Heard::Silent(why), Heard::Said(done))
            if is_withheld(why) =>
        {
            Ok(done.clone())
        }
        (Heard::Silent(why), _) | (_, Heard::Silent(why)) => Err(why.clone()),
        (Heard::Waiting, _) | (_, Heard::Waiting) => Err(Silence::TimedOut),
    }
}

/// None if it knows nothing of a semaphore.
fn slots(node: &Arc<str>, inspected: &PoolInspection) -> Option<NodeSlots> {
    if is_nothing(inspected) {
        return None;
    }
    let slots = inspected.holders.iter().map(|held| Slot {
        number: held.slot,
        holder: holder(&held.holder, Some(held.remaining)),
        token: token(held.counter),
        nodes: vec![Arc::clone(node)],
        is_held: false,
    });
    Some(NodeSlots {
        limit: inspected.limit.map(|limit| limit.slots),
        version: inspected.limit.map_or(0, |limit| limit.version),
        taken: inspected.taken.count(),
        bits: inspected.taken.clone(),
        slots: slots.collect(),
        line: line(node, &inspected.line),
        waiting: inspected.waiting,
    })
}

/// None if it knows nothing of a read-write lock.
fn shares(node: &Arc<str>, seen: &RwlockInspection) -> Option<NodeRwlock> {
    if is_nothing(seen) {
        return None;
    }
    let writer = seen.writer.as_ref();
    let readers = seen.readers.iter().map(|(entry, remaining)| Reader {
        holder: holder(entry, Some(*remaining)),
        nodes: vec![Arc::clone(node)],
        is_held: false,
    });
    let writers = seen.waiters.iter().map(|(entry, remaining)| WaitingWriter {
        entry: entry.clone(),
        label: label_of(entry).to_owned(),
        remaining: *remaining,
        nodes: vec![Arc::clone(node)],
    });
    Some(NodeRwlock {
        writer: writer.map(|(entry, remaining)| holder(entry, *remaining)),
        token: token(seen.counter),
        readers: readers.collect(),
        reading: seen.reading,
        writers: writers.collect(),
        waiting: seen.waiting,
    })
}

fn holder(entry: &str, remaining: Option<Duration>) -> Holder {
    Holder {
        entry: entry.to_owned(),
        label: label_of(entry).to_owned(),
        remaining,
    }
}

fn token(counter: u64) -> Option<FencingToken> {
    (counter > 0).then(|| FencingToken::from_counter(counter))
}

fn line(node: &Arc<str>, line: &[(String, Duration)]) -> Vec<Waiter> {
    let waiters = line.iter().map(|(entry, waited)| Waiter {
        entry: entry.clone(),
        label: label_of(entry).to_owned(),
        waited: *waited,
        nodes: vec![Arc::clone(node)],
    });
    waiters.collect()
}

/// Why it has not told all.
fn silence(
    mutex: &Heard<MutexInspection>,
    semaphore: &Heard<PoolInspection>,
    rwlock: &Heard<RwlockInspection>,
) -> Option<Silence> {
    let others = [why_silent(semaphore), why_silent(rwlock)];
    // A user may be kept to the keys of some mutexes, of some semaphores, or of some read-write locks.
    let is_told = match why_silent(mutex) {
        None => true,
        Some(why) if is_withheld(&why) => tells_something(semaphore) || tells_something(rwlock),
        Some(_) => false,
    };
    match is_told {
        true => others.into_iter().flatten().find(|why| !is_withheld(why)),
        false => why_silent(mutex),
    }
}

fn why_silent<T>(heard: &Heard<T>) -> Option<Silence> {
    match heard {
        Heard::Said(_) => None,
        Heard::Silent(why) => Some(why.clone()),
        Heard::Waiting => Some(Silence::TimedOut),
    }
}

fn tells_something<T: Default + PartialEq>(heard: &Heard<T>) -> bool {
    matches!(heard, Heard::Said(seen) if !is_nothing(seen))
}

fn is_withheld(why: &Silence) -> bool {
    matches!(why, Silence::Failed(why) if why.starts_with("NOPERM"))
}

fn is_nothing<T: Default + PartialEq>(seen: &T) -> bool {
    *seen == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limit::Limit;

    fn withheld() -> Silence {
        Silence::Failed("NOPERM no key for you".into())
    }

    fn broken() -> Silence {
        Silence::Failed("ERR broken".into())
    }

    #[test]
    fn a_node_is_silent_unless_it_told_all_that_it_may() {
        let lock = || Heard::Said(MutexInspection::default());
        let nothing = || Heard::Said(PoolInspection::default());
        let free = || Heard::Said(RwlockInspection::default());
        let slots = || {
            let limit = Some(Limit {
                version: 1,
                slots: 3,
            });
            Heard::Said(PoolInspection {
                limit,
                ..PoolInspection::default()
            })
        };
        let read = || {
            Heard::Said(RwlockInspection {
                reading: 1,
                ..RwlockInspection::default()
            })
        };
        for (mutex, semaphore, rwlock, why) in [
            (lock(), nothing(), free(), None),
            (lock(), Heard::Silent(withheld()), free(), None),
            (lock(), nothing(), Heard::Silent(withheld()), None),
            (
                lock(),
                Heard::Silent(withheld()),
                Heard::Silent(withheld()),
                None,
            ),
            (Heard::Silent(withheld()), slots(), free(), None),
            (Heard::Silent(withheld()), nothing(), read(), None),
            (
                Heard::Silent(withheld()),
                nothing(),
                free(),
                Some(withheld()),
            ),
            (lock(), Heard::Silent(broken()), free(), Some(broken())),
            (lock(), nothing(), Heard::Silent(broken()), Some(broken())),
            (
                Heard::Silent(withheld()),
                slots(),
                Heard::Silent(broken()),
                Some(broken()),
            ),
            (Heard::Silent(broken()), slots(), read(), Some(broken())),
            (lock(), Heard::Waiting, free(), Some(Silence::TimedOut)),
            (lock(), nothing(), Heard::Waiting, Some(Silence::TimedOut)),
            (
                Heard::Silent(withheld()),
                Heard::Waiting,
                free(),
                Some(withheld()),
            ),
        ] {
            let told = inspection(&"h:1".into(), &mutex, &semaphore, &rwlock);
            assert_eq!(told.silence, why, "{mutex:?} {semaphore:?} {rwlock:?}");
        }
    }

    #[test]
    fn an_eviction_is_done_where_all_is_freed_that_the_user_may_free() {
        let said = |held| {
            Heard::Said(Evicted {
                held,
                holders: Vec::new(),
            })
        };
        for (mutex, rwlock, done) in [
            (said(false), said(false), Ok(false)),
            (said(true), said(false), Ok(true)),
            (said(false), said(true), Ok(true)),
            (said(true), Heard::Silent(withheld()), Ok(true)),
            (Heard::Silent(withheld()), said(true), Ok(true)),
            (said(true), Heard::Silent(broken()), Err(broken())),
            (Heard::Silent(broken()), said(true), Err(broken())),
            (
                Heard::Silent(withheld()),
                Heard::Silent(withheld()),
                Err(withheld()),
            ),
            (said(true), Heard::Waiting, Err(Silence::TimedOut)),
        ] {
            let found = eviction(&mutex, &rwlock).map(|evicted| evicted.held);
            assert_eq!(found, done, "{mutex:?} {rwlock:?}");
        }
    }
}
