//! The acquisitions that wait for a read-write lock and are told when it is freed (protocol §4).

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::{
    attempt::new_owner,
    waiter::{Known, Waiter},
};
use crate::{
    Error,
    base::{clock::Tick, name::Name, owner::Entry},
    engine::{
        cluster::Cluster,
        event::AcquisitionId,
        rollback::{stop_waiting, wait_life},
    },
    node::request::{self, Side, Waiting},
};

/// All acquisitions that wait for a read-write lock.
#[derive(Default)]
pub(super) struct RwlockWaiters {
    rooms: HashMap<Name, Room>,
    names: HashMap<Entry, Name>,
}

/// The acquisitions that wait for one lock.
#[derive(Default)]
struct Room {
    there: BTreeSet<AcquisitionId>,
    /// Owners that waited before. A node notifies one owner for each process: the one that asked last. For a while that
    /// may be one of these, and the message is for the acquisitions that wait now.
    gone: VecDeque<(Tick, Entry)>,
}

impl RwlockWaiters {
    /// The registration that goes with the next attempt. It is `Waiting::No` if the acquisition does not wait, or is
    /// not for a read-write lock.
    pub(super) fn tell_of(
        &mut self,
        cluster: &mut Cluster,
        waiter: &mut Waiter,
    ) -> Result<Waiting, Error> {
        let waits = waiter.patience.waits() && !waiter.patience.is_over(cluster.now);
        if waiter.acquisition.request.wants.side().is_none() || !waits {
            return Ok(Waiting::No);
        }
        if waiter.known.is_none() {
            let entry = new_owner(cluster, &waiter.acquisition)?;
            let name = waiter.acquisition.name().clone();
            let before = self.names.insert(entry.clone(), name.clone());
            debug_assert!(before.is_none(), "two waiters of one owner");
            self.rooms
                .entry(name)
                .or_default()
                .there
                .insert(waiter.acquisition.id);
            waiter.known = Some(Box::new(Known {
                entry,
                by: BTreeSet::new(),
                was_freed: false,
            }));
        }
        Ok(waiter.known.as_mut().map_or(Waiting::No, |known| {
            known.was_freed = false;
            Waiting::Told(request::Waiter {
                entry: known.entry.clone(),
                life: wait_life(cluster),
                channel: cluster.settings.channel.clone(),
            })
        }))
    }

    /// The acquisitions that wait for the same lock as this owner.
    pub(super) fn waiting_with(&self, entry: &Entry) -> Vec<AcquisitionId> {
        let room = self.names.get(entry).and_then(|name| self.rooms.get(name));
        let there = room.into_iter().flat_map(|room| &room.there);
        there.copied().collect()
    }

    /// The acquisition does not wait any more. Returns how the nodes know it, if that has to be taken back.
    pub(super) fn leave(&mut self, cluster: &Cluster, waiter: &mut Waiter) -> Option<Box<Known>> {
        let known = waiter.known.take()?;
        if let Some(room) = self.rooms.get_mut(waiter.acquisition.name()) {
            let was_there = room.there.remove(&waiter.acquisition.id);
            debug_assert!(was_there, "it does not wait");
            let until = cluster.now.plus(wait_life(cluster));
            room.gone.push_back((until, known.entry.clone()));
            let is_empty = room.there.is_empty();
            let forgets = |(until, _): &(Tick, Entry)| is_empty || *until < cluster.now;
            while room.gone.front().is_some_and(forgets) {
                let gone = room.gone.pop_front();
                gone.and_then(|(_, entry)| self.names.remove(&entry));
            }
            if is_empty {
                self.rooms.remove(waiter.acquisition.name());
            }
        }
        // A reader that waits keeps nobody out, so nothing has to be taken back.
        (waiter.acquisition.request.wants.side() == Some(Side::Writer)).then_some(known)
    }

    /// The acquisition does not wait any more and was not granted. It must not keep readers out.
    pub(super) fn give_up(&mut self, cluster: &mut Cluster, waiter: &mut Waiter) {
        let Some(known) = self.leave(cluster, waiter) else {
            return;
        };
        if let Some(target) = waiter.acquisition.request.wants.target() {
            stop_waiting(cluster, target, &known.entry, known.by);
        }
    }

    /// The number of entries.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.rooms.len() + self.names.len()
    }
}
