//! Who waits for a read-write lock, and is called when it is freed (protocol §4).

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::waiter::{Known, Waiter};
use crate::{
    Error,
    base::{clock::Tick, name::Name, owner::Entry},
    engine::{
        attempt::new_owner,
        event::WishId,
        net::Net,
        rollback::{stop_waiting, wait_life},
    },
    node::request::{self, Side, Waiting},
};

/// All who wait for such a lock.
#[derive(Default)]
pub(super) struct Calls {
    rooms: HashMap<Name, Room>,
    names: HashMap<Entry, Name>,
}

/// Who waits for one lock.
#[derive(Default)]
struct Room {
    there: BTreeSet<WishId>,
    /// Who was there. Of all who wait in a process a node calls the one that has asked last: until then it may be one of these, and
    /// means the others.
    gone: VecDeque<(Tick, Entry)>,
}

impl Calls {
    /// As the nodes are told of one whose next attempt begins. None: it does not wait, or not for such a lock.
    pub(super) fn tell_of(&mut self, net: &mut Net, waiter: &mut Waiter) -> Result<Waiting, Error> {
        let waits = waiter.patience.waits() && !waiter.patience.is_over(net.now);
        if waiter.wish.wants.side().is_none() || !waits {
            return Ok(Waiting::No);
        }
        if waiter.known.is_none() {
            let entry = new_owner(net, waiter.wish.id)?;
            let name = waiter.wish.name().clone();
            self.names.insert(entry.clone(), name.clone());
            self.rooms
                .entry(name)
                .or_default()
                .there
                .insert(waiter.wish.id);
            waiter.known = Some(Box::new(Known {
                entry,
                by: BTreeSet::new(),
                is_called: false,
            }));
        }
        Ok(waiter.known.as_mut().map_or(Waiting::No, |known| {
            known.is_called = false;
            Waiting::Told(request::Waiter {
                entry: known.entry.clone(),
                life: wait_life(net),
                channel: net.settings.channel.clone(),
            })
        }))
    }

    /// Who is called by the push to this one: all who wait for the same lock.
    pub(super) fn called(&self, entry: &Entry) -> Vec<WishId> {
        let room = self.names.get(entry).and_then(|name| self.rooms.get(name));
        let there = room.into_iter().flat_map(|room| &room.there);
        there.copied().collect()
    }

    /// It waits no more: how nodes know that it did, if that has to be taken back.
    pub(super) fn leave(&mut self, net: &Net, waiter: &mut Waiter) -> Option<Box<Known>> {
        let known = waiter.known.take()?;
        if let Some(room) = self.rooms.get_mut(waiter.wish.name()) {
            room.there.remove(&waiter.wish.id);
            let until = net.now.plus(wait_life(net));
            room.gone.push_back((until, known.entry.clone()));
            let is_empty = room.there.is_empty();
            let forgets = |(until, _): &(Tick, Entry)| is_empty || *until < net.now;
            while room.gone.front().is_some_and(forgets) {
                let gone = room.gone.pop_front();
                gone.and_then(|(_, entry)| self.names.remove(&entry));
            }
            if is_empty {
                self.rooms.remove(waiter.wish.name());
            }
        }
        // A reader that waits keeps nobody out.
        (waiter.wish.wants.side() == Some(Side::Writer)).then_some(known)
    }

    /// It waits no more and has not got it: it keeps no reader out.
    pub(super) fn give_up(&mut self, net: &mut Net, waiter: &mut Waiter) {
        let Some(known) = self.leave(net, waiter) else {
            return;
        };
        if let Some(target) = waiter.wish.wants.target() {
            stop_waiting(net, target, &known.entry, known.by);
        }
    }

    /// What is kept.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.rooms.len() + self.names.len()
    }
}
