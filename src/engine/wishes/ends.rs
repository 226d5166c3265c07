//! How wishes end that were not granted: their callers gave up, or the quorum closes.

use super::{Asking, Wishes, waiter::Waiter};
use crate::{
    Error,
    engine::{event::WishId, net::Net, timers::Key},
};

impl Wishes {
    /// The caller's future was dropped.
    pub(in crate::engine) fn cancel(&mut self, net: &mut Net, id: WishId) {
        self.end(net, id);
    }

    /// All wishes end: the quorum closes.
    pub(in crate::engine) fn close(&mut self, net: &mut Net) {
        let mut waiters = self.turns.close();
        for waiter in &mut waiters {
            net.timers.cancel(Key::Wish(waiter.wish.id));
            self.calls.give_up(net, waiter);
        }
        let mut ids: Vec<WishId> = self
            .rounds
            .keys()
            .chain(self.resting.keys())
            .copied()
            .collect();
        ids.extend(self.line.ids());
        ids.extend(self.slots.ids());
        ids.sort_unstable();
        waiters.extend(ids.into_iter().filter_map(|id| self.end(net, id)));
        for waiter in waiters {
            let _ = waiter.wish.reply.send(Err(Error::Closed));
        }
    }

    /// Ends a wish, and takes back what it asked for.
    pub(super) fn end(&mut self, net: &mut Net, id: WishId) -> Option<Box<Waiter>> {
        if let Some(mut waiter) = self.turns.leave(id) {
            net.timers.cancel(Key::Wish(id));
            self.calls.give_up(net, &mut waiter);
            return Some(waiter);
        }
        if let Some(mut waiter) = self.resting.remove(&id) {
            net.timers.cancel(Key::Wish(id));
            self.forget(net, &mut waiter);
            return Some(waiter);
        }
        let Some(round) = self.rounds.get(&id).copied() else {
            let waiter = match self.slots.has(id) {
                true => self.slots.leave(net, id),
                false => self.line.leave(net, id),
            };
            self.make_room_in_line();
            let mut waiter = waiter?.of_caller();
            self.forget(net, &mut waiter);
            return Some(waiter);
        };
        let Asking {
            mut waiter,
            mut attempt,
        } = self.take(net, round)?;
        attempt.roll_back(net);
        self.forget(net, &mut waiter);
        Some(waiter)
    }
}
