//! Mutexes of an in-process node: the executable meaning of the Lua in this folder.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    base::{
        name::{Name, Names},
        owner::Entry,
        rules::Rule,
    },
    node::{
        answer::{Ahead, Answer, MutexInspection},
        fault::Fault,
        kinds::{
            counters::{Counted, Counters, MAX_TOKEN, Mint, exhausted, larger},
            moment::{Command, Moment},
            mutex::{
                lines::{Lines, Waiter},
                several,
            },
        },
        push::{Push, Says},
        request::{Place, Request, Verb},
        wire::ms,
    },
};

/// How many waiters an inspection names.
const SHOWN: usize = 100;

/// All locks of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    locks: BTreeMap<Name, Lock>,
    lines: Lines,
    /// Evicted names, with the last ms of TIME in which none of their leases is repaired.
    evicted: BTreeMap<Name, u64>,
}

impl Memory {
    /// Executes a request for the mutexes of these names.
    pub(crate) fn obey(
        &mut self,
        names: &Names,
        request: &Request,
        counters: &mut Counters,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let entry = &request.entry;
        let Some(name) = names.one() else {
            return several::apply(names.all(), request, self, counters, at);
        };
        match &request.verb {
            Verb::Acquire { ttl, floor, wait } => {
                let mint = &mut Mint::new(*floor, counters, at);
                match wait.place() {
                    None => self.acquire(name, entry, *ttl, mint, at),
                    Some(place) => {
                        let join = Join {
                            name,
                            entry,
                            place,
                            ttl: *ttl,
                        };
                        self.join(join, mint, at)
                    }
                }
            }
            Verb::Yield { floor, wait } => {
                let mint = &mut Mint::new(*floor, counters, at);
                match wait.place() {
                    Some(place) => self.give_back(name, entry, place, mint, at),
                    None => self.release(name, entry, mint, at),
                }
            }
            Verb::Raise { seq, token } => {
                if !self.is_held_by(name, entry, *seq, at.time) {
                    return Ok(Answer::Lost);
                }
                let raised = counters.raise(&counted(name), *token, at)?;
                Ok(Answer::Raised(raised))
            }
            Verb::Extend { ttl, .. } => self.extend(name, entry, *ttl, at),
            Verb::Repair { ttl, token } => {
                let bring = || counters.bring_to(&counted(name), *token, at);
                self.repair(name, entry, *ttl, bring, at)
            }
            Verb::Release(release) => {
                let mint = &mut Mint::new(release.floor, counters, at);
                self.release(name, entry, mint, at)
            }
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

    /// For tests: all waiters at `time`, with the names that they wait for.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn waiters(&self, time: u64) -> impl Iterator<Item = (&Name, &Entry)> {
        let names = self.lines.names(time / 1000);
        let queued =
            names.flat_map(move |name| self.waiters_of(name, time).map(move |entry| (name, entry)));
        queued.chain(self.lines.all_half_written())
    }

    /// For tests: the waiters for this name at `time`, in order.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn waiters_of(&self, name: &Name, time: u64) -> impl Iterator<Item = &Entry> {
        let now = time / 1000;
        let all = self.lines.all(name, now).map(|(_, entry)| entry);
        all.filter(move |_| self.lines.stand(now))
    }

    /// For tests: the holder of this name at `time`.
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
    ) -> Result<Answer, Fault> {
        if let Some(held) = self.behind(name, mint, at) {
            return Ok(held);
        }
        let counted = &counted(name);
        let counter = mint.counters.read(counted, at);
        let token = larger(counter.saturating_add(1), mint.floor, at.rules);
        let held = self.refusal(name, mint.counters, at);
        if token <= MAX_TOKEN {
            // A server refuses SET before it looks whether the key exists.
            at.may_run(Command::Set)?;
        } else if held.is_none() {
            return exhausted();
        }
        if let Some(held) = held {
            return Ok(held);
        }
        self.hold(name, entry, Came::PLAIN, ttl, at.time);
        mint.counters.begin(at);
        mint.counters.write(counted, token, at);
        Ok(Answer::Granted(token))
    }

    /// The refusal of an ACQUIRE, if the lock is held.
    pub(in crate::node::kinds) fn refusal(
        &self,
        name: &Name,
        counters: &Counters,
        at: Moment,
    ) -> Option<Answer> {
        let lock = self.live(name, at.time)?;
        Some(Answer::Held {
            which: None,
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
    ) -> Result<Answer, Fault> {
        let (left, came) = match self.live(name, at.time) {
            Some(lock) if lock.entry == *entry => (lock.left(at.time), lock.came),
            None if !at.rules.hold(Rule::NeverRecreate) => (Duration::ZERO, Came::PLAIN),
            _ => return Ok(Answer::Lost),
        };
        at.may_delete()?; // a full server permits PEXPIRE too
        if ttl > left || !at.rules.hold(Rule::NeverShorten) {
            self.hold(name, entry, came, ttl, at.time);
        }
        Ok(Answer::Extended)
    }

    /// `bring` brings the counter up to the token, and returns true if it was less.
    fn repair(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        bring: impl FnOnce() -> Result<bool, Fault>,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let evicted = self.is_evicted(name, at);
        let ours = self.is_held_by(name, entry, 0, at.time);
        let (left, came) = match self.live(name, at.time) {
            _ if evicted => return Ok(Answer::Repaired(false)),
            Some(_) if !ours => {
                self.stand_first(name, entry, ttl, at)?;
                return Ok(Answer::Repaired(false));
            }
            Some(lock) => (lock.left(at.time), lock.came),
            None => (Duration::ZERO, Came::PLAIN),
        };
        if bring()? {
            // That was the first write.
        } else if ours {
            at.may_delete()?; // a full server permits PEXPIRE too
        } else {
            at.may_run(Command::Set)?;
        }
        self.hold(name, entry, came, ttl.max(left), at.time);
        self.lines.remove(name, entry);
        Ok(Answer::Repaired(true))
    }

    /// `mint` makes the token for the waiter that gets the lock next.
    fn release(
        &mut self,
        name: &Name,
        entry: &Entry,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<Answer, Fault> {
        let held = self.free(name, entry, at)?;
        self.leave(name, entry, mint, at)?;
        match at.admitted {
            true => Ok(Answer::Released(held)),
            false => Ok(Answer::ReleasedUnadmitted),
        }
    }

    /// Deletes the lock if the entry has it. Returns true if it had.
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

    pub(crate) fn inspect(&self, name: &Name, counters: &Counters, at: Moment) -> Answer {
        let holder = self.live(name, at.time);
        let line = self.lines.all(name, at.ms()).take(SHOWN);
        Answer::InspectedMutex(Box::new(MutexInspection {
            holder: holder.map(|lock| (lock.entry.as_str().to_owned(), Some(lock.left(at.time)))),
            counter: counters.read(&counted(name), at),
            line: line
                .map(|(ticket, entry)| {
                    let waited = Duration::from_micros(at.time.saturating_sub(*ticket));
                    (entry.as_str().to_owned(), waited)
                })
                .collect(),
            waiting: self.lines.count(name, at.ms()),
        }))
    }

    pub(crate) fn evict(&mut self, name: &Name, at: Moment) -> Result<Answer, Fault> {
        at.may_delete()?;
        let holder = self.live(name, at.time).map(|lock| lock.entry.text());
        self.locks.remove(name);
        if at.rules.hold(Rule::EvictionLasts) {
            let now = at.time / 1000;
            self.evicted.retain(|_, until| now <= *until);
            let until = now.saturating_add(ms(at.max_ttl() * 2));
            self.evicted.insert(name.clone(), until);
        }
        Ok(Answer::Evicted {
            held: holder.is_some(),
            holders: holder.into_iter().collect(),
        })
    }

    fn live(&self, name: &Name, time: u64) -> Option<&Lock> {
        self.locks.get(name).filter(|lock| lock.lives(time))
    }

    /// Returns true if any entry holds it.
    pub(in crate::node::kinds) fn is_held(&self, name: &Name, at: Moment) -> bool {
        self.live(name, at.time).is_some()
    }

    pub(in crate::node::kinds) fn is_evicted(&self, name: &Name, at: Moment) -> bool {
        let evicted = self.evicted.get(name);
        evicted.is_some_and(|until| at.ms() <= *until)
    }

    /// With `seq`, only by that request through the queue. With 0, in any way.
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

    /// Gives the lock to an entry that did not come through the queue.
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

    /// Never shortens. Returns the seq of the request by which the holder came to the lock.
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

// ---- A lock that is held

#[derive(Clone, Debug)]
struct Lock {
    entry: Entry,
    came: Came,
    /// The last ms of TIME in which it is held. A key on a server has expired when TIME is past that.
    until: u64,
}

/// How a holder came to its lock.
#[derive(Clone, Copy, Debug)]
struct Came {
    /// The seq of its request through the queue. 0: it did not come through the queue.
    seq: u64,
    /// Its ticket.
    ticket: u64,
}

impl Came {
    /// It did not come through the queue.
    const PLAIN: Self = Self::by(0, 0);

    const fn by(seq: u64, ticket: u64) -> Self {
        Self { seq, ticket }
    }
}

impl Lock {
    fn lives(&self, time: u64) -> bool {
        time / 1000 <= self.until
    }

    fn left(&self, time: u64) -> Duration {
        Duration::from_millis(self.until.saturating_sub(time / 1000))
    }

    /// The lock as a waiter sees it.
    fn ahead(&self, time: u64) -> Ahead {
        Ahead {
            remaining: Some(self.left(time)),
            ticket: self.came.ticket,
            holder: Some(self.entry.text()),
            is_reserved: false,
        }
    }
}

// ---- The queue (protocol §5): the executable meaning of `line.lua`

/// The fate of a free lock.
enum Served {
    /// No living entry waits.
    Nobody,
    /// The waiter that asks is the head. It is answered instead of a hand-over, with the token if one was made already.
    Me(Option<u64>),
    /// Another entry has it now, or it is kept for one.
    Ahead(Ahead),
    /// Something failed. The lock is free.
    Stuck,
}

/// The arguments of JOIN.
#[derive(Clone, Copy)]
struct Join<'a> {
    name: &'a Name,
    entry: &'a Entry,
    place: &'a Place,
    ttl: Duration,
}

impl Memory {
    /// JOIN.
    fn join(&mut self, join: Join<'_>, mint: &mut Mint<'_>, at: Moment) -> Result<Answer, Fault> {
        let Join {
            name,
            entry,
            place,
            ttl,
        } = join;
        if self.is_held_by(name, entry, 0, at.time) {
            at.may_delete()?; // a full server permits PEXPIRE too
            let seq = self.prolong(name, ttl, at.time);
            let counter = mint.counters.read(&counted(name), at);
            return Ok(Answer::Taken { counter, seq });
        }
        if place.only_last
            && at.rules.hold(Rule::OnlyLast)
            && self.overtakes(name, entry, place, at)
            && let Some(held) = self.held_or_served(name, mint, at)
        {
            return Ok(held);
        }
        let ahead = match self.live(name, at.time) {
            Some(lock) => {
                let ahead = lock.ahead(at.time);
                self.register(name, entry, place, place.seq, at)?;
                ahead
            }
            None => match self.join_free(name, entry, place, mint, at)? {
                Served::Me(token) => {
                    let token = match token {
                        Some(token) => token,
                        None => mint.token(&counted(name), at)?,
                    };
                    let came = Came::by(place.seq, place.ticket);
                    at.may_run(Command::Set)?;
                    self.hold(name, entry, came, ttl, at.time);
                    self.lines.remove(name, entry);
                    return Ok(Answer::Taken {
                        counter: token,
                        seq: place.seq,
                    });
                }
                Served::Ahead(ahead) => ahead,
                Served::Nobody | Served::Stuck => FREE,
            },
        };
        let mut before = self.lines.all(name, at.ms());
        let rank = before.position(|(_, other)| other == entry).unwrap_or(0);
        Ok(Answer::InLine {
            rank: rank as u64,
            ahead,
        })
    }

    /// True if a waiter that may only be the last would come before another waiter, or before the holder.
    fn overtakes(&self, name: &Name, entry: &Entry, place: &Place, at: Moment) -> bool {
        let now = at.ms();
        let last = self.lines.all(name, now).next_back();
        let last = last.filter(|_| self.lines.stand(now));
        let held = self.live(name, at.time).map_or(0, |lock| lock.came.ticket);
        let after = last.map_or(0, |(ticket, _)| *ticket).max(held);
        after >= place.ticket && self.lines.waiter(name, entry, now).is_none()
    }

    /// JOIN of a free lock: finds the first living waiter.
    fn join_free(
        &mut self,
        name: &Name,
        entry: &Entry,
        place: &Place,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<Served, Fault> {
        let head = self.lines.all(name, at.ms()).next();
        if head.is_none_or(|(_, head)| head == entry) {
            return Ok(Served::Me(None));
        }
        self.register(name, entry, place, place.seq, at)?;
        Ok(self.serve(name, mint, None, Some(entry), at))
    }

    /// YIELD.
    fn give_back(
        &mut self,
        name: &Name,
        entry: &Entry,
        place: &Place,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<Answer, Fault> {
        if self.is_held_by(name, entry, place.seq, at.time) {
            at.may_delete()?;
            self.locks.remove(name);
        } else if self.is_held_by(name, entry, 0, at.time) {
            // The entry has the lock by a later request.
            return Ok(Answer::Yielded);
        }
        // A yielded lock is not handed over again: seq 0 says so.
        self.register(name, entry, place, 0, at)?;
        if self.live(name, at.time).is_none() {
            self.serve(name, mint, Some(entry), None, at);
        }
        Ok(Answer::Yielded)
    }

    /// The part of RELEASE that is about the queue of the name, if there is a queue.
    pub(in crate::node::kinds) fn leave(
        &mut self,
        name: &Name,
        entry: &Entry,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<(), Fault> {
        if !self.has_line(name, at) {
            return Ok(());
        }
        at.may_delete()?;
        self.lines.remove(name, entry);
        if at.admitted && self.live(name, at.time).is_none() {
            self.serve(name, mint, None, None, at);
        }
        Ok(())
    }

    /// ACQUIRE of a name that has a queue, which it never overtakes. None: it goes on like any other ACQUIRE.
    pub(in crate::node::kinds) fn behind(
        &mut self,
        name: &Name,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Option<Answer> {
        if !self.has_line(name, at) {
            return None;
        }
        self.held_or_served(name, mint, at)
    }

    /// The refusal that names the holder. A free lock is handed over first. None: no living entry waits, or the counter has
    /// reached its end.
    fn held_or_served(&mut self, name: &Name, mint: &mut Mint<'_>, at: Moment) -> Option<Answer> {
        let ahead = match self.live(name, at.time) {
            Some(lock) => lock.ahead(at.time),
            None if mint.counters.read(&counted(name), at) >= MAX_TOKEN => return None,
            None => match self.serve(name, mint, None, None, at) {
                Served::Ahead(ahead) => ahead,
                Served::Stuck => FREE,
                Served::Nobody | Served::Me(_) => return None,
            },
        };
        let last = self.lines.all(name, at.ms()).next_back();
        let last = last.map_or(0, |(ticket, _)| *ticket);
        Some(Answer::Held {
            which: None,
            remaining: ahead.remaining,
            counter: mint.counters.read(&counted(name), at),
            holder: ahead.holder,
            ticket: ahead.ticket.max(last),
        })
    }

    /// After a refused REPAIR the holder stands first in the queue, so that a lock that becomes free is kept for its
    /// next REPAIR.
    fn stand_first(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        at: Moment,
    ) -> Result<(), Fault> {
        let place = Place {
            seq: 0,
            ticket: 0,
            only_last: false,
            term: ttl,
            lock_delay: Duration::ZERO,
            life: ttl,
            claim: ttl,
            channel: "".into(),
        };
        at.may_run(Command::Zadd)?;
        self.lines.register(name, entry, &place, 0, at.ms());
        Ok(())
    }

    fn has_line(&self, name: &Name, at: Moment) -> bool {
        self.lines.stand(at.ms()) && self.lines.count(name, at.ms()) > 0
    }

    fn register(
        &mut self,
        name: &Name,
        entry: &Entry,
        place: &Place,
        seq: u64,
        at: Moment,
    ) -> Result<(), Fault> {
        at.may_write()?;
        let now = at.ms();
        if self.lines.waiter(name, entry, now).is_none()
            && let Err(fault) = at.may_run(Command::Zadd)
        {
            if !at.rules.hold(Rule::NothingHalfWritten) {
                self.lines.half_written(name, entry);
            }
            return Err(fault);
        }
        self.lines.refresh(name, entry, place, seq, now);
        Ok(())
    }

    /// Gives a free lock to the head of the queue. `mint` is that of the client that freed the lock, or that tries to
    /// take it.
    fn serve(
        &mut self,
        name: &Name,
        mint: &mut Mint<'_>,
        not: Option<&Entry>,
        me: Option<&Entry>,
        at: Moment,
    ) -> Served {
        let now = at.ms();
        let mut token = None;
        loop {
            let Some((head, next)) = self.lines.heads(name, now) else {
                return Served::Nobody;
            };
            if not == Some(&head) {
                return Served::Nobody;
            }
            if me == Some(&head) {
                return Served::Me(token);
            }
            let Some(waiter) = self.lines.waiter(name, &head, now).cloned() else {
                return Served::Stuck;
            };
            if let Some(left) = waiter.kept(now)
                && !waiter.is_gone(now)
            {
                return Served::Ahead(reserved(&head, &waiter, left));
            }
            if waiter.is_gone(now) {
                // Removed below, as a waiter that nobody hears.
            } else if waiter.is_fresh(now) {
                let minted = match token {
                    Some(token) => Ok(token),
                    None => mint.token(&counted(name), at),
                };
                let Ok(minted) = minted else {
                    return Served::Stuck;
                };
                token = Some(minted);
                let says = Says::Granted {
                    seq: waiter.seq,
                    token: minted,
                    guard: at.guard.into(),
                };
                // The head counts what it hears, so the lock is written before anybody can hear of it.
                let may_set = at.may_run(Command::Set).is_ok();
                if !may_set && at.rules.hold(Rule::WriteThenPublish) {
                    return Served::Stuck;
                }
                if publish(&head, &waiter, says, at) {
                    if !may_set {
                        return Served::Stuck;
                    }
                    let left = Duration::from_millis(waiter.term + waiter.lock_delay);
                    let came = Came::by(waiter.seq, waiter.ticket);
                    self.hold(name, &head, came, left, at.time);
                    self.lines.remove(name, &head);
                    self.tell(name, &waiter, next.as_ref(), waiter.term, at);
                    return Served::Ahead(Ahead {
                        remaining: Some(left),
                        ticket: waiter.ticket,
                        holder: Some(head.text()),
                        is_reserved: false,
                    });
                }
            // The head has to ask. Without a channel it asks from time to time.
            } else if waiter.channel.is_empty() || publish(&head, &waiter, Says::Called, at) {
                if at.may_write().is_err() {
                    return Served::Stuck;
                }
                self.lines.reserve(name, &head, now);
                self.tell(name, &waiter, next.as_ref(), waiter.claim, at);
                let left = Duration::from_millis(waiter.claim);
                return Served::Ahead(reserved(&head, &waiter, left));
            }
            if at.may_delete().is_err() {
                return Served::Stuck;
            }
            self.lines.remove(name, &head);
        }
    }

    /// Tells the waiter behind the head when to ask. That waiter need not hear it. If it is of the head's process, both
    /// may have vanished together. Then the last waiter in the queue is told instead, if it is of another process and
    /// hears it.
    fn tell(&self, name: &Name, head: &Waiter, next: Option<&Entry>, after: u64, at: Moment) {
        let now = at.ms();
        let known = |entry: &Entry| {
            let waiter = self.lines.waiter(name, entry, now)?;
            (!waiter.channel.is_empty()).then(|| (entry.clone(), waiter))
        };
        let Some(next) = next
            .filter(|_| at.rules.hold(Rule::NextIsTold))
            .and_then(known)
        else {
            return;
        };
        let last = self.lines.all(name, now).next_back();
        let last = last.and_then(|(_, last)| known(last));
        let last =
            last.filter(|(_, last)| next.1.channel == head.channel && last.channel != head.channel);
        let says = Says::Next {
            after: Duration::from_millis(after),
        };
        let hears = |(entry, waiter): (Entry, &Waiter)| publish(&entry, waiter, says.clone(), at);
        if !last.is_some_and(hears) && !next.1.asks_soon(now, after) {
            hears(next);
        }
    }
}

/// A lock that is free, and kept for nobody.
const FREE: Ahead = Ahead {
    remaining: Some(Duration::ZERO),
    ticket: 0,
    holder: None,
    is_reserved: false,
};

fn reserved(head: &Entry, waiter: &Waiter, left: Duration) -> Ahead {
    Ahead {
        remaining: Some(left),
        ticket: waiter.ticket,
        holder: Some(head.text()),
        is_reserved: true,
    }
}

/// Returns true if a connection hears it.
fn publish(entry: &Entry, waiter: &Waiter, says: Says, at: Moment) -> bool {
    let entry = entry.clone();
    at.air.publish(&waiter.channel, Push { entry, says })
}

#[cfg(test)]
mod tests;
