//! The state of one semaphore: its keys on a server (protocol §6). `apply.rs` decides how it changes.

use std::{collections::BTreeMap, time::Duration};

use super::line::Line;
use crate::{
    base::{limit::Limit, owner::Entry, taken::Taken},
    node::{
        fault::Fault,
        kinds::{counters::Counters, moment::Moment},
    },
};

/// How many expired slots a script frees at most.
const PURGED: usize = 64;

/// The state of one semaphore. Times are in ms of TIME.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// The last ms in which the state exists.
    pub(super) until: u64,
    pub(super) limit: Option<Limit>,
    slots: BTreeMap<u32, Slot>,
    /// By holder.
    held: BTreeMap<Entry, u32>,
    pub(super) line: Line,
    /// The counters of its slots, if nobody is shown their tokens.
    pub(super) counters: Option<Counters>,
}

/// A slot that is taken.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) entry: Entry,
    /// The ticket with which its holder came; 0: none is known.
    pub(super) ticket: u64,
    /// The last ms in which it is held.
    pub(super) until: u64,
}

impl Kept {
    /// Frees expired slots, as many as one script may, and the slot of this entry if that has expired.
    pub(super) fn purge(&mut self, entry: Option<&Entry>, at: Moment) -> Result<(), Fault> {
        let over = |slot: &Slot| slot.until < at.ms();
        let all = self.slots.iter().filter(|(_, slot)| over(slot));
        let mut expired: Vec<(u64, String, u32)> = all
            .map(|(number, slot)| (slot.until, number.to_string(), *number))
            .collect();
        // In the order of a sorted set: by score, and then by text.
        expired.sort();
        expired.truncate(PURGED);
        let expired = expired.into_iter().map(|(.., number)| number);
        let ours = entry.and_then(|entry| self.held.get(entry)).copied();
        let ours = ours.filter(|number| self.slots.get(number).is_some_and(over));
        for number in expired.chain(ours).collect::<Vec<_>>() {
            at.may_delete()?;
            self.drop_slot(number);
        }
        Ok(())
    }

    /// The slot that the entry holds.
    pub(super) fn slot_of(&self, entry: &Entry, at: Moment) -> Option<(u32, &Slot)> {
        self.left_by(entry)
            .filter(|(_, slot)| at.ms() <= slot.until)
    }

    /// The same, even if the slot has expired and no script has freed it yet.
    pub(super) fn left_by(&self, entry: &Entry) -> Option<(u32, &Slot)> {
        let number = *self.held.get(entry)?;
        Some((number, self.slots.get(&number)?))
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.slots.iter().map(|(number, slot)| (*number, slot))
    }

    pub(super) fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.get(&number)
    }

    /// Takes a slot, or prolongs it.
    pub(super) fn hold(&mut self, number: u32, slot: Slot) {
        self.held.insert(slot.entry.clone(), number);
        self.slots.insert(number, slot);
    }

    pub(super) fn drop_slot(&mut self, number: u32) {
        if let Some(slot) = self.slots.remove(&number) {
            self.held.remove(&slot.entry);
        }
    }

    pub(super) fn taken(&self) -> Taken {
        let mut taken = Taken::default();
        self.slots.keys().for_each(|slot| taken.set(*slot, true));
        taken
    }

    /// The number of slots; 0 if no limit stands.
    pub(super) fn count(&self) -> u32 {
        self.limit.map_or(0, |limit| limit.slots)
    }

    /// The width of the gate: how many waiters at the front of the queue may take a free slot.
    pub(super) fn gate(&self) -> usize {
        self.count().div_ceil(3).max(2) as usize
    }

    /// The first free slot from here on, below the limit.
    pub(super) fn next_free(&self, from: u32) -> Option<u32> {
        (from..self.count()).find(|slot| !self.slots.contains_key(slot))
    }

    /// The time until the first taken slot is free, if it is not prolonged.
    pub(super) fn until_free(&self, at: Moment) -> Option<Duration> {
        let first = self.slots.values().map(|slot| slot.until).min()?;
        let left = (first + 1).saturating_sub(at.ms());
        Some(Duration::from_millis(left))
    }
}
