//! One read-write lock: its holders and its waiters.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    base::{owner::Entry, rules::Rule},
    node::{
        kinds::{air::Air, moment::Moment},
        push::{Push, Says},
        request::Waiter,
        wire::ms,
    },
};

/// Every time is the last ms of TIME in which the member is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Lock {
    writer: Option<(Entry, u64)>,
    readers: BTreeMap<Entry, u64>,
    /// The writers that wait.
    waiters: BTreeMap<Entry, u64>,
    /// The waiters to tell when the lock is freed, with their channels.
    hearers: BTreeMap<(Entry, Arc<str>), u64>,
    /// Until when a reader that was refused waits.
    refused: Option<u64>,
    /// Until when new readers come before waiting writers.
    window: Option<u64>,
}

impl Lock {
    // ---- members ---------------------------------------------------------------------------------

    pub(super) fn writer(&self, now: u64) -> Option<(&Entry, u64)> {
        let (entry, until) = self.writer.as_ref().filter(|(_, until)| now <= *until)?;
        Some((entry, *until))
    }

    pub(super) fn is_written_by(&self, entry: &Entry, now: u64) -> bool {
        self.writer(now).is_some_and(|(writer, _)| writer == entry)
    }

    pub(super) fn is_read_by(&self, entry: &Entry, now: u64) -> bool {
        self.readers.get(entry).is_some_and(|until| now <= *until)
    }

    pub(super) fn readers(&self, now: u64) -> impl Iterator<Item = &Entry> {
        let there = self.readers.iter().filter(move |(_, until)| now <= **until);
        there.map(|(entry, _)| entry)
    }

    pub(super) fn waiters(&self, now: u64) -> impl Iterator<Item = &Entry> {
        let there = self.waiters.iter().filter(move |(_, until)| now <= **until);
        there.map(|(entry, _)| entry)
    }

    /// The readers with the most time left first.
    pub(super) fn readers_by_end(&self, now: u64) -> Vec<(u64, &Entry)> {
        by_end(&self.readers, now)
    }

    /// The waiters with the most time left first.
    pub(super) fn waiters_by_end(&self, now: u64) -> Vec<(u64, &Entry)> {
        by_end(&self.waiters, now)
    }

    /// If a new reader is refused: the ms until that may change, and the entry that is against it.
    pub(super) fn against_a_reader(&self, now: u64) -> Option<(u64, Option<Entry>)> {
        if let Some((writer, until)) = self.writer(now) {
            return Some((until - now, Some(writer.clone())));
        }
        if self.window(now).is_some() {
            return None;
        }
        let waiters = self.waiters_by_end(now);
        let (until, waiter) = waiters.last()?;
        Some((*until - now, Some(Entry::clone(waiter))))
    }

    /// The same for a writer. Readers that were kept out come before it.
    pub(super) fn against_a_writer(&self, now: u64) -> Option<(u64, Option<Entry>)> {
        if let Some((writer, until)) = self.writer(now) {
            return Some((until - now, Some(writer.clone())));
        }
        let readers = self.readers_by_end(now);
        match readers.first() {
            Some((until, reader)) => Some((*until - now, Some(Entry::clone(reader)))),
            None => self.window(now).map(|until| (until - now, None)),
        }
    }

    fn window(&self, now: u64) -> Option<u64> {
        self.window.filter(|until| now <= *until)
    }

    /// Returns true if nothing of it is left.
    pub(super) fn is_over(&self, now: u64) -> bool {
        let until = self.writer.iter().map(|(_, until)| until);
        let entries = self.readers.values().chain(self.waiters.values());
        let marks = self
            .hearers
            .values()
            .chain(&self.refused)
            .chain(&self.window);
        !until.chain(entries).chain(marks).any(|until| now <= *until)
    }

    // ---- changes ---------------------------------------------------------------------------------

    /// Never shortens.
    pub(super) fn let_write(&mut self, entry: &Entry, until: u64) {
        let before = match &self.writer {
            Some((writer, before)) if writer == entry => *before,
            _ => 0,
        };
        self.writer = Some((entry.clone(), until.max(before)));
    }

    /// Never shortens.
    pub(super) fn let_read(&mut self, entry: &Entry, until: u64, at: Moment) {
        if self.readers.len().is_power_of_two() {
            self.readers.retain(|_, end| at.ms() <= *end);
        }
        let before = self.readers.entry(entry.clone()).or_default();
        *before = until.max(*before);
        if !at.rules.hold(Rule::ReadersOwnTtl) {
            // This stands for PEXPIRE of one key for all of them.
            self.readers.retain(|_, end| at.ms() <= *end);
            self.readers.values_mut().for_each(|end| *end = until);
        }
    }

    /// Turns the writer into a reader, at least until this time.
    pub(super) fn step_down(&mut self, until: u64, at: Moment) {
        let Some((entry, before)) = self.writer.take() else {
            return;
        };
        // In two steps it would be freed first, and then be a reader like any other.
        let in_place = at.rules.hold(Rule::DowngradeInPlace);
        if in_place || self.against_a_reader(at.ms()).is_none() {
            self.let_read(&entry, until.max(before), at);
        }
    }

    /// Removes everything that the entry has of the lock.
    pub(super) fn leave(&mut self, entry: &Entry) {
        self.writer.take_if(|(writer, _)| writer == entry);
        self.readers.remove(entry);
    }

    /// Registers a writer that waits. Never shortens.
    pub(super) fn intends(&mut self, waiter: &Waiter, now: u64) {
        self.waiters.retain(|_, until| now <= *until);
        let until = now.saturating_add(ms(waiter.life));
        let before = self.waiters.entry(waiter.entry.clone()).or_default();
        *before = until.max(*before);
    }

    pub(super) fn intends_no_more(&mut self, entry: &Entry) {
        self.waiters.remove(entry);
    }

    // ---- pushes ----------------------------------------------------------------------------------

    /// A reader that was refused waits for `life` ms.
    pub(super) fn refuse(&mut self, now: u64, life: u64) {
        self.refused = Some(now.saturating_add(life));
    }

    /// Lets in readers that were refused, for `window` ms.
    pub(super) fn let_in(&mut self, window: u64, at: Moment) {
        let now = at.ms();
        let is_due = window > 0 && self.refused.take().is_some_and(|until| now <= until);
        if is_due && at.rules.hold(Rule::ReaderWindow) {
            self.window = Some(now.saturating_add(window));
        }
    }

    pub(super) fn will_tell(&mut self, now: u64, waiter: &Waiter) {
        if !waiter.channel.is_empty() {
            let until = now.saturating_add(ms(waiter.life));
            let hearer = (waiter.entry.clone(), Arc::clone(&waiter.channel));
            self.hearers.retain(|_, until| now <= *until);
            self.hearers.insert(hearer, until);
        }
    }

    /// Tells each process with a waiter that the lock was freed, once, by the entry that asked last.
    pub(super) fn tell(&mut self, now: u64, air: &Air) {
        let hearers = std::mem::take(&mut self.hearers);
        let there = hearers.into_iter().filter(|(_, until)| now <= *until);
        let mut there: Vec<_> = there.map(|(hearer, until)| (until, hearer)).collect();
        there.sort_by(|(a, (one, here)), (b, (other, there))| {
            let (one, other) = ((a, one.as_str(), here), (b, other.as_str(), there));
            other.cmp(&one)
        });
        let mut told = BTreeSet::new();
        for (_, (entry, channel)) in there {
            if told.insert(Arc::clone(&channel)) {
                let says = Says::Freed;
                air.publish(&channel, Push { entry, says });
            }
        }
    }
}

fn by_end(all: &BTreeMap<Entry, u64>, now: u64) -> Vec<(u64, &Entry)> {
    let there = all.iter().filter(|(_, until)| now <= **until);
    let mut there: Vec<_> = there.map(|(entry, until)| (*until, entry)).collect();
    there.sort_by(|(a, one), (b, other)| (b, other.as_str()).cmp(&(a, one.as_str())));
    there
}
