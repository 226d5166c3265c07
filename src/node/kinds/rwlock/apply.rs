//! Read-write locks of an in-process node: the executable meaning of the Lua in this folder.

mod lock;

use std::{collections::BTreeMap, time::Duration};

use self::lock::Lock;
use crate::{
    base::{name::Name, owner::Entry, rules::Rule},
    node::{
        answer::{Answer, RwlockInspection},
        fault::Fault,
        kinds::{
            counters::{Counted, Counters, Mint},
            moment::Moment,
        },
        request::{Release, Request, Side, Verb, Waiter},
        wire::ms,
    },
};

/// How many readers, and how many waiters, an inspection names.
const SHOWN: usize = 100;
/// How many holders an eviction names.
const NAMED: usize = 16;

/// All read-write locks of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    locks: BTreeMap<Name, Lock>,
    /// Evicted names, with the last ms of TIME in which none of their leases is repaired.
    evicted: BTreeMap<Name, u64>,
}

/// One side of a lock, and its holder.
#[derive(Clone, Copy)]
struct Hold<'a> {
    name: &'a Name,
    entry: &'a Entry,
    side: Side,
}

impl Memory {
    /// Executes a request for one side of a read-write lock.
    pub(crate) fn obey(
        &mut self,
        name: &Name,
        side: Side,
        request: &Request,
        counters: &mut Counters,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let entry = &request.entry;
        let hold = Hold { name, entry, side };
        let answer = match &request.verb {
            Verb::Acquire { ttl, floor, wait } => {
                let mint = &mut Mint::new(*floor, counters, at);
                match side {
                    Side::Reader => self.read(hold, *ttl, mint, wait.waiter(), at),
                    Side::Writer => self.write(hold, *ttl, mint, wait.waiter(), at),
                }
            }
            Verb::Yield { .. } => self.release(name, entry, &Release::default(), at),
            Verb::Raise { token, .. } => self.raise(hold, *token, counters, at),
            Verb::Extend { ttl, window } => self.extend(hold, *ttl, *window, at),
            Verb::Repair { ttl, token } => {
                let bring = || counters.bring_to(&counted(name), *token, at);
                self.repair(hold, *ttl, bring, at)
            }
            Verb::Release(release) => self.release(name, entry, release, at),
        };
        self.forget(name, at);
        answer
    }

    /// Removes the lock if nothing of it is left.
    fn forget(&mut self, name: &Name, at: Moment) {
        if self.lock(name).is_over(at.ms()) {
            self.locks.remove(name);
        }
    }

    /// For tests: all holders at `time`, with the lock and the side that they have.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn holders(&self, time: u64) -> impl Iterator<Item = (&Name, &Entry, Side)> {
        let now = time / 1000;
        self.locks.iter().flat_map(move |(name, lock)| {
            let writer = lock
                .writer(now)
                .map(|(entry, _)| (name, entry, Side::Writer));
            let readers = lock
                .readers(now)
                .map(move |entry| (name, entry, Side::Reader));
            writer.into_iter().chain(readers)
        })
    }

    /// For tests: the locks of which anything is left at `time`.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn left(&self, time: u64) -> impl Iterator<Item = &Name> {
        let locks = self.locks.iter();
        let left = locks.filter(move |(_, lock)| !lock.is_over(time / 1000));
        left.map(|(name, _)| name)
    }

    fn read(
        &mut self,
        hold: Hold<'_>,
        ttl: Duration,
        mint: &mut Mint<'_>,
        waiter: Option<&Waiter>,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let Hold { name, entry, .. } = hold;
        let (now, counted) = (at.ms(), &counted(name));
        let counter = mint.counters.read(counted, at);
        let lock = self.lock(name);
        if !lock.is_read_by(entry, now)
            && let Some((left, against)) = lock.against_a_reader(now)
        {
            if let Some(waiter) = waiter
                && at.may_write().is_ok()
            {
                lock.refuse(now, ms(waiter.life));
                lock.will_tell(now, waiter);
            }
            return Ok(held(left, counter, against));
        }
        let counter = match counter {
            0 => mint.token(counted, at)?,
            counter => counter,
        };
        at.may_write()?;
        let until = now.saturating_add(ms(ttl));
        self.lock(name).let_read(entry, until, at);
        Ok(Answer::Granted(counter))
    }

    fn write(
        &mut self,
        hold: Hold<'_>,
        ttl: Duration,
        mint: &mut Mint<'_>,
        waiter: Option<&Waiter>,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let Hold { name, entry, .. } = hold;
        let (now, counted) = (at.ms(), &counted(name));
        let counter = mint.counters.read(counted, at);
        let lock = self.lock(name);
        if lock.is_written_by(entry, now) {
            return Ok(Answer::Granted(counter));
        }
        if let Some((left, against)) = lock.against_a_writer(now) {
            if let Some(waiter) = waiter {
                at.may_write()?;
                if at.rules.hold(Rule::WriterIntent) {
                    lock.intends(waiter, now);
                }
                lock.will_tell(now, waiter);
            }
            return Ok(held(left, counter, against));
        }
        let token = mint.token(counted, at)?;
        self.lock(name)
            .let_write(entry, now.saturating_add(ms(ttl)));
        Ok(Answer::Granted(token))
    }

    fn raise(
        &mut self,
        hold: Hold<'_>,
        token: u64,
        counters: &mut Counters,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let Hold { name, entry, .. } = hold;
        let lock = self.lock(name);
        if !lock.is_written_by(entry, at.ms()) && !lock.is_read_by(entry, at.ms()) {
            return Ok(Answer::Lost);
        }
        let raised = counters.raise(&counted(name), token, at)?;
        Ok(Answer::Raised(raised))
    }

    fn extend(
        &mut self,
        hold: Hold<'_>,
        ttl: Duration,
        window: Duration,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let Hold { name, entry, side } = hold;
        let (now, lock) = (at.ms(), self.lock(name));
        let (writes, until) = (lock.is_written_by(entry, now), now.saturating_add(ms(ttl)));
        match side {
            Side::Writer if writes => {
                at.may_delete()?; // a full server permits PEXPIRE too
                lock.let_write(entry, until);
            }
            Side::Reader if writes => {
                at.may_delete()?;
                lock.step_down(until, at);
                lock.let_in(ms(window), at);
                lock.tell(now, at.air);
                if !lock.is_read_by(entry, now) {
                    return Ok(Answer::Lost);
                }
            }
            Side::Reader if lock.is_read_by(entry, now) => {
                at.may_delete()?;
                lock.let_read(entry, until, at);
            }
            Side::Reader | Side::Writer => return Ok(Answer::Lost),
        }
        Ok(Answer::Extended)
    }

    /// `bring` brings the counter up to the token.
    fn repair(
        &mut self,
        hold: Hold<'_>,
        ttl: Duration,
        bring: impl FnOnce() -> Result<bool, Fault>,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let Hold { name, entry, side } = hold;
        let now = at.ms();
        let evicted = self.evicted.get(name).is_some_and(|until| now <= *until);
        let lock = self.lock(name);
        let ours = lock.is_written_by(entry, now);
        let others = lock.writer(now).is_some() && !ours;
        let read = side == Side::Writer && lock.readers(now).next().is_some();
        let is_alone = !others && !read || !at.rules.hold(Rule::RepairAlone);
        if evicted || !is_alone {
            return Ok(Answer::Repaired(false));
        }
        bring()?;
        match ours {
            // This stands for PEXPIRE or DEL. A full server permits it, and then every write after it.
            true => at.may_delete()?,
            false => at.may_write()?,
        }
        let until = now.saturating_add(ms(ttl));
        match side {
            Side::Writer => lock.let_write(entry, until),
            Side::Reader if ours => {
                lock.step_down(until, at);
                lock.tell(now, at.air);
            }
            Side::Reader => lock.let_read(entry, until, at),
        }
        Ok(Answer::Repaired(true))
    }

    fn release(
        &mut self,
        name: &Name,
        entry: &Entry,
        release: &Release,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let Release { window, waited, .. } = release;
        let (now, lock) = (at.ms(), self.lock(name));
        // After an attempt that was not won nobody is told. A waiter that is told asks at once, and would tell others
        // when its own attempt fails.
        let held = !window.is_zero();
        let (mut freed, mut tells) = (false, false);
        if lock.is_written_by(entry, now) {
            at.may_delete()?;
            (freed, tells) = (true, held);
            lock.leave(entry);
            if at.admitted {
                lock.let_in(ms(*window), at);
            }
        } else if lock.is_read_by(entry, now) {
            at.may_delete()?;
            lock.leave(entry);
            (freed, tells) = (true, held && lock.readers(now).next().is_none());
        }
        let known = |waited: &&Entry| lock.waiters(now).any(|other| other == *waited);
        if let Some(waited) = waited.as_ref().filter(known) {
            at.may_delete()?;
            lock.intends_no_more(waited);
            tells |= lock.waiters(now).next().is_none() && lock.writer(now).is_none();
        }
        if tells && at.admitted {
            lock.tell(now, at.air);
        }
        Ok(match at.admitted {
            true => Answer::Released(freed),
            false => Answer::ReleasedUnadmitted,
        })
    }

    pub(crate) fn inspect(&mut self, name: &Name, counters: &Counters, at: Moment) -> Answer {
        let answer = self.inspection(name, counters, at);
        self.forget(name, at);
        answer
    }

    fn inspection(&mut self, name: &Name, counters: &Counters, at: Moment) -> Answer {
        let (now, lock) = (at.ms(), self.lock(name));
        let left = |until: u64| Duration::from_millis(until.saturating_sub(now));
        let told = |(until, entry): (u64, &Entry)| (entry.as_str().to_owned(), left(until));
        let (readers, waiters) = (lock.readers_by_end(now), lock.waiters_by_end(now));
        Answer::InspectedRwlock(Box::new(RwlockInspection {
            writer: lock
                .writer(now)
                .map(|(entry, until)| (entry.as_str().to_owned(), Some(left(until)))),
            reading: readers.len() as u64,
            readers: readers.into_iter().take(SHOWN).map(told).collect(),
            waiting: waiters.len() as u64,
            waiters: waiters.into_iter().take(SHOWN).map(told).collect(),
            counter: counters.read(&counted(name), at),
        }))
    }

    pub(crate) fn evict(&mut self, name: &Name, at: Moment) -> Result<Answer, Fault> {
        at.may_delete()?;
        let now = at.ms();
        let lock = self.lock(name);
        let readers = lock.readers_by_end(now).into_iter();
        let readers = readers.map(|(_, entry)| entry.text());
        let writer = lock.writer(now).map(|(entry, _)| entry.text());
        let mut holders: Vec<_> = writer.into_iter().chain(readers).collect();
        let held = !holders.is_empty();
        holders.truncate(NAMED);
        lock.tell(now, at.air);
        self.locks.remove(name);
        self.evicted.retain(|_, until| now <= *until);
        let until = now.saturating_add(ms(at.max_ttl() * 2));
        self.evicted.insert(name.clone(), until);
        Ok(Answer::Evicted { held, holders })
    }

    fn lock(&mut self, name: &Name) -> &mut Lock {
        self.locks.entry(name.clone()).or_default()
    }
}

fn held(left: u64, counter: u64, against: Option<Entry>) -> Answer {
    Answer::Held {
        which: None,
        ticket: 0,
        remaining: Some(Duration::from_millis(left)),
        counter,
        holder: against.map(|entry| entry.text()),
    }
}

fn counted(name: &Name) -> Counted {
    Counted::Rwlock(name.clone())
}
