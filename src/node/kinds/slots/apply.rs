//! What an in-process node does with the commands about slots: the executable meaning of the Lua in this folder.

mod call;
mod take;

use std::{collections::BTreeMap, time::Duration};

use super::{
    Command, Family, Held, Inspected, Place, Pool, Reply,
    kept::{Kept, Slot},
};
use crate::{
    base::{limit::Limit, owner::Entry, rules::Rule},
    node::{
        fault::Fault,
        kinds::{
            counters::{Counted, Counters, Mint},
            moment::Moment,
        },
        wire::ms,
    },
};

/// An inspection names so many holders, and so many of those who wait.
const SHOWN: usize = 100;

/// All semaphores of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(BTreeMap<Pool, Kept>);

/// One semaphore while a command is obeyed.
struct Room<'c> {
    pool: &'c Pool,
    kept: Kept,
    max_ttl: Duration,
    at: Moment<'c>,
    /// Who asks for a slot: its answer tells it what is free, so it is not called.
    asks: Option<&'c Entry>,
    /// A free slot came to it when those who wait were called.
    is_told: bool,
    /// Some who did not live were put out of line.
    has_swept: bool,
}

impl Memory {
    /// Obeys one command.
    pub(crate) fn apply(
        &mut self,
        command: &Command,
        counters: &mut Counters,
        at: Moment,
    ) -> Result<Reply, Fault> {
        let pool = command.pool();
        let known = self.0.remove(pool).filter(|kept| at.ms() <= kept.until);
        let mut room = Room {
            pool,
            kept: known.unwrap_or_default(),
            max_ttl: command.max_ttl(),
            at,
            asks: None,
            is_told: false,
            has_swept: false,
        };
        let answer = match pool.family {
            Family::Permits => room.obey(command, counters),
            Family::Gatherers | Family::Units { .. } => {
                let own = room.kept.counters.take();
                let mut own = own.unwrap_or_else(Counters::beside_slots);
                let answer = room.obey(command, &mut own);
                room.kept.counters = Some(own);
                answer
            }
        };
        if at.ms() <= room.kept.until {
            self.0.insert(pool.clone(), room.kept);
        }
        answer
    }
}

impl<'c> Room<'c> {
    fn obey(&mut self, command: &'c Command, counters: &mut Counters) -> Result<Reply, Fault> {
        let at = self.at;
        match command {
            Command::Take {
                place,
                limit,
                mode,
                want,
                ttl,
                floor,
                max_ttl,
                ..
            } => {
                let mint = &mut Mint::new(*floor, *max_ttl, counters, at);
                self.take(place, *limit, (*mode, *want), *ttl, mint)
            }
            Command::Raise {
                entry,
                slot,
                token,
                max_ttl,
                ..
            } => {
                if !self.is_held_by(entry, *slot) {
                    return Ok(Reply::Lost);
                }
                let raised = counters.raise(&self.counted(*slot), *token, *max_ttl, at)?;
                Ok(Reply::Raised(raised))
            }
            Command::Extend {
                entry, slot, ttl, ..
            } => self.extend(entry, *slot, *ttl),
            Command::Repair {
                entry,
                slot,
                ttl,
                token,
                max_ttl,
                ..
            } => {
                let counted = self.counted(*slot);
                let bring = || counters.bring_to(&counted, *token, *max_ttl, at);
                self.repair(entry, *slot, *ttl, bring)
            }
            Command::Release { entry, keep, .. } => self.release(entry, *keep),
            Command::Yield { place, .. } => self.give_back(place),
            Command::Resize { limit, .. } => self.resize(*limit),
            Command::Inspect { .. } => self.inspect(counters),
        }
    }

    fn extend(&mut self, entry: &Entry, slot: u32, ttl: Duration) -> Result<Reply, Fault> {
        let rules = self.at.rules;
        let is_free = self.kept.slot(slot).is_none();
        let may_recreate = !rules.hold(Rule::NeverRecreate) && is_free;
        if !self.is_held_by(entry, slot) && !may_recreate {
            return Ok(Reply::Lost);
        }
        self.at.may_delete()?; // PEXPIRE too is allowed to a full server
        self.prolong(entry, slot, ttl, 0);
        self.used(false);
        Ok(Reply::Extended)
    }

    /// `bring`: brings the counter up to the token; whether it was less.
    fn repair(
        &mut self,
        entry: &Entry,
        slot: u32,
        ttl: Duration,
        bring: impl FnOnce() -> Result<bool, Fault>,
    ) -> Result<Reply, Fault> {
        self.kept.purge(Some(entry), self.at)?;
        let ours = self.kept.slot_of(entry, self.at);
        let ours = ours.map(|(number, _)| number);
        let beyond = self.kept.limit.is_some_and(|limit| slot >= limit.slots);
        let is_others = self.kept.slot(slot).is_some() && ours != Some(slot);
        if beyond || is_others || ours.is_some_and(|ours| ours != slot) {
            return Ok(Reply::Repaired(false));
        }
        if bring()? {
            // That write was the first.
        } else if ours.is_some() {
            self.at.may_delete()?; // PEXPIRE too is allowed to a full server
        } else {
            self.at.may_write()?;
        }
        let ticket = self.kept.line.waiter(entry).map_or(0, |w| w.ticket);
        self.prolong(entry, slot, ttl, ticket);
        self.used(false);
        self.leave(entry);
        Ok(Reply::Repaired(true))
    }

    fn release(&mut self, entry: &Entry, keep: Option<u32>) -> Result<Reply, Fault> {
        if !self.at.rules.hold(Rule::DeleteFirst) {
            self.at.may_write()?;
        }
        let ours = self.kept.left_by(entry);
        let ours = ours.filter(|(number, _)| keep != Some(*number));
        let lived = ours.is_some_and(|(_, slot)| self.at.ms() <= slot.until);
        let ours = ours.map(|(number, _)| number);
        let stood = self.kept.line.waiter(entry).is_some();
        if ours.is_some() || stood {
            self.at.may_delete()?;
        }
        if let Some(slot) = ours {
            self.kept.drop_slot(slot);
        }
        let was_in_gate = self.leave(entry);
        if !self.at.admitted {
            return Ok(Reply::ReleasedUnadmitted);
        }
        // It may have been called to what is free.
        let free = || self.kept.next_free(0).filter(|_| was_in_gate);
        if let Some(slot) = ours.or_else(free) {
            self.call(slot);
        }
        if ours.is_some() || stood {
            self.used(false);
        }
        Ok(Reply::Released(lived))
    }

    /// YIELD.
    fn give_back(&mut self, place: &Place) -> Result<Reply, Fault> {
        let ours = self.kept.left_by(&place.entry);
        let ours = ours.map(|(number, slot)| (number, slot.ticket));
        let ticket = ours.map_or(0, |(_, ticket)| ticket);
        if let Some((number, _)) = ours {
            self.at.may_delete()?;
            self.kept.drop_slot(number);
        }
        if !place.life.is_zero() {
            let ticket = match self.kept.line.waiter(&place.entry) {
                Some(waiter) => waiter.ticket,
                None if ticket > 0 && !self.at.rules.hold(Rule::SameTicket) => ticket,
                None => ticket.max(place.ticket),
            };
            self.register(place, ticket)?;
        }
        Ok(Reply::Yielded)
    }

    fn resize(&mut self, limit: Limit) -> Result<Reply, Fault> {
        self.kept.purge(None, self.at)?;
        let grown = self.settle(limit)?;
        self.call_new(grown);
        Ok(Reply::Limit(self.kept.limit.unwrap_or(limit)))
    }

    fn inspect(&mut self, counters: &Counters) -> Result<Reply, Fault> {
        self.kept.purge(None, self.at)?;
        let (kept, at) = (&self.kept, self.at);
        let left = |slot: &Slot| Duration::from_millis(slot.until.saturating_sub(at.ms()));
        let holders = kept.slots().take(SHOWN).map(|(number, slot)| Held {
            slot: number,
            holder: slot.entry.as_str().to_owned(),
            remaining: left(slot),
            counter: counters.read(&self.counted(number), at),
        });
        let line = kept.line.all().take(SHOWN).map(|(ticket, entry)| {
            let waited = Duration::from_micros(at.time.saturating_sub(*ticket));
            (entry.as_str().to_owned(), waited)
        });
        Ok(Reply::Inspected(Inspected {
            limit: kept.limit,
            taken: kept.taken(),
            holders: holders.collect(),
            line: line.collect(),
            waiting: kept.line.count() as u64,
        }))
    }

    /// The first line of whoever comes with a limit: it stands, where it beats what stands. The slots that are new.
    fn settle(&mut self, limit: Limit) -> Result<std::ops::Range<u32>, Fault> {
        let before = self.kept.limit;
        if before.is_some_and(|before| !limit.beats(before, self.at.rules)) {
            return Ok(0..0);
        }
        self.at.may_write()?;
        self.kept.limit = Some(limit);
        self.used(false);
        Ok(before.map_or(0..0, |before| before.slots..limit.slots))
    }

    /// Puts it in line, as one that was heard of now.
    fn register(&mut self, place: &Place, ticket: u64) -> Result<(), Fault> {
        self.at.may_write()?;
        let is_first = self.kept.line.count() == 0;
        self.kept.line.register(place, ticket, self.at.ms());
        self.used(is_first);
        Ok(())
    }

    /// What is known lives on, where less than three quarters are left, or the line is new.
    fn used(&mut self, is_new: bool) {
        let (left, life) = (
            self.kept.until.saturating_sub(self.at.ms()),
            ms(self.max_ttl),
        );
        if is_new || left < 3 * life {
            self.kept.until = self.at.ms().saturating_add(4 * life);
        }
    }

    /// Never shortens. `ticket`: where it held nothing.
    fn prolong(&mut self, entry: &Entry, slot: u32, ttl: Duration, ticket: u64) {
        let until = self.at.ms().saturating_add(ms(ttl));
        let (ticket, before) = match self.kept.slot(slot) {
            Some(slot) => (slot.ticket, slot.until),
            None => (ticket, 0),
        };
        let until = match self.at.rules.hold(Rule::NeverShorten) {
            true => until.max(before),
            false => until,
        };
        let entry = entry.clone();
        let held = Slot {
            entry,
            ticket,
            until,
        };
        self.kept.hold(slot, held);
    }

    fn is_held_by(&self, entry: &Entry, slot: u32) -> bool {
        let ours = self.kept.slot_of(entry, self.at);
        ours.is_some_and(|(ours, _)| ours == slot)
    }

    fn counted(&self, slot: u32) -> Counted {
        Counted::Slot(self.pool.clone(), slot)
    }
}

/// For tests: what stands on the node.
#[cfg(any(test, feature = "test-util"))]
impl Memory {
    /// Every slot that is held at `time`: of what, which, by whom, for how much longer.
    pub(crate) fn holders(
        &self,
        time: u64,
    ) -> impl Iterator<Item = (&Pool, u32, &Entry, Duration)> {
        let now = time / 1000;
        let all = self.known(now).flat_map(|(pool, kept)| {
            let slots = kept.slots();
            slots.map(move |(number, slot)| (pool, number, slot))
        });
        all.filter(move |(.., slot)| now <= slot.until)
            .map(move |(pool, number, slot)| {
                let left = Duration::from_millis(slot.until - now);
                (pool, number, &slot.entry, left)
            })
    }

    /// Who waits for what at `time`, in order.
    pub(crate) fn waiters(&self, time: u64) -> impl Iterator<Item = (&Pool, &Entry)> {
        self.known(time / 1000)
            .flat_map(|(pool, kept)| kept.line.all().map(move |(_, entry)| (pool, entry)))
    }

    fn known(&self, now: u64) -> impl Iterator<Item = (&Pool, &Kept)> {
        self.0.iter().filter(move |(_, kept)| now <= kept.until)
    }
}

#[cfg(test)]
mod tests;
