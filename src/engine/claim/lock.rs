//! What is asked for a lock.

use std::{sync::Arc, time::Duration};

use super::{Ask, Undo};
use crate::{
    base::{
        name::{Name, Names},
        owner::Entry,
    },
    node::{Operation, mutex, rwlock, several},
};

pub(crate) use rwlock::{Side, Wait as Waits};

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// One that one holds at a time.
    Mutex(Name),
    /// Several of these, all or none.
    Several(Names),
    /// One that many may read, or one write.
    Rwlock(Name, Side),
}

impl Lock {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Mutex(name) | Self::Rwlock(name, _) => name,
            Self::Several(names) => names.shown(),
        }
    }

    /// As what a read-write lock is wanted, or held.
    pub(crate) fn side(&self) -> Option<Side> {
        match self {
            Self::Mutex(_) | Self::Several(_) => None,
            Self::Rwlock(_, side) => Some(*side),
        }
    }

    /// The mutex in whose line those stand who wait for it: itself, or the turn of a read-write lock's writers. None: nodes
    /// keep no line of them.
    pub(crate) fn line(&self) -> Option<Name> {
        match self {
            Self::Mutex(name) => Some(name.clone()),
            Self::Rwlock(name, Side::Writer) => Some(name.of_turn()),
            Self::Several(_) | Self::Rwlock(_, Side::Reader) => None,
        }
    }

    /// Takes it where it is free. `waits`: who waits for it, of a read-write lock.
    pub(crate) fn acquire(&self, entry: &Entry, waits: Option<Waits>, ask: Ask) -> Arc<Operation> {
        let Ask { ttl, floor } = ask;
        let entry = entry.clone();
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Acquire {
                name: name.clone(),
                entry,
                ttl,
                floor,
            }),
            Self::Several(names) => Operation::new(several::Command::Acquire {
                names: names.all(),
                entry,
                ttl,
                floor,
            }),
            Self::Rwlock(name, Side::Reader) => Operation::new(rwlock::Command::Read {
                name: name.clone(),
                entry,
                ttl,
                floor,
                wait: waits,
            }),
            Self::Rwlock(name, Side::Writer) => Operation::new(rwlock::Command::Write {
                name: name.clone(),
                entry,
                ttl,
                floor,
                wait: waits,
            }),
        }
    }

    /// Raises the counter to the token where it is ours. `seq`: by which request it came to us, or 0.
    pub(super) fn raise(&self, entry: &Entry, seq: u64, token: u64) -> Arc<Operation> {
        let entry = entry.clone();
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Raise {
                name: name.clone(),
                entry,
                seq,
                token,
            }),
            Self::Several(names) => Operation::new(several::Command::Raise {
                names: names.all(),
                entry,
                token,
            }),
            Self::Rwlock(name, _) => Operation::new(rwlock::Command::Raise {
                name: name.clone(),
                entry,
                token,
            }),
        }
    }

    /// Prolongs it where it is ours. `window`: as in [`Undo`].
    pub(super) fn extend(&self, entry: &Entry, ttl: Duration, window: Duration) -> Arc<Operation> {
        let entry = entry.clone();
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Extend {
                name: name.clone(),
                entry,
                ttl,
            }),
            Self::Several(names) => Operation::new(several::Command::Extend {
                names: names.all(),
                entry,
                ttl,
            }),
            Self::Rwlock(name, side) => Operation::new(rwlock::Command::Extend {
                name: name.clone(),
                entry,
                side: *side,
                ttl,
                window,
            }),
        }
    }

    /// Puts it back for its holder where nobody is against it, and brings the counter up to the token.
    pub(super) fn repair(&self, entry: &Entry, ttl: Duration, token: u64) -> Arc<Operation> {
        let entry = entry.clone();
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Repair {
                name: name.clone(),
                entry,
                ttl,
                token,
            }),
            Self::Several(names) => Operation::new(several::Command::Repair {
                names: names.all(),
                entry,
                ttl,
                token,
            }),
            Self::Rwlock(name, side) => Operation::new(rwlock::Command::Repair {
                name: name.clone(),
                entry,
                side: *side,
                ttl,
                token,
            }),
        }
    }

    /// Frees it where it is ours, and leaves its line.
    pub(super) fn release(&self, entry: &Entry, undo: Undo<'_>) -> Arc<Operation> {
        let (entry, floor) = (entry.clone(), undo.floor);
        match self {
            Self::Mutex(name) => Operation::new(mutex::Command::Release {
                name: name.clone(),
                entry,
                floor,
            }),
            Self::Several(names) => Operation::new(several::Command::Release {
                names: names.all(),
                entry,
                floor,
            }),
            Self::Rwlock(name, _) => Operation::new(rwlock::Command::Release {
                name: name.clone(),
                entry,
                wait: undo.waits.cloned(),
                window: undo.window,
            }),
        }
    }
}
