//! What an in-process node does with the commands about a lock: the executable meaning of the Lua in
//! this folder.

mod line;
mod lock;

use std::{collections::BTreeMap, time::Duration};

use self::lock::{Came, Lock};
use super::{
    Command, Reply,
    counters::{Counters, MAX_TOKEN, larger},
    lines::Lines,
};
use crate::{
    name::Name,
    node::{fault::Fault, kinds::moment::Moment, wire::ms},
    owner::Entry,
    rules::Rule,
};

/// A RAISE may go this much further than an ACQUIRE.
const MINUTE_US: u64 = 60_000_000;
/// An inspection names so many of those who wait.
const SHOWN: usize = 100;

/// All locks of a node, and their counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    locks: BTreeMap<Name, Lock>,
    lines: Lines,
    /// Names that were evicted, and the last ms of TIME in which none of their leases is repaired.
    evicted: BTreeMap<Name, u64>,
    counters: Counters,
}

impl Memory {
    /// Obeys one command.
    pub(crate) fn apply(&mut self, command: &Command, at: Moment) -> Result<Reply, Fault> {
        match command {
            Command::Acquire {
                name,
                entry,
                ttl,
                floor,
                max_ttl,
            } => {
                let floor = self.capped(*floor, *max_ttl, at);
                self.acquire(name, entry, *ttl, floor, at)
            }
            Command::Raise {
                name,
                entry,
                seq,
                token,
                max_ttl,
            } => {
                let cap = ahead(at, *max_ttl).saturating_add(MINUTE_US);
                self.raise(name, entry, *seq, (*token).min(cap), at)
            }
            Command::Extend { name, entry, ttl } => self.extend(name, entry, *ttl, at),
            Command::Repair {
                name,
                entry,
                ttl,
                token,
                max_ttl,
            } => {
                let cap = ahead(at, *max_ttl).saturating_add(MINUTE_US);
                self.repair(name, entry, *ttl, (*token, cap), at)
            }
            Command::Join {
                name,
                place,
                ttl,
                floor,
                max_ttl,
            } => {
                let floor = self.capped(*floor, *max_ttl, at);
                self.join(name, place, *ttl, floor, at)
            }
            Command::Yield {
                name,
                place,
                floor,
                max_ttl,
            } => {
                let floor = self.capped(*floor, *max_ttl, at);
                self.give_back(name, place, floor, at)
            }
            Command::Release {
                name,
                entry,
                floor,
                max_ttl,
            } => {
                let floor = self.capped(*floor, *max_ttl, at);
                self.release(name, entry, floor, at)
            }
            Command::Inspect { name } => Ok(self.inspect(name, at)),
            Command::Evict { name, max_ttl } => self.evict(name, *max_ttl, at),
        }
    }

    /// Whether any token was given out.
    pub(crate) fn is_used(&self) -> bool {
        self.counters.generations().next().is_some()
    }

    /// A lock that has a counter. A server names any of them. The first: a seed replays what is told too.
    pub(crate) fn one_counted(&self) -> Option<&Name> {
        self.counters
            .generations()
            .find_map(|generation| generation.names().min())
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

    /// For tests: as an operator writes them.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    fn capped(&self, floor: u64, max_ttl: Duration, at: Moment) -> u64 {
        match ahead(at, max_ttl) {
            cap if floor <= cap => floor,
            cap if at.rules.hold(Rule::ProposalCapped) => cap,
            _ => 0,
        }
    }

    fn acquire(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        floor: u64,
        at: Moment,
    ) -> Result<Reply, Fault> {
        if let Some(held) = self.behind(name, floor, at) {
            return Ok(held);
        }
        let counter = self.counters.read(name, at);
        let token = larger(counter.saturating_add(1), floor, at.rules);
        let holder = self.live(name, at.time);
        if token <= MAX_TOKEN {
            // SET is refused before the server looks whether the key is there.
            at.may_write()?;
        } else if holder.is_none() {
            return exhausted();
        }
        if let Some(lock) = holder {
            return Ok(Reply::Held {
                remaining: Some(lock.left(at.time)),
                counter,
                holder: Some(lock.entry.text()),
                ticket: lock.came.ticket,
            });
        }
        self.hold(name, entry, Came::PLAIN, ttl, at.time);
        self.counters.begin(at);
        self.counters.write(name, token, at);
        Ok(Reply::Granted(token))
    }

    /// The next token, where who gets it does not ask for it itself.
    fn mint(&mut self, name: &Name, floor: u64, at: Moment) -> Result<u64, Fault> {
        let counter = self.counters.read(name, at);
        let token = larger(counter.saturating_add(1), floor, at.rules);
        if token > MAX_TOKEN {
            return exhausted();
        }
        // Old counters are unlinked first, which is allowed to a full server.
        match self.counters.are_old(at) {
            true => at.may_delete()?,
            false => at.may_write()?,
        }
        self.counters.begin(at);
        self.counters.write(name, token, at);
        Ok(token)
    }

    fn raise(
        &mut self,
        name: &Name,
        entry: &Entry,
        seq: u64,
        token: u64,
        at: Moment,
    ) -> Result<Reply, Fault> {
        if !self.is_held_by(name, entry, seq, at.time) {
            return Ok(Reply::Lost);
        }
        let counter = self.counters.read(name, at);
        let raised = larger(counter, token, at.rules);
        if raised != counter {
            at.may_write()?;
            self.counters.write(name, raised, at);
        }
        Ok(Reply::Raised(raised))
    }

    fn extend(
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

    /// `cap`: where the counter may be brought at most.
    fn repair(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        (token, cap): (u64, u64),
        at: Moment,
    ) -> Result<Reply, Fault> {
        let evicted = self.evicted.get(name);
        let evicted = evicted.is_some_and(|until| at.time / 1000 <= *until);
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
        let counter = self.counters.read(name, at);
        let raised = larger(counter, token, at.rules);
        if raised != counter {
            if token > cap {
                return Err(Fault::Error(
                    "AHEAD the token is further ahead than a counter may be".into(),
                ));
            }
            at.may_write()?;
            self.counters.write(name, raised, at);
        } else if ours {
            at.may_delete()?; // PEXPIRE too is allowed to a full server
        } else {
            at.may_write()?;
        }
        self.hold(name, entry, came, ttl.max(left), at.time);
        self.lines.remove(name, entry);
        Ok(Reply::Repaired(true))
    }

    /// `floor` is for who gets the lock next.
    fn release(
        &mut self,
        name: &Name,
        entry: &Entry,
        floor: u64,
        at: Moment,
    ) -> Result<Reply, Fault> {
        if !at.rules.hold(Rule::DeleteFirst) {
            at.may_write()?;
        }
        let held = self.is_held_by(name, entry, 0, at.time);
        if held {
            at.may_delete()?;
            self.locks.remove(name);
        }
        self.leave(name, entry, floor, at)?;
        match at.admitted {
            true => Ok(Reply::Released(held)),
            false => Ok(Reply::ReleasedUnadmitted),
        }
    }

    fn inspect(&self, name: &Name, at: Moment) -> Reply {
        let holder = self.live(name, at.time);
        let line = self.lines.all(name, at.ms()).take(SHOWN);
        Reply::Inspected {
            holder: holder.map(|lock| (lock.entry.as_str().to_owned(), Some(lock.left(at.time)))),
            counter: self.counters.read(name, at),
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

    /// `seq`: by this request through the line; 0: in any way.
    fn is_held_by(&self, name: &Name, entry: &Entry, seq: u64, time: u64) -> bool {
        let lock = self.live(name, time);
        lock.is_some_and(|lock| lock.entry == *entry && (seq == 0 || lock.came.seq == seq))
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
    fn prolong(&mut self, name: &Name, ttl: Duration, time: u64) -> u64 {
        let until = (time / 1000).saturating_add(ms(ttl));
        self.locks.get_mut(name).map_or(0, |lock| {
            lock.until = lock.until.max(until);
            lock.came.seq
        })
    }
}

fn exhausted<T>() -> Result<T, Fault> {
    Err(Fault::Error("EXHAUSTED the counter is at 2^53 - 1".into()))
}

/// Where an ACQUIRE may bring a counter at most.
fn ahead(at: Moment, max_ttl: Duration) -> u64 {
    let ahead = ms(max_ttl).saturating_mul(1000);
    at.time.saturating_add(ahead)
}

#[cfg(test)]
mod tests;
