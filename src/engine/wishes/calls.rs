//! Who waits for a read-write lock, and is called when it is freed (protocol §4).

use std::collections::{BTreeSet, HashMap};

use super::waiter::{Known, Waiter};
use crate::{
    Error,
    claim::{Side, Waits},
    engine::{
        attempt::new_owner,
        event::WishId,
        net::Net,
        rollback::{stop_waiting, wait_life},
    },
    name::Name,
    owner::Entry,
};

/// All who wait for such a lock.
#[derive(Default)]
pub(super) struct Calls {
    rooms: HashMap<Name, BTreeSet<WishId>>,
    names: HashMap<Entry, Name>,
}

impl Calls {
    /// As the nodes are told of one whose next attempt begins. None: it does not wait, or not for such a lock.
    pub(super) fn tell_of(
        &mut self,
        net: &mut Net,
        waiter: &mut Waiter,
    ) -> Result<Option<Waits>, Error> {
        let waits = waiter.patience.waits() && !waiter.patience.is_over(net.now);
        if waiter.wish.wants.side().is_none() || !waits {
            return Ok(None);
        }
        if waiter.known.is_none() {
            let entry = new_owner(net, waiter.wish.id)?;
            let name = waiter.wish.name().clone();
            self.names.insert(entry.clone(), name.clone());
            self.rooms.entry(name).or_default().insert(waiter.wish.id);
            waiter.known = Some(Known {
                entry,
                by: BTreeSet::new(),
                is_called: false,
            });
        }
        Ok(waiter.known.as_mut().map(|known| {
            known.is_called = false;
            Waits {
                entry: known.entry.clone(),
                life: wait_life(net),
                channel: net.settings.channel.clone(),
            }
        }))
    }

    /// Who is called by the push to this one: all who wait for the same lock.
    pub(super) fn called(&self, entry: &Entry) -> Vec<WishId> {
        let room = self.names.get(entry).and_then(|name| self.rooms.get(name));
        room.into_iter().flatten().copied().collect()
    }

    /// It waits no more: how nodes know that it did, if that has to be taken back.
    pub(super) fn leave(&mut self, waiter: &mut Waiter) -> Option<Known> {
        let known = waiter.known.take()?;
        self.names.remove(&known.entry);
        if let Some(room) = self.rooms.get_mut(waiter.wish.name()) {
            room.remove(&waiter.wish.id);
            if room.is_empty() {
                self.rooms.remove(waiter.wish.name());
            }
        }
        // A reader that waits keeps nobody out.
        (waiter.wish.wants.side() == Some(Side::Writer)).then_some(known)
    }

    /// It waits no more and has not got it: it keeps no reader out.
    pub(super) fn give_up(&mut self, net: &mut Net, waiter: &mut Waiter) {
        let Some(known) = self.leave(waiter) else {
            return;
        };
        if let Some(claim) = waiter.wish.wants.claim() {
            stop_waiting(net, &claim, &known.entry, known.by);
        }
    }

    /// What is kept.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.rooms.len() + self.names.len()
    }
}
