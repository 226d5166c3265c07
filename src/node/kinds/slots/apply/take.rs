//! TAKE: a slot, or a place in line.

use std::time::Duration;

use super::Room;
use crate::{
    base::{limit::Limit, owner::Entry, rules::Rule},
    node::{
        fault::Fault,
        kinds::{
            counters::{MAX_TOKEN, Mint},
            slots::{Mode, Place, Reply, kept::Slot},
        },
        wire::ms,
    },
};

/// So many other slots are looked at where the wanted one is taken, before it is the next free one.
const STEPS: u64 = 32;

/// Whether to take a slot for the first time or to move, and which is wanted.
type Wish = (Mode, Option<u32>);

/// What has become of who asks.
#[derive(Default)]
struct Came {
    /// Its slot, and the slot's counter.
    mine: Option<(u32, u64)>,
    may_take: bool,
    ticket: u64,
    /// The slot that it has left.
    left: Option<u32>,
}

impl<'c> Room<'c> {
    pub(super) fn take(
        &mut self,
        place: &'c Place,
        limit: Limit,
        wish: Wish,
        ttl: Duration,
        mint: &mut Mint<'_>,
    ) -> Result<Reply, Fault> {
        let entry = &place.entry;
        self.asks = Some(entry);
        self.kept.purge(Some(entry), self.at)?;
        let grown = self.settle(limit)?;
        match self.kept.limit {
            Some(stands) if stands.slots != limit.slots => return Ok(Reply::Conflict(stands)),
            _ => {}
        }
        let ours = self.kept.slot_of(entry, self.at);
        let ours = ours.map(|(number, slot)| (number, slot.ticket));
        let came = match ours {
            Some(ours) => self.moved(entry, ours, wish, ttl, mint)?,
            None => self.come(place, wish, ttl, mint)?,
        };
        // Each slot that is free for them now, once.
        if let Some(left) = came.left {
            self.call(left);
        }
        if !grown.is_empty() {
            self.call_new(grown);
        } else if came.mine.is_none()
            && self.has_swept
            && let Some(free) = self.kept.next_free(0)
        {
            self.call(free);
        }
        Ok(Reply::Slots {
            mine: came.mine,
            taken: self.kept.taken(),
            version: self.kept.limit.map_or(0, |limit| limit.version),
            may_take: came.may_take,
            ticket: came.ticket,
            next_free: self.kept.until_free(self.at),
        })
    }

    /// Who has a slot takes the one that it wants in its place, or keeps it for longer.
    fn moved(
        &mut self,
        entry: &Entry,
        (old, ticket): (u32, u64),
        (mode, want): Wish,
        ttl: Duration,
        mint: &mut Mint<'_>,
    ) -> Result<Came, Fault> {
        let rules = self.at.rules;
        let moves = mode == Mode::Move && rules.hold(Rule::NumberedSlots);
        let to = want.filter(|want| moves && self.is_free(*want));
        let came = |mine, left| Came {
            mine: Some(mine),
            may_take: true,
            ticket,
            left,
        };
        let Some(to) = to else {
            self.at.may_delete()?; // PEXPIRE too is allowed to a full server
            self.prolong(entry, old, ttl, ticket);
            self.used(false);
            let counter = mint.counters.read(&self.counted(old), self.at);
            return Ok(came((old, counter), None));
        };
        let (of, before) = (self.counted(to), self.counted(old));
        let token = match rules.hold(Rule::MoveMints) {
            true => mint.token(&of, self.at)?,
            false => {
                let there = mint.counters.read(&of, self.at);
                let token = mint.counters.read(&before, self.at).max(there);
                self.at.may_write()?;
                mint.counters.write(&of, token, self.at);
                token
            }
        };
        self.kept.drop_slot(old);
        self.put(entry, to, ttl, ticket);
        self.used(false);
        Ok(came((to, token), Some(old)))
    }

    /// Who has none takes one, if it may and one is free; else a place in line.
    fn come(
        &mut self,
        place: &Place,
        (mode, want): Wish,
        ttl: Duration,
        mint: &mut Mint<'_>,
    ) -> Result<Came, Fault> {
        let entry = &place.entry;
        self.fall_back(place, mode)?;
        // What is free is theirs who stand in front, if they live. Nobody is called: who was called gave it back.
        if !place.life.is_zero() && self.kept.next_free(0).is_some() {
            self.sweep(entry);
        }
        let stands = self.kept.line.rank(entry);
        let tries = stands.is_none() && place.life.is_zero();
        // The dead do not stand in the way of who only tries: whoever is called and not heard of is out of line.
        if tries
            && self.kept.line.count() > 0
            && let Some(free) = self.kept.next_free(0)
        {
            self.call(free);
        }
        let ticket = match self.kept.line.waiter(entry) {
            Some(waiter) => waiter.ticket,
            None if mode == Mode::Move => place.ticket,
            // Who asks later stands behind, whatever the clocks say.
            None => {
                let behind = |last: u64| last.saturating_add(1).min(MAX_TOKEN);
                place.ticket.max(self.kept.line.last().map_or(0, behind))
            }
        };
        let rank = match stands {
            Some(rank) => rank,
            // With a ticket from elsewhere it comes back to its place.
            None if mode == Mode::Move && !tries => self.kept.line.before(ticket),
            None => self.kept.line.count(),
        };
        let may_take = rank < self.kept.gate();
        let overtakes = match stands {
            Some(_) => false,
            None if tries => rank > 0,
            None => self.free_slots().nth(rank).is_none(),
        };
        let slot = self.choose(mode, want);
        if let Some(slot) = slot.filter(|_| may_take && !overtakes) {
            let token = mint.token(&self.counted(slot), self.at)?;
            self.put(entry, slot, ttl, ticket);
            self.used(false);
            self.leave(entry);
            return Ok(Came {
                mine: Some((slot, token)),
                may_take,
                ticket,
                left: None,
            });
        }
        let ticket = match place.life.is_zero() {
            true if stands.is_none() => 0,
            true => ticket,
            false => {
                self.register(place, ticket)?;
                ticket
            }
        };
        Ok(Came {
            may_take,
            ticket,
            ..Came::default()
        })
    }

    /// Who has a greater ticket elsewhere gets it here: the order is to be the same on all nodes. Else everybody might stand
    /// in front on a few nodes, and nobody on a majority.
    fn fall_back(&mut self, place: &Place, mode: Mode) -> Result<(), Fault> {
        let entry = &place.entry;
        let waiter = self.kept.line.waiter(entry);
        if mode == Mode::Pick
            || place.life.is_zero()
            || !self.at.rules.hold(Rule::SameTicket)
            || waiter.is_none_or(|waiter| waiter.ticket >= place.ticket)
        {
            return Ok(());
        }
        let rank = self.kept.line.rank(entry);
        self.register(place, place.ticket)?;
        let gate = self.kept.gate();
        let is_in_it = |rank: Option<usize>| rank.is_some_and(|rank| rank < gate);
        if is_in_it(rank) && !is_in_it(self.kept.line.rank(entry)) {
            self.tell_the_last(gate);
        }
        Ok(())
    }

    fn choose(&self, mode: Mode, want: Option<u32>) -> Option<u32> {
        let want = want?;
        if !self.at.rules.hold(Rule::NumberedSlots) {
            return self.kept.next_free(0);
        }
        match mode {
            Mode::Pick => self.pick(want),
            Mode::Move => Some(want).filter(|want| self.is_free(*want)),
        }
    }

    /// Each goes a way of its own: if all took the next one, they would crowd behind whatever is full.
    fn pick(&self, want: u32) -> Option<u32> {
        let (limit, draw) = (u64::from(self.kept.count()), u64::from(want));
        let first = draw.checked_rem(limit)?;
        let step = 1 + draw / limit % (limit - 1).max(1);
        let way = |i| u32::try_from((first + i * step) % limit).ok();
        let free = (0..=STEPS).filter_map(way).find(|slot| self.is_free(*slot));
        let next = || self.kept.next_free(way(STEPS)?);
        free.or_else(next).or_else(|| self.kept.next_free(0))
    }

    /// Holds a slot that was free.
    fn put(&mut self, entry: &Entry, slot: u32, ttl: Duration, ticket: u64) {
        let held = Slot {
            entry: entry.clone(),
            ticket,
            until: self.at.ms().saturating_add(ms(ttl)),
        };
        self.kept.hold(slot, held);
    }

    fn is_free(&self, slot: u32) -> bool {
        slot < self.kept.count() && self.kept.slot(slot).is_none()
    }

    fn free_slots(&self) -> impl Iterator<Item = u32> {
        (0..self.kept.count()).filter(|slot| self.is_free(*slot))
    }
}
