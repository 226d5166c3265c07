//! Slots of an in-process node: the executable meaning of the Lua in this folder.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use crate::{
    base::{limit::Limit, owner::Entry, rules::Rule},
    node::{
        answer::{Answer, PoolInspection, Slots, TakenSlot},
        fault::Fault,
        kinds::{
            counters::{Counted, Counters, MAX_TOKEN, Mint},
            moment::Moment,
            slots::{
                kept::{Kept, Slot},
                line::Waiter,
            },
        },
        push::{Push, Says},
        request::{Family, Mode, Pool, Request, Seat, Verb},
        wire::ms,
    },
};

/// How many holders, and how many waiters, an inspection names.
const SHOWN: usize = 100;

/// All semaphores of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(BTreeMap<Pool, Kept>);

/// One semaphore while a command is executed.
struct Room<'c> {
    pool: &'c Pool,
    kept: Kept,
    at: Moment<'c>,
    /// The entry that asks for a slot. Its answer tells it what is free, so it is not called.
    asks: Option<&'c Entry>,
    /// True once a free slot would have gone to the entry that asks.
    is_told: bool,
    /// True if dead waiters were removed from the queue.
    has_swept: bool,
}

impl Memory {
    /// Executes a request for a slot.
    pub(crate) fn obey(
        &mut self,
        pool: &Pool,
        slot: Option<u32>,
        request: &Request,
        counters: &mut Counters,
        at: Moment,
    ) -> Result<Answer, Fault> {
        self.with(pool, counters, at, |room, counters| {
            room.obey(slot, request, counters)
        })
    }

    pub(crate) fn inspect(
        &mut self,
        pool: &Pool,
        counters: &mut Counters,
        at: Moment,
    ) -> Result<Answer, Fault> {
        self.with(pool, counters, at, |room, counters| room.inspect(counters))
    }

    pub(crate) fn resize(
        &mut self,
        pool: &Pool,
        limit: Limit,
        counters: &mut Counters,
        at: Moment,
    ) -> Result<Answer, Fault> {
        self.with(pool, counters, at, |room, _| room.resize(limit))
    }

    fn with<'c>(
        &mut self,
        pool: &'c Pool,
        counters: &mut Counters,
        at: Moment<'c>,
        obey: impl FnOnce(&mut Room<'c>, &mut Counters) -> Result<Answer, Fault>,
    ) -> Result<Answer, Fault> {
        let known = self.0.remove(pool).filter(|kept| at.ms() <= kept.until);
        let mut room = Room {
            pool,
            kept: known.unwrap_or_default(),
            at,
            asks: None,
            is_told: false,
            has_swept: false,
        };
        let answer = match pool.family {
            Family::Permits => obey(&mut room, counters),
            Family::Gatherers | Family::Units { .. } => {
                let own = room.kept.counters.take();
                let mut own = own.unwrap_or_else(Counters::beside_slots);
                let answer = obey(&mut room, &mut own);
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
    fn obey(
        &mut self,
        slot: Option<u32>,
        request: &'c Request,
        counters: &mut Counters,
    ) -> Result<Answer, Fault> {
        let (at, entry) = (self.at, &request.entry);
        match (&request.verb, slot) {
            (Verb::Acquire { ttl, floor, wait }, want) => match wait.seat() {
                Some(seat) => {
                    let wish = Wish {
                        entry,
                        seat,
                        want,
                        ttl: *ttl,
                    };
                    self.take(wish, &mut Mint::new(*floor, counters, at))
                }
                None => self.release(entry, None),
            },
            (Verb::Yield { wait, .. }, _) => match wait.seat() {
                Some(seat) => self.give_back(entry, seat),
                None => self.release(entry, None),
            },
            (Verb::Raise { token, .. }, Some(slot)) if self.is_held_by(entry, slot) => {
                let raised = counters.raise(&self.counted(slot), *token, at)?;
                Ok(Answer::Raised(raised))
            }
            (Verb::Extend { ttl, .. }, Some(slot)) => self.extend(entry, slot, *ttl),
            (Verb::Raise { .. } | Verb::Extend { .. }, _) => Ok(Answer::Lost),
            (Verb::Repair { ttl, token }, Some(slot)) => {
                let counted = self.counted(slot);
                let bring = || counters.bring_to(&counted, *token, at);
                self.repair(entry, slot, *ttl, bring)
            }
            (Verb::Repair { .. }, None) => Ok(Answer::Repaired(false)),
            (Verb::Release(release), _) => self.release(entry, release.keep),
        }
    }

    fn extend(&mut self, entry: &Entry, slot: u32, ttl: Duration) -> Result<Answer, Fault> {
        let rules = self.at.rules;
        let is_free = self.kept.slot(slot).is_none();
        let may_recreate = !rules.hold(Rule::NeverRecreate) && is_free;
        if !self.is_held_by(entry, slot) && !may_recreate {
            return Ok(Answer::Lost);
        }
        self.at.may_delete()?; // a full server permits PEXPIRE too
        self.prolong(entry, slot, ttl, 0);
        self.used(false);
        Ok(Answer::Extended)
    }

    /// `bring` brings the counter up to the token, and returns true if it was less.
    fn repair(
        &mut self,
        entry: &Entry,
        slot: u32,
        ttl: Duration,
        bring: impl FnOnce() -> Result<bool, Fault>,
    ) -> Result<Answer, Fault> {
        self.kept.purge(Some(entry), self.at)?;
        let ours = self.kept.slot_of(entry, self.at);
        let ours = ours.map(|(number, _)| number);
        let beyond = self.kept.limit.is_some_and(|limit| slot >= limit.slots);
        let is_others = self.kept.slot(slot).is_some() && ours != Some(slot);
        if beyond || is_others || ours.is_some_and(|ours| ours != slot) {
            return Ok(Answer::Repaired(false));
        }
        if bring()? {
            // That was the first write.
        } else if ours.is_some() {
            self.at.may_delete()?; // a full server permits PEXPIRE too
        } else {
            self.at.may_write()?;
        }
        let ticket = self.kept.line.waiter(entry).map_or(0, |w| w.ticket);
        self.prolong(entry, slot, ttl, ticket);
        self.used(false);
        self.leave(entry);
        Ok(Answer::Repaired(true))
    }

    fn release(&mut self, entry: &Entry, keep: Option<u32>) -> Result<Answer, Fault> {
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
            return Ok(Answer::ReleasedUnadmitted);
        }
        // The waiter may have been called to a slot that is still free.
        let free = || self.kept.next_free(0).filter(|_| was_in_gate);
        if let Some(slot) = ours.or_else(free) {
            self.call(slot);
        }
        if ours.is_some() || stood {
            self.used(false);
        }
        Ok(Answer::Released(lived))
    }

    /// YIELD.
    fn give_back(&mut self, entry: &Entry, seat: &Seat) -> Result<Answer, Fault> {
        let ours = self.kept.left_by(entry);
        let ours = ours.map(|(number, slot)| (number, slot.ticket));
        let ticket = ours.map_or(0, |(_, ticket)| ticket);
        if let Some((number, _)) = ours {
            self.at.may_delete()?;
            self.kept.drop_slot(number);
        }
        if !seat.life.is_zero() {
            let ticket = match self.kept.line.waiter(entry) {
                Some(waiter) => waiter.ticket,
                None if ticket > 0 && !self.at.rules.hold(Rule::SameTicket) => ticket,
                None => ticket.max(seat.ticket),
            };
            self.register(entry, seat, ticket)?;
        }
        Ok(Answer::Yielded)
    }

    fn resize(&mut self, limit: Limit) -> Result<Answer, Fault> {
        self.kept.purge(None, self.at)?;
        let grown = self.settle(limit)?;
        self.call_new(grown);
        Ok(Answer::Limit(self.kept.limit.unwrap_or(limit)))
    }

    fn inspect(&mut self, counters: &Counters) -> Result<Answer, Fault> {
        self.kept.purge(None, self.at)?;
        let (kept, at) = (&self.kept, self.at);
        let left = |slot: &Slot| Duration::from_millis(slot.until.saturating_sub(at.ms()));
        let holders = kept.slots().take(SHOWN).map(|(number, slot)| TakenSlot {
            slot: number,
            holder: slot.entry.as_str().to_owned(),
            remaining: left(slot),
            counter: counters.read(&self.counted(number), at),
        });
        let line = kept.line.all().take(SHOWN).map(|(ticket, entry)| {
            let waited = Duration::from_micros(at.time.saturating_sub(*ticket));
            (entry.as_str().to_owned(), waited)
        });
        Ok(Answer::InspectedPool(Box::new(PoolInspection {
            limit: kept.limit,
            taken: kept.taken(),
            holders: holders.collect(),
            line: line.collect(),
            waiting: kept.line.count() as u64,
        })))
    }

    /// Stores the limit that a client brings, if it beats the one that stands. Returns the new slots.
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

    /// Puts the entry into the queue, or refreshes it. It counts as heard of now.
    fn register(&mut self, entry: &Entry, seat: &Seat, ticket: u64) -> Result<(), Fault> {
        self.at.may_write()?;
        let is_first = self.kept.line.count() == 0;
        let now = self.at.ms();
        self.kept.line.register(entry, seat, ticket, now);
        self.used(is_first);
        Ok(())
    }

    /// The semaphore was used. Its state lives on if less than three quarters of the time are left, or if the queue is
    /// new.
    fn used(&mut self, is_new: bool) {
        let (left, life) = (
            self.kept.until.saturating_sub(self.at.ms()),
            ms(self.at.max_ttl().max(self.pool.family.kept())),
        );
        if is_new || left < 3 * life {
            self.kept.until = self.at.ms().saturating_add(4 * life);
        }
    }

    /// Never shortens. `ticket` is that of an entry that held nothing.
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

/// For tests: the state of the node.
#[cfg(any(test, feature = "test-util"))]
impl Memory {
    /// Every slot that is held at `time`: its pool, number, holder and remaining time.
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

    /// All waiters at `time` with their pools, in order.
    pub(crate) fn waiters(&self, time: u64) -> impl Iterator<Item = (&Pool, &Entry)> {
        self.known(time / 1000)
            .flat_map(|(pool, kept)| kept.line.all().map(move |(_, entry)| (pool, entry)))
    }

    fn known(&self, now: u64) -> impl Iterator<Item = (&Pool, &Kept)> {
        self.0.iter().filter(move |(_, kept)| now <= kept.until)
    }
}

// ---- TAKE: a slot, or a place in the queue

/// Number of other slots to look at when the wanted one is taken. After them it is the next free slot.
const STEPS: u64 = 32;

/// A slot that its holder asks for again.
#[derive(Clone, Copy)]
struct Ours {
    number: u32,
    ticket: u64,
}

/// The arguments of TAKE.
#[derive(Clone, Copy)]
struct Wish<'a> {
    entry: &'a Entry,
    seat: &'a Seat,
    want: Option<u32>,
    ttl: Duration,
}

/// The outcome for the entry that asks.
#[derive(Default)]
struct Came {
    /// Its slot, and the slot's counter.
    mine: Option<(u32, u64)>,
    may_take: bool,
    ticket: u64,
    /// The slot that it gave up.
    left: Option<u32>,
}

impl<'c> Room<'c> {
    fn take(&mut self, wish: Wish<'c>, mint: &mut Mint<'_>) -> Result<Answer, Fault> {
        let (entry, limit) = (wish.entry, wish.seat.limit);
        self.asks = Some(entry);
        self.kept.purge(Some(entry), self.at)?;
        let grown = self.settle(limit)?;
        match self.kept.limit {
            Some(stands) if stands.slots != limit.slots => return Ok(Answer::Conflict(stands)),
            _ => {}
        }
        let ours = self.kept.slot_of(entry, self.at);
        let ours = ours.map(|(number, slot)| Ours {
            number,
            ticket: slot.ticket,
        });
        let came = match ours {
            Some(ours) => self.moved(ours, wish, mint)?,
            None => self.come(wish, mint)?,
        };
        // Each slot that has become free is called out once.
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
        Ok(Answer::Slots(Slots {
            mine: came.mine,
            taken: self.kept.taken(),
            version: self.kept.limit.map_or(0, |limit| limit.version),
            may_take: came.may_take,
            ticket: came.ticket,
            next_free: self.kept.until_free(self.at),
        }))
    }

    /// A holder moves to the slot that it wants, or keeps its own for longer.
    fn moved(&mut self, ours: Ours, wish: Wish<'_>, mint: &mut Mint<'_>) -> Result<Came, Fault> {
        let Ours {
            number: old,
            ticket,
        } = ours;
        let Wish {
            entry,
            seat,
            want,
            ttl,
        } = wish;
        let rules = self.at.rules;
        let moves = seat.mode == Mode::Move && rules.hold(Rule::NumberedSlots);
        let to = want.filter(|want| moves && self.is_free(*want));
        let came = |mine, left| Came {
            mine: Some(mine),
            may_take: true,
            ticket,
            left,
        };
        let Some(to) = to else {
            self.at.may_delete()?; // a full server permits PEXPIRE too
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

    /// A waiter without a slot takes one, if it may and one is free. Otherwise it joins the queue.
    fn come(&mut self, wish: Wish<'_>, mint: &mut Mint<'_>) -> Result<Came, Fault> {
        let Wish {
            entry,
            seat,
            want,
            ttl,
        } = wish;
        let mode = seat.mode;
        self.fall_back(entry, seat)?;
        // Free slots belong to the living waiters in front. Nobody is called for them: the waiter that was called gave
        // it back.
        if !seat.life.is_zero() && self.kept.next_free(0).is_some() {
            self.sweep(entry);
        }
        let stands = self.kept.line.rank(entry);
        let tries = stands.is_none() && seat.life.is_zero();
        // A dead waiter does not block an entry that only tries: `call` removes a waiter that nobody hears.
        if tries
            && self.kept.line.count() > 0
            && let Some(free) = self.kept.next_free(0)
        {
            self.call(free);
        }
        let ticket = match self.kept.line.waiter(entry) {
            Some(waiter) => waiter.ticket,
            None if mode == Mode::Move => seat.ticket,
            // An entry that asks later stands behind, even if its clock is slow.
            None => {
                let behind = |last: u64| last.saturating_add(1).min(MAX_TOKEN);
                seat.ticket.max(self.kept.line.last().map_or(0, behind))
            }
        };
        let rank = match stands {
            Some(rank) => rank,
            // A ticket from another node brings it back to its place.
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
        let ticket = match seat.life.is_zero() {
            true if stands.is_none() => 0,
            true => ticket,
            false => {
                self.register(entry, seat, ticket)?;
                ticket
            }
        };
        Ok(Came {
            may_take,
            ticket,
            ..Came::default()
        })
    }

    /// A waiter that was given a greater ticket on another node gets that ticket here, so that the order is the same on
    /// all nodes. Otherwise each waiter might be in front on a few nodes, and none on a majority.
    fn fall_back(&mut self, entry: &Entry, seat: &Seat) -> Result<(), Fault> {
        let waiter = self.kept.line.waiter(entry);
        if seat.mode == Mode::Pick
            || seat.life.is_zero()
            || !self.at.rules.hold(Rule::SameTicket)
            || waiter.is_none_or(|waiter| waiter.ticket >= seat.ticket)
        {
            return Ok(());
        }
        let rank = self.kept.line.rank(entry);
        self.register(entry, seat, seat.ticket)?;
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

    /// Each entry steps in its own way. If all took the next slot, they would crowd behind full ones.
    fn pick(&self, want: u32) -> Option<u32> {
        let (limit, draw) = (u64::from(self.kept.count()), u64::from(want));
        let first = draw.checked_rem(limit)?;
        let step = 1 + draw / limit % (limit - 1).max(1);
        let way = |i| u32::try_from((first + i * step) % limit).ok();
        let free = (0..=STEPS).filter_map(way).find(|slot| self.is_free(*slot));
        let next = || self.kept.next_free(way(STEPS)?);
        free.or_else(next).or_else(|| self.kept.next_free(0))
    }

    /// Gives a free slot to the entry.
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

// ---- Waiters are told which slots are free

/// Number of waiters that are read together.
const TOGETHER: usize = 17;
/// Number of waiters at the front of the queue that `sweep` checks.
const SWEPT: usize = 64;

impl Room<'_> {
    /// A slot is free: calls the first waiter in the gate that has not been called yet.
    fn call(&mut self, slot: u32) {
        // A slot that became free above the limit makes room below it.
        let free = match self.kept.limit {
            Some(limit) if slot >= limit.slots => self.kept.next_free(0),
            _ => Some(slot),
        };
        let Some(slot) = free else { return };
        let mut passed = 0;
        while passed < self.kept.gate() {
            let all = self.kept.line.all().skip(passed).take(TOGETHER);
            let some: Vec<Entry> = all.map(|(_, entry)| entry.clone()).collect();
            if some.is_empty() {
                return;
            }
            for (place, entry) in some.iter().enumerate() {
                if passed == self.kept.gate() {
                    return;
                }
                match self.call_one(entry, slot) {
                    Called::Told(waiter) => {
                        return self.tell_next(some.iter().skip(place + 1), &waiter);
                    }
                    Called::Done => return,
                    Called::Passed => passed += 1,
                    Called::Dropped => {}
                }
            }
        }
    }

    /// Removes waiters in the gate, among the first 64, that were called and have not come, or were not heard of for
    /// too long.
    fn sweep(&mut self, asks: &Entry) {
        let now = self.at.ms();
        let all = self.kept.line.all().take(self.kept.gate().min(SWEPT));
        let gone = all.filter(|(_, entry)| {
            let waiter = self.kept.line.waiter(entry);
            entry != asks && waiter.is_some_and(|waiter| waiter.is_gone(now))
        });
        let gone: Vec<Entry> = gone.map(|(_, entry)| entry.clone()).collect();
        for entry in gone {
            if self.at.may_delete().is_ok() {
                self.kept.line.remove(&entry);
                self.has_swept = true;
            }
        }
    }

    /// Calls out new slots, but no more of them than the gate has waiters.
    fn call_new(&mut self, slots: Range<u32>) {
        let free = slots.filter(|slot| self.kept.slot(*slot).is_none());
        let free: Vec<u32> = free.take(self.kept.gate()).collect();
        free.into_iter().for_each(|slot| self.call(slot));
    }

    /// Takes the entry out of the queue. The waiter that enters the gate by that is told. Returns true if the entry was
    /// in the gate.
    fn leave(&mut self, entry: &Entry) -> bool {
        let gate = self.kept.gate();
        let rank = self.kept.line.rank(entry);
        self.kept.line.remove(entry);
        let was_in_it = rank.is_some_and(|rank| rank < gate);
        if self.at.admitted && was_in_it {
            self.tell_the_last(gate);
        }
        was_in_it
    }

    /// Tells the waiter that has entered the gate.
    fn tell_the_last(&mut self, gate: usize) {
        let Some((_, entered)) = self.kept.line.all().nth(gate - 1).cloned() else {
            return;
        };
        let says = match self.kept.next_free(0) {
            Some(slot) => Says::Free { slot },
            None => Says::Called,
        };
        if let Some(waiter) = self.kept.line.waiter(&entered).cloned() {
            self.publish(&entered, &waiter, says);
        }
    }

    fn call_one(&mut self, entry: &Entry, slot: u32) -> Called {
        let now = self.at.ms();
        if self.asks == Some(entry) {
            return match std::mem::replace(&mut self.is_told, true) {
                true => Called::Passed,
                false => Called::Done,
            };
        }
        let Some(waiter) = self.kept.line.waiter(entry).cloned() else {
            return Called::Passed;
        };
        if !waiter.is_gone(now) {
            // A waiter that was called has to come within S, and one without a channel asks by itself.
            if waiter.called.is_some() || waiter.channel.is_empty() {
                return Called::Passed;
            }
            if self.publish(entry, &waiter, Says::Free { slot }) {
                if self.at.may_write().is_err() {
                    return Called::Done;
                }
                self.kept.line.call(entry, now);
                return Called::Told(waiter);
            }
        }
        if self.at.may_delete().is_err() {
            return Called::Done;
        }
        self.kept.line.remove(entry);
        Called::Dropped
    }

    /// Tells a waiter behind the called one when to ask: the first of another process that hears it. The called waiter
    /// may have vanished with its whole process.
    fn tell_next<'e>(&self, behind: impl Iterator<Item = &'e Entry>, called: &Waiter) {
        if !self.at.rules.hold(Rule::NextIsTold) {
            return;
        }
        let after = Duration::from_millis(called.term);
        for entry in behind {
            let waiter = self.kept.line.waiter(entry);
            let others = waiter.filter(|waiter| waiter.channel != called.channel);
            if others.is_some_and(|waiter| self.publish(entry, waiter, Says::Next { after })) {
                return;
            }
        }
    }

    /// Returns true if a connection hears it.
    fn publish(&self, entry: &Entry, waiter: &Waiter, says: Says) -> bool {
        let entry = entry.clone();
        !waiter.channel.is_empty() && self.at.air.publish(&waiter.channel, Push { entry, says })
    }
}

/// The outcome for a waiter in the gate when a slot is free.
enum Called {
    /// It is called.
    Told(Waiter),
    /// Its answer tells it, or something failed.
    Done,
    /// It was called before, or asks by itself.
    Passed,
    /// Nobody hears it.
    Dropped,
}

#[cfg(test)]
mod tests;
