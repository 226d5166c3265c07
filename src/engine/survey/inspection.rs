//! The answers of one node about a name, in the form that operators read.

use std::{sync::Arc, time::Duration};

use crate::{
    FencingToken, Holder, NodeInspection, NodeRwlock, NodeSlots, Reader, Silence, Slot, Waiter,
    WaitingWriter,
    base::owner::label_of,
    node::answer::{Answer, MutexInspection, PoolInspection, RwlockInspection},
    protocol::ballot::answers::Heard,
};

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

/// One node's part of an inspection, from its answers about the mutex, the semaphore and the read-write lock of the
/// name.
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

/// Returns `None` if the node knows no semaphore of this name.
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

/// Returns `None` if the node knows no read-write lock of this name.
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

/// The reason why the node has not told everything.
fn silence(
    mutex: &Heard<MutexInspection>,
    semaphore: &Heard<PoolInspection>,
    rwlock: &Heard<RwlockInspection>,
) -> Option<Silence> {
    let others = [why_silent(semaphore), why_silent(rwlock)];
    // An ACL may give a user only the keys of some mutexes, some semaphores or some read-write locks.
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

pub(super) fn is_withheld(why: &Silence) -> bool {
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
    fn a_node_counts_as_silent_unless_it_answered_all_it_may() {
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
}
