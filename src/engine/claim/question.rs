//! What operators ask of a name.

use std::sync::Arc;

use crate::{
    Vote,
    base::{name::Name, owner::Entry},
    node::{
        Operation,
        answer::{Answer, MutexInspection, RwlockInspection},
        mutex, rwlock,
    },
    protocol::ballot::answers::Evidence,
};

/// Reads who holds the mutex of this name.
pub(crate) fn inspect(name: Name) -> Arc<Operation> {
    Operation::new(mutex::Command::Inspect { name })
}

/// Reads who has the read-write lock of this name.
pub(crate) fn inspect_rwlock(name: Name) -> Arc<Operation> {
    Operation::new(rwlock::Command::Inspect { name })
}

/// Frees the mutex of this name, no matter who holds it.
pub(crate) fn evict(name: Name) -> Arc<Operation> {
    Operation::new(mutex::Command::Evict { name })
}

/// The same of the read-write lock.
pub(crate) fn evict_rwlock(name: Name) -> Arc<Operation> {
    Operation::new(rwlock::Command::Evict { name })
}

/// A node's answer to [`inspect`].
pub(crate) fn seen(answer: Answer) -> Option<MutexInspection> {
    match answer {
        Answer::InspectedMutex(inspection) => Some(*inspection),
        _ => None,
    }
}

/// A node's answer to [`inspect_rwlock`].
pub(crate) fn seen_rwlock(answer: Answer) -> Option<RwlockInspection> {
    match answer {
        Answer::InspectedRwlock(inspection) => Some(*inspection),
        _ => None,
    }
}

/// What an eviction found on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// Whether anybody held it.
    pub(crate) held: bool,
    /// Who did, as far as that is told.
    pub(crate) holders: Vec<Entry>,
}

impl Evidence for Evicted {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

/// A node's answer to [`evict`] or [`evict_rwlock`].
pub(crate) fn evicted(answer: Answer) -> Option<Evicted> {
    let Answer::Evicted { held, holders } = answer else {
        return None;
    };
    let holders = holders.iter().filter_map(|text| Entry::read(text));
    Some(Evicted {
        held,
        holders: holders.collect(),
    })
}
