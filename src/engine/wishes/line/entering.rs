//! How one comes to stand in line: behind an attempt that was refused, or at once, where others stood there a moment ago.

use super::{Follows, InLine, Line};
use crate::{
    FencingToken,
    base::name::Name,
    engine::{
        attempt::new_owner,
        claim::Queue,
        event::WishId,
        net::Net,
        rollback::wait_life,
        wishes::{
            standing::Standing,
            waiter::{Counts, Waiter},
        },
    },
    protocol::queue::{place::Place, terms::Terms},
};

impl Line {
    /// Whether somebody stood in line for this lock a moment ago, so that another will be refused it.
    pub(in crate::engine::wishes) fn stands(&self, net: &Net, name: &Name) -> bool {
        net.has_a_majority() && self.lately.has(name, net.now)
    }

    /// Takes a place behind an attempt that was refused. `ticket`: the largest that any node has named; `counter`: the largest
    /// counter.
    pub(in crate::engine::wishes) fn enter(
        &mut self,
        net: &mut Net,
        waiter: Box<Waiter>,
        (ticket, counter): (u64, u64),
    ) -> Follows {
        self.last_ticket = self.last_ticket.max(ticket);
        self.lately.stands(waiter.wish.name(), net.now);
        self.take_place(net, waiter, false, counter)
    }

    /// The same without an attempt, if it comes behind all others.
    pub(in crate::engine::wishes) fn enter_last(
        &mut self,
        net: &mut Net,
        waiter: Box<Waiter>,
    ) -> Follows {
        self.take_place(net, waiter, true, 0)
    }

    /// The same behind an attempt for something else, which has named nobody who stands there.
    pub(in crate::engine::wishes) fn enter_unseen(
        &mut self,
        net: &mut Net,
        waiter: Box<Waiter>,
    ) -> Follows {
        self.lately.stands(waiter.wish.name(), net.now);
        self.enter_last(net, waiter)
    }

    fn take_place(
        &mut self,
        net: &mut Net,
        mut waiter: Box<Waiter>,
        only_last: bool,
        counter: u64,
    ) -> Follows {
        let entry = match new_owner(net, waiter.wish.id) {
            Ok(entry) => entry,
            Err(error) => {
                self.decided.extend(waiter.counts_no_more(Counts::Joins));
                return Follows::Over(waiter, error);
            }
        };
        let after = self.last_ticket.saturating_add(1);
        let ticket = net.clock.wall_us().max(after).min(FencingToken::MAX);
        self.last_ticket = ticket;
        let wish = &waiter.wish;
        // A lost push costs a writer more than a waiter for a mutex: it was told of each release before there was a turn.
        let life = match waiter.writer {
            Some(_) => wait_life(net).min(net.fleet().max_ttl()),
            None => net.fleet().max_ttl(),
        };
        let terms = Terms::new(wish.ttl, life, net.round_trip());
        let (total, rules) = (net.total(), net.settings.rules);
        let place = Place::new(
            net.now,
            (ticket, only_last),
            terms,
            (total, net.needed),
            rules,
        );
        let (id, round) = (wish.id, net.new_round());
        self.rounds.insert(round, id);
        self.entries.insert(entry.clone(), id);
        let in_line = InLine {
            waiter,
            round,
            entry,
            place,
            standing: Standing::new(total),
            counter,
        };
        self.waiting.insert(id, Box::new(in_line));
        self.look(net, id)
    }

    /// Others came before one that was to be the last: what some nodes may know of it is taken back, and behind that it takes a
    /// place behind all that were named.
    pub(super) fn again(&mut self, net: &mut Net, id: WishId) -> Follows {
        let Some(one) = self.take(net, id) else {
            return Follows::Nothing;
        };
        one.take_back(net);
        let counter = one.counter;
        self.take_place(net, one.waiter, false, counter)
    }

    /// The queues of those who asked for a place and are answered, one for each.
    pub(in crate::engine::wishes) fn decided(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.decided)
    }
}
