//! One read-write lock: who has it, and who waits for it.

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

/// Everybody is there up to the last ms of TIME that is said of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Lock {
    writer: Option<(Entry, u64)>,
    readers: BTreeMap<Entry, u64>,
    /// Who waits to write.
    waiters: BTreeMap<Entry, u64>,
    /// Who hears that it was freed, and where.
    hearers: BTreeMap<(Entry, Arc<str>), u64>,
    /// A reader waits.
    refused: Option<u64>,
    /// New readers are let in before writers that wait.
    window: Option<u64>,
}

impl Lock {
    // ---- who is there ---------------------------------------------------------------------------

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

    /// Those who stay for longest first.
    pub(super) fn readers_by_end(&self, now: u64) -> Vec<(u64, &Entry)> {
        by_end(&self.readers, now)
    }

    /// Those who stay for longest first.
    pub(super) fn waiters_by_end(&self, now: u64) -> Vec<(u64, &Entry)> {
        by_end(&self.waiters, now)
    }

    /// In how many ms it may be otherwise, where a new reader is refused, and who is against it.
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

    /// The same of a writer. Readers that were kept out come first.
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

    /// Whether nothing of it is there any more.
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

    // ---- who comes and goes ---------------------------------------------------------------------

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
            // PEXPIRE of all of them.
            self.readers.retain(|_, end| at.ms() <= *end);
            self.readers.values_mut().for_each(|end| *end = until);
        }
    }

    /// The writer becomes a reader, until then at least.
    pub(super) fn step_down(&mut self, until: u64, at: Moment) {
        let Some((entry, before)) = self.writer.take() else {
            return;
        };
        // In two steps it is freed first, and then it is a reader like any other.
        let in_place = at.rules.hold(Rule::DowngradeInPlace);
        if in_place || self.against_a_reader(at.ms()).is_none() {
            self.let_read(&entry, until.max(before), at);
        }
    }

    /// It has nothing of the lock any more.
    pub(super) fn leave(&mut self, entry: &Entry) {
        self.writer.take_if(|(writer, _)| writer == entry);
        self.readers.remove(entry);
    }

    /// It waits to write. Never shortens.
    pub(super) fn intends(&mut self, waiter: &Waiter, now: u64) {
        self.waiters.retain(|_, until| now <= *until);
        let until = now.saturating_add(ms(waiter.life));
        let before = self.waiters.entry(waiter.entry.clone()).or_default();
        *before = until.max(*before);
    }

    pub(super) fn intends_no_more(&mut self, entry: &Entry) {
        self.waiters.remove(entry);
    }

    // ---- who is told ----------------------------------------------------------------------------

    /// A reader waits, for so many ms.
    pub(super) fn refuse(&mut self, now: u64, life: u64) {
        self.refused = Some(now.saturating_add(life));
    }

    /// New readers that were refused are let in for so many ms.
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

    /// Each process in which somebody waits hears that it was freed: by who has asked last.
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
