//! What an in-process node does with the commands about a lock: the executable meaning of the Lua in
//! this folder.

mod line;
mod lock;

use std::{collections::BTreeMap, time::Duration};

use self::lock::{Came, Lock};
use super::{Command, Reply, lines::Lines};
use crate::{
    base::{name::Name, owner::Entry, rules::Rule},
    node::{
        fault::Fault,
        kinds::{
            counters::{Counted, Counters, MAX_TOKEN, Mint, exhausted, larger},
            moment::Moment,
        },
        wire::ms,
    },
};

/// An inspection names so many of those who wait.
const SHOWN: usize = 100;

/// All locks of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    locks: BTreeMap<Name, Lock>,
    lines: Lines,
    /// Names that were evicted, and the last ms of TIME in which none of their leases is repaired.
    evicted: BTreeMap<Name, u64>,
}

impl Memory {
    /// Obeys one command.
    pub(crate) fn apply(
        &mut self,
        command: &Command,
        counters: &mut Counters,
        at: Moment,
    ) -> Result<Reply, Fault> {
        match command {
            Command::Acquire {
                name,
                entry,
                ttl,
                floor,
                max_ttl,
            } => {
                let mint = &mut Mint::new(*floor, *max_ttl, counters, at);
                self.acquire(name, entry, *ttl, mint, at)
            }
            Command::Raise {
                name,
                entry,
                seq,
                token,
                max_ttl,
            } => {
                if !self.is_held_by(name, entry, *seq, at.time) {
                    return Ok(Reply::Lost);
                }
                let raised = counters.raise(&counted(name), *token, *max_ttl, at)?;
                Ok(Reply::Raised(raised))
            }
            Command::Extend { name, entry, ttl } => self.extend(name, entry, *ttl, at),
            Command::Repair {
                name,
                entry,
                ttl,
                token,
                max_ttl,
            } => {
                let bring = || counters.bring_to(&counted(name), *token, *max_ttl, at);
                self.repair(name, entry, *ttl, bring, at)
            }
            Command::Join {
                name,
                place,
                only_last,
                ttl,
                floor,
                max_ttl,
            } => {
                let mint = &mut Mint::new(*floor, *max_ttl, counters, at);
                self.join(name, (place, *only_last), *ttl, mint, at)
            }
            Command::Yield {
                name,
                place,
                floor,
                max_ttl,
            } => {
                let mint = &mut Mint::new(*floor, *max_ttl, counters, at);
                self.give_back(name, place, mint, at)
            }
            Command::Release {
                name,
                entry,
                floor,
                max_ttl,
            } => {
                let mint = &mut Mint::new(*floor, *max_ttl, counters, at);
                self.release(name, entry, mint, at)
            }
            Command::Inspect { name } => Ok(self.inspect(name, counters, at)),
            Command::Evict { name, max_ttl } => self.evict(name, *max_ttl, at),
        }
    }

    /// Every lock that is held at `time`: name, entry, remaining time.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn locks(&self, time: u64) -> impl Iterator<Item = (&Name, &Entry, Duration)> {
        self.locks
            .iter()
            .filter(move |(_, lock)| lock.lives(time))
            .map(move |(name, lock)| (name, &lock.entry, lock.left(time)))
    }

    /// For tests: who waits for what at `time`.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn waiters(&self, time: u64) -> impl Iterator<Item = (&Name, &Entry)> {
        let names = self.lines.names(time / 1000);
        names.flat_map(move |name| self.waiters_of(name, time).map(move |entry| (name, entry)))
    }

    /// For tests: who waits for this one at `time`, in order.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn waiters_of(&self, name: &Name, time: u64) -> impl Iterator<Item = &Entry> {
        let now = time / 1000;
        let all = self.lines.all(name, now).map(|(_, entry)| entry);
        all.filter(move |_| self.lines.stand(now))
    }

    /// For tests: who holds this one at `time`.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn holder(&self, name: &Name, time: u64) -> Option<&Entry> {
        self.live(name, time).map(|lock| &lock.entry)
    }

    fn acquire(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<Reply, Fault> {
        if let Some(held) = self.behind(name, mint, at) {
            return Ok(held);
        }
        let counted = &counted(name);
        let counter = mint.counters.read(counted, at);
        let token = larger(counter.saturating_add(1), mint.floor, at.rules);
        let held = self.refusal(name, mint.counters, at);
        if token <= MAX_TOKEN {
            // SET is refused before the server looks whether the key is there.
            at.may_write()?;
        } else if held.is_none() {
            return exhausted();
        }
        if let Some(held) = held {
            return Ok(held);
        }
        self.hold(name, entry, Came::PLAIN, ttl, at.time);
        mint.counters.begin(at);
        mint.counters.write(counted, token, at);
        Ok(Reply::Granted(token))
    }

    /// Who holds it, to another who would take it.
    pub(in crate::node::kinds) fn refusal(
        &self,
        name: &Name,
        counters: &Counters,
        at: Moment,
    ) -> Option<Reply> {
        let lock = self.live(name, at.time)?;
        Some(Reply::Held {
            remaining: Some(lock.left(at.time)),
            counter: counters.read(&counted(name), at),
            holder: Some(lock.entry.text()),
            ticket: lock.came.ticket,
        })
    }

    pub(in crate::node::kinds) fn extend(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        at: Moment,
    ) -> Result<Reply, Fault> {
        let (left, came) = match self.live(name, at.time) {
            Some(lock) if lock.entry == *entry => (lock.left(at.time), lock.came),
            None if !at.rules.hold(Rule::NeverRecreate) => (Duration::ZERO, Came::PLAIN),
            _ => return Ok(Reply::Lost),
        };
        at.may_delete()?; // PEXPIRE too is allowed to a full server
        if ttl > left || !at.rules.hold(Rule::NeverShorten) {
            self.hold(name, entry, came, ttl, at.time);
        }
        Ok(Reply::Extended)
    }

    /// `bring`: brings the counter up to the token; whether it was less.
    fn repair(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        bring: impl FnOnce() -> Result<bool, Fault>,
        at: Moment,
    ) -> Result<Reply, Fault> {
        let evicted = self.is_evicted(name, at);
        let ours = self.is_held_by(name, entry, 0, at.time);
        let (left, came) = match self.live(name, at.time) {
            _ if evicted => return Ok(Reply::Repaired(false)),
            Some(_) if !ours => {
                self.stand_first(name, entry, ttl, at)?;
                return Ok(Reply::Repaired(false));
            }
            Some(lock) => (lock.left(at.time), lock.came),
            None => (Duration::ZERO, Came::PLAIN),
        };
        if bring()? {
            // That write was the first.
        } else if ours {
            at.may_delete()?; // PEXPIRE too is allowed to a full server
        } else {
            at.may_write()?;
        }
        self.hold(name, entry, came, ttl.max(left), at.time);
        self.lines.remove(name, entry);
        Ok(Reply::Repaired(true))
    }

    /// `mint` is for who gets the lock next.
    fn release(
        &mut self,
        name: &Name,
        entry: &Entry,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<Reply, Fault> {
        let held = self.free(name, entry, at)?;
        self.leave(name, entry, mint, at)?;
        match at.admitted {
            true => Ok(Reply::Released(held)),
            false => Ok(Reply::ReleasedUnadmitted),
        }
    }

    /// Deletes it, if it is ours. Whether it was.
    pub(in crate::node::kinds) fn free(
        &mut self,
        name: &Name,
        entry: &Entry,
        at: Moment,
    ) -> Result<bool, Fault> {
        if !at.rules.hold(Rule::DeleteFirst) {
            at.may_write()?;
        }
        let held = self.is_held_by(name, entry, 0, at.time);
        if held {
            at.may_delete()?;
            self.locks.remove(name);
        }
        Ok(held)
    }

    fn inspect(&self, name: &Name, counters: &Counters, at: Moment) -> Reply {
        let holder = self.live(name, at.time);
        let line = self.lines.all(name, at.ms()).take(SHOWN);
        Reply::Inspected {
            holder: holder.map(|lock| (lock.entry.as_str().to_owned(), Some(lock.left(at.time)))),
            counter: counters.read(&counted(name), at),
            line: line
                .map(|(ticket, entry)| {
                    let waited = Duration::from_micros(at.time.saturating_sub(*ticket));
                    (entry.as_str().to_owned(), waited)
                })
                .collect(),
            waiting: self.lines.count(name, at.ms()),
        }
    }

    fn evict(&mut self, name: &Name, max_ttl: Duration, at: Moment) -> Result<Reply, Fault> {
        at.may_delete()?;
        let holder = self.live(name, at.time).map(|lock| lock.entry.text());
        self.locks.remove(name);
        if at.rules.hold(Rule::EvictionLasts) {
            let now = at.time / 1000;
            self.evicted.retain(|_, until| now <= *until);
            let until = now.saturating_add(ms(max_ttl * 2));
            self.evicted.insert(name.clone(), until);
        }
        Ok(Reply::Evicted {
            held: holder.is_some(),
            holder,
        })
    }

    fn live(&self, name: &Name, time: u64) -> Option<&Lock> {
        self.locks.get(name).filter(|lock| lock.lives(time))
    }

    /// By anybody.
    pub(in crate::node::kinds) fn is_held(&self, name: &Name, at: Moment) -> bool {
        self.live(name, at.time).is_some()
    }

    pub(in crate::node::kinds) fn is_evicted(&self, name: &Name, at: Moment) -> bool {
        let evicted = self.evicted.get(name);
        evicted.is_some_and(|until| at.ms() <= *until)
    }

    /// `seq`: by this request through the line; 0: in any way.
    pub(in crate::node::kinds) fn is_held_by(
        &self,
        name: &Name,
        entry: &Entry,
        seq: u64,
        time: u64,
    ) -> bool {
        let lock = self.live(name, time);
        lock.is_some_and(|lock| lock.entry == *entry && (seq == 0 || lock.came.seq == seq))
    }

    /// Not through the line.
    pub(in crate::node::kinds) fn put(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        at: Moment,
    ) {
        self.hold(name, entry, Came::PLAIN, ttl, at.time);
    }

    fn hold(&mut self, name: &Name, entry: &Entry, came: Came, ttl: Duration, time: u64) {
        let lock = Lock {
            entry: entry.clone(),
            came,
            until: (time / 1000).saturating_add(ms(ttl)),
        };
        self.locks.insert(name.clone(), lock);
    }

    /// Never shortens. By which request the holder came to it.
    pub(in crate::node::kinds) fn prolong(&mut self, name: &Name, ttl: Duration, time: u64) -> u64 {
        let until = (time / 1000).saturating_add(ms(ttl));
        self.locks.get_mut(name).map_or(0, |lock| {
            lock.until = lock.until.max(until);
            lock.came.seq
        })
    }
}

fn counted(name: &Name) -> Counted {
    Counted::Mutex(name.clone())
}

#[cfg(test)]
mod tests;
