//! The waiters for a slot, in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    base::owner::Entry,
    node::{request::Seat, wire::ms},
};

/// The queue of one semaphore. Times are in ms of TIME.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    order: BTreeSet<(u64, Entry)>,
    waiters: BTreeMap<Entry, Waiter>,
}

/// A waiter, as it was registered.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: u64,
    /// The time at which the node last heard of it.
    pub(super) heard: u64,
    /// The time at which it was called, if it was not heard of since.
    pub(super) called: Option<u64>,
    pub(super) term: u64,
    pub(super) life: u64,
    pub(super) channel: Arc<str>,
}

impl Line {
    /// The number of waiters.
    pub(super) fn count(&self) -> usize {
        self.order.len()
    }

    /// The waiters with their tickets, in order.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &(u64, Entry)> {
        self.order.iter()
    }

    /// How many waiters are before it. None: it does not wait.
    pub(super) fn rank(&self, entry: &Entry) -> Option<usize> {
        let waiter = self.waiters.get(entry)?;
        let before = self.order.range(..(waiter.ticket, entry.clone()));
        Some(before.count())
    }

    /// How many waiters have a smaller ticket.
    pub(super) fn before(&self, ticket: u64) -> usize {
        let smaller = |(one, _): &&(u64, Entry)| *one < ticket;
        self.order.iter().take_while(smaller).count()
    }

    pub(super) fn waiter(&self, entry: &Entry) -> Option<&Waiter> {
        self.waiters.get(entry)
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.order.last().map(|(ticket, _)| *ticket)
    }

    /// Puts the entry into the queue, or refreshes it.
    pub(super) fn register(&mut self, entry: &Entry, seat: &Seat, ticket: u64, now: u64) {
        self.remove(entry);
        let waiter = Waiter {
            ticket,
            heard: now,
            called: None,
            term: ms(seat.term),
            life: ms(seat.life),
            channel: Arc::clone(&seat.channel),
        };
        self.order.insert((ticket, entry.clone()));
        self.waiters.insert(entry.clone(), waiter);
    }

    /// Takes the entry out of the queue. Returns true if it was there.
    pub(super) fn remove(&mut self, entry: &Entry) -> bool {
        let waiter = self.waiters.remove(entry);
        waiter.is_some_and(|waiter| self.order.remove(&(waiter.ticket, entry.clone())))
    }

    pub(super) fn call(&mut self, entry: &Entry, now: u64) {
        if let Some(waiter) = self.waiters.get_mut(entry) {
            waiter.called = Some(now);
        }
    }
}

impl Waiter {
    /// Returns true if it was not heard of for too long, or was called and did not come.
    pub(super) fn is_gone(&self, now: u64) -> bool {
        // A call later than now means that the clock went back.
        let missed = |called| called > now || now - called > self.term;
        now.saturating_sub(self.heard) > self.life || self.called.is_some_and(missed)
    }
}
