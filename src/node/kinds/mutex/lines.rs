//! Who waits for the locks of a node, in order: the keys of the line on a server (protocol §5). What becomes of a
//! waiter is decided in `apply.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    base::{name::Name, owner::Entry},
    node::{request::Place, wire::ms},
};

/// All lines of a node. Times are in ms of its TIME.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    /// `waiting`: the last ms in which anybody may wait for any lock.
    waiting: Option<u64>,
    lines: BTreeMap<Name, Line>,
}

#[derive(Clone, Debug, Default)]
struct Line {
    /// The last ms in which it is there.
    until: u64,
    order: BTreeSet<(u64, Entry)>,
    waiters: BTreeMap<Entry, Waiter>,
}

/// One who waits, as it was registered.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: u64,
    /// When it was last heard of.
    pub(super) heard: u64,
    /// Of the request that registered it; 0: nothing can be handed over.
    pub(super) seq: u64,
    pub(super) term: u64,
    pub(super) lock_delay: u64,
    pub(super) life: u64,
    pub(super) claim: u64,
    /// Until when the free lock is kept for it; 0: it is not.
    pub(super) reserved: u64,
    pub(super) channel: Arc<str>,
}

impl Lines {
    /// Whether anybody may wait for any lock.
    pub(super) fn stand(&self, now: u64) -> bool {
        self.waiting.is_some_and(|until| now <= until)
    }

    /// How many wait for this one.
    pub(super) fn count(&self, name: &Name, now: u64) -> u64 {
        let count = self.line(name, now).map_or(0, |line| line.order.len());
        count as u64
    }

    /// Those who wait, with their tickets, in order.
    pub(super) fn all(
        &self,
        name: &Name,
        now: u64,
    ) -> impl DoubleEndedIterator<Item = &(u64, Entry)> {
        self.line(name, now)
            .into_iter()
            .flat_map(|line| &line.order)
    }

    /// For tests: every name that anybody waits for.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn names(&self, now: u64) -> impl Iterator<Item = &Name> {
        let names = self.lines.keys();
        names.filter(move |name| self.count(name, now) > 0)
    }

    /// Who comes first, and who next.
    pub(super) fn heads(&self, name: &Name, now: u64) -> Option<(Entry, Option<Entry>)> {
        let mut all = self.all(name, now).map(|(_, entry)| entry.clone());
        Some((all.next()?, all.next()))
    }

    /// The waiter with this entry.
    pub(super) fn waiter(&self, name: &Name, entry: &Entry, now: u64) -> Option<&Waiter> {
        self.line(name, now)?.waiters.get(entry)
    }

    /// Puts a waiter in line, as one that was heard of now.
    pub(super) fn register(
        &mut self,
        name: &Name,
        entry: &Entry,
        place: &Place,
        seq: u64,
        now: u64,
    ) {
        if self.line(name, now).is_none() {
            self.lines.remove(name);
        }
        let waiter = Waiter {
            ticket: place.ticket,
            heard: now,
            seq,
            term: ms(place.term),
            lock_delay: ms(place.lock_delay),
            life: ms(place.life),
            claim: ms(place.claim),
            reserved: 0,
            channel: Arc::clone(&place.channel),
        };
        let (least, longest) = (3 * waiter.life, 4 * waiter.life);
        let line = self.lines.entry(name.clone()).or_default();
        if let Some(before) = line.waiters.insert(entry.clone(), waiter) {
            line.order.remove(&(before.ticket, entry.clone()));
        }
        line.order.insert((place.ticket, entry.clone()));
        if line.until.saturating_sub(now) < least {
            line.until = now + longest;
        }
        let waiting = self
            .waiting
            .filter(|until| until.saturating_sub(now) >= least);
        self.waiting = waiting.or(Some(now + longest));
    }

    /// The same, or refreshes it: then it keeps its ticket. The line lives for as long as anybody waits: who is new sees
    /// to that, and its head, and every fourth request.
    pub(super) fn refresh(
        &mut self,
        name: &Name,
        entry: &Entry,
        place: &Place,
        seq: u64,
        now: u64,
    ) {
        let Some(known) = self.waiter(name, entry, now) else {
            return self.register(name, entry, place, seq, now);
        };
        let place = Place {
            ticket: known.ticket,
            ..place.clone()
        };
        let is_head = self
            .heads(name, now)
            .is_some_and(|(head, _)| head == *entry);
        let until = self.lines.get(name).map(|line| line.until);
        let waiting = self.waiting;
        self.register(name, entry, &place, seq, now);
        if !is_head && !seq.is_multiple_of(4) {
            self.waiting = waiting;
            if let (Some(line), Some(until)) = (self.lines.get_mut(name), until) {
                line.until = until;
            }
        }
    }

    /// It waits no more.
    pub(super) fn remove(&mut self, name: &Name, entry: &Entry) {
        let Some(line) = self.lines.get_mut(name) else {
            return;
        };
        if let Some(waiter) = line.waiters.remove(entry) {
            line.order.remove(&(waiter.ticket, entry.clone()));
        }
        if line.order.is_empty() {
            self.lines.remove(name);
        }
    }

    /// From now on the free lock is kept for it, for as long as it has to answer.
    pub(super) fn reserve(&mut self, name: &Name, entry: &Entry, now: u64) {
        let line = self.lines.get_mut(name);
        if let Some(waiter) = line.and_then(|line| line.waiters.get_mut(entry)) {
            waiter.reserved = now + waiter.claim;
        }
    }

    fn line(&self, name: &Name, now: u64) -> Option<&Line> {
        self.lines.get(name).filter(|line| now <= line.until)
    }
}

impl Waiter {
    /// It was not heard of for too long, or did not come when it was called.
    pub(super) fn is_gone(&self, now: u64) -> bool {
        let silent = now.saturating_sub(self.heard) > self.life;
        // Longer than it was kept for: the clock went back.
        let kept = now < self.reserved && self.reserved <= now + self.claim;
        silent || self.reserved != 0 && !kept
    }

    /// For how much longer the lock is kept for it.
    pub(super) fn kept(&self, now: u64) -> Option<Duration> {
        let left = self.reserved.saturating_sub(now);
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// Whether the lock can be handed to it: it was heard of within half of a hand-over's term, and hears.
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        let age = now.saturating_sub(self.heard);
        self.seq != 0 && !self.channel.is_empty() && age * 2 <= self.term
    }

    /// Whether it asks again within this, told or not, as it has only just come.
    pub(super) fn asks_soon(&self, now: u64, within: u64) -> bool {
        let age = now.checked_sub(self.heard);
        let is_new = self.seq == 1 && age.is_some_and(|age| age * 4 <= self.term);
        is_new && self.term <= within.saturating_mul(4)
    }
}
