//! What a section takes: a lock, a slot of a semaphore, a read-write lock from one side, or several locks at once.

use std::time::Duration;

use quorate::{Error, Lease, Mutex, Quorum, Renewal, RwLock};

use super::history::{Locks, Side};
use crate::{args::Load, wanted::Wanted};

/// Several are at most this many.
const MOST: usize = 3;

/// What is fought for, as the history says it.
pub(super) fn locks(load: &Load) -> Locks {
    Locks {
        limit: load.names.semaphore,
        readers: load.names.rwlock.then_some(load.readers),
        several: load.names.several,
    }
}

/// What one task wishes for, again and again.
pub(super) struct Wishes {
    own: u64,
    name: String,
    kind: Kind,
}

enum Kind {
    One(Wanted),
    Rwlock {
        lock: RwLock,
        readers: u32,
    },
    Several {
        alone: Wanted,
        quorum: Quorum,
        count: u64,
        ttl: Duration,
        wait: Duration,
    },
}

/// What one section takes.
pub(super) struct Wish<'w> {
    pub(super) names: Vec<String>,
    pub(super) side: Option<Side>,
    lock: Lock<'w>,
}

enum Lock<'w> {
    One(&'w Wanted),
    Rwlock(&'w RwLock, Side),
    Several(Mutex),
}

impl Wishes {
    /// Of the task whose name has this number.
    pub(super) fn new(
        quorum: &Quorum,
        load: &Load,
        own: u64,
        ttl: Duration,
        wait: Duration,
    ) -> Self {
        let name = super::name(own);
        let one = |limit| {
            Wanted::new(
                quorum,
                (&name, limit),
                ttl,
                Some(wait),
                Renewal::auto(),
            )
        };
        let kind = match (load.names.rwlock, load.names.several) {
            (true, _) => Kind::Rwlock {
                lock: quorum.rwlock(&*name).ttl(ttl).wait_timeout(wait),
                readers: load.readers,
            },
            (_, true) => Kind::Several {
                alone: one(None),
                quorum: quorum.clone(),
                count: u64::from(load.names.count),
                ttl,
                wait,
            },
            _ => Kind::One(one(load.names.semaphore)),
        };
        Self { own, name, kind }
    }

    /// The next one. Of several names: its own and up to two others, or its own alone, each as often.
    pub(super) fn next(&self) -> Wish<'_> {
        let mine = || vec![self.name.clone()];
        let alone = |lock| Wish {
            names: mine(),
            side: None,
            lock,
        };
        match &self.kind {
            Kind::One(wanted) => alone(Lock::One(wanted)),
            Kind::Rwlock { lock, readers } => {
                let side = match rand::random_range(0..100) < *readers {
                    true => Side::Reader,
                    false => Side::Writer,
                };
                Wish {
                    names: mine(),
                    side: Some(side),
                    lock: Lock::Rwlock(lock, side),
                }
            }
            Kind::Several {
                alone: wanted,
                quorum,
                count,
                ttl,
                wait,
            } => {
                let below = |most: usize| rand::random_range(0..most);
                let others = others(self.own, *count, below(MOST), below);
                if others.is_empty() {
                    return alone(Lock::One(wanted));
                }
                let names = [mine(), others.into_iter().map(super::name).collect()].concat();
                let lock = quorum.mutex_all(names.clone());
                Wish {
                    names,
                    side: None,
                    lock: Lock::Several(lock.ttl(*ttl).wait_timeout(*wait)),
                }
            }
        }
    }
}

/// `more` of the others, or all if there are fewer. `below` gives a random number below this one.
fn others(own: u64, count: u64, more: usize, below: impl Fn(usize) -> usize) -> Vec<u64> {
    let mut left: Vec<u64> = (0..count).filter(|name| *name != own).collect();
    let mut taken = Vec::new();
    for _ in 0..more {
        if !left.is_empty() {
            taken.push(left.swap_remove(below(left.len())));
        }
    }
    taken
}

impl Wish<'_> {
    /// Waits for it.
    pub(super) async fn take(&self) -> Result<Lease, Error> {
        match &self.lock {
            Lock::One(wanted) => wanted.take().await,
            Lock::Rwlock(lock, Side::Reader) => lock.read().await,
            Lock::Rwlock(lock, Side::Writer) => lock.write().await,
            Lock::Several(all) => all.lock().await,
        }
    }

    /// None if others have it.
    pub(super) async fn try_take(&self) -> Result<Option<Lease>, Error> {
        match &self.lock {
            Lock::One(wanted) => wanted.try_take().await,
            Lock::Rwlock(lock, Side::Reader) => lock.try_read().await,
            Lock::Rwlock(lock, Side::Writer) => lock.try_write().await,
            Lock::Several(all) => all.try_lock().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_others_and_each_is_there_once() {
        for below in [|_: usize| 0, |most: usize| most - 1] {
            for (count, more, taken) in [(8, 2, 2), (8, 0, 0), (2, 2, 1), (1, 2, 0)] {
                let others = others(1.min(count - 1), count, more, below);
                assert_eq!(others.len(), taken, "{count} {more}");
                assert!(!others.contains(&1.min(count - 1)), "{others:?}");
                assert!(others.first() != others.get(1) || taken < 2, "{others:?}");
            }
        }
    }
}
