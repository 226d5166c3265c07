//! The queues for the locks of a node: the keys of the queue on a server (protocol §5). `apply.rs` decides what becomes
//! of a waiter.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    base::{name::Name, owner::Entry},
    node::{request::Place, wire::ms},
};

/// All queues of a node. Times are in ms of its TIME.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    /// `waiting`: the last ms in which anybody may wait for any lock.
    waiting: Option<u64>,
    lines: BTreeMap<Name, Line>,
    /// Waiters that were written without a ticket, in a key without an expiry. Only with the rule off.
    #[cfg(any(test, feature = "test-util"))]
    half_written: BTreeSet<(Name, Entry)>,
}

#[derive(Clone, Debug, Default)]
struct Line {
    /// The last ms in which the queue exists.
    until: u64,
    order: BTreeSet<(u64, Entry)>,
    waiters: BTreeMap<Entry, Waiter>,
}

/// A waiter, as it was registered.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: u64,
    /// The time at which the node last heard of it.
    pub(super) heard: u64,
    /// The seq of the request that registered it. 0: nothing can be handed over to it.
    pub(super) seq: u64,
    pub(super) term: u64,
    pub(super) lock_delay: u64,
    pub(super) life: u64,
    pub(super) claim: u64,
    /// The time until which the free lock is kept for it. 0: it is not kept.
    pub(super) reserved: u64,
    pub(super) channel: Arc<str>,
}

impl Lines {
    /// Returns true if anybody may wait for any lock.
    pub(super) fn stand(&self, now: u64) -> bool {
        self.waiting.is_some_and(|until| now <= until)
    }

    /// The number of waiters for this lock.
    pub(super) fn count(&self, name: &Name, now: u64) -> u64 {
        let count = self.line(name, now).map_or(0, |line| line.order.len());
        count as u64
    }

    /// The waiters with their tickets, in order.
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

    /// The first waiter, and the one behind it.
    pub(super) fn heads(&self, name: &Name, now: u64) -> Option<(Entry, Option<Entry>)> {
        let mut all = self.all(name, now).map(|(_, entry)| entry.clone());
        Some((all.next()?, all.next()))
    }

    pub(super) fn waiter(&self, name: &Name, entry: &Entry, now: u64) -> Option<&Waiter> {
        self.line(name, now)?.waiters.get(entry)
    }

    /// Puts a waiter into the queue. It counts as heard of now.
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
        #[cfg(any(test, feature = "test-util"))]
        self.half_written.remove(&(name.clone(), entry.clone()));
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

    /// Registers a new waiter, or refreshes one that is there, which keeps its ticket. The queue lives as long as
    /// anybody waits. New waiters, the head, and every fourth request of a waiter extend it.
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

    /// The waiter was written without a ticket.
    #[cfg_attr(not(any(test, feature = "test-util")), allow(clippy::unused_self))]
    pub(super) fn half_written(&mut self, _name: &Name, _entry: &Entry) {
        #[cfg(any(test, feature = "test-util"))]
        self.half_written.insert((_name.clone(), _entry.clone()));
    }

    /// For tests: every waiter that was written without a ticket.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn all_half_written(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.half_written.iter().map(|(name, entry)| (name, entry))
    }

    /// Takes the waiter out of the queue.
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

    /// Keeps the free lock for this waiter, for the time that it has to answer.
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
    /// Returns true if it was not heard of for too long, or was called and did not come.
    pub(super) fn is_gone(&self, now: u64) -> bool {
        let silent = now.saturating_sub(self.heard) > self.life;
        // More time left than the claim means that the clock went back.
        let kept = now < self.reserved && self.reserved <= now + self.claim;
        silent || self.reserved != 0 && !kept
    }

    /// The time for which the lock is still kept for it.
    pub(super) fn kept(&self, now: u64) -> Option<Duration> {
        let left = self.reserved.saturating_sub(now);
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// Returns true if the lock can be handed to it: it can hear, and was heard of within half the term of a hand-over.
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        let age = now.saturating_sub(self.heard);
        self.seq != 0 && !self.channel.is_empty() && age * 2 <= self.term
    }

    /// Returns true if it has only just come and so asks again within this time, told or not.
    pub(super) fn asks_soon(&self, now: u64, within: u64) -> bool {
        let age = now.checked_sub(self.heard);
        let is_new = self.seq == 1 && age.is_some_and(|age| age * 4 <= self.term);
        is_new && self.term <= within.saturating_mul(4)
    }
}
