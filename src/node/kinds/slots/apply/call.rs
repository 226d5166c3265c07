//! Who waits is told what is free.

use std::{ops::Range, time::Duration};

use super::Room;
use crate::{
    base::{owner::Entry, rules::Rule},
    node::{
        kinds::slots::line::Waiter,
        push::{Push, Says},
    },
};

/// So many of those who wait are looked at together.
const TOGETHER: usize = 17;
/// So many of those in front are looked at by who asks in vain.
const SWEPT: usize = 64;

impl Room<'_> {
    /// A slot is free: the first of those in the gate who has not been called yet is told.
    pub(super) fn call(&mut self, slot: u32) {
        // One that is free above the limit makes room below it.
        let free = match self.kept.limit {
            Some(limit) if slot >= limit.slots => self.kept.next_free(0),
            _ => Some(slot),
        };
        let Some(slot) = free else { return };
        let mut passed = 0;
        while passed < self.kept.gate() {
            let all = self.kept.line.all().skip(passed).take(TOGETHER);
            let some: Vec<Entry> = all.map(|(_, entry)| entry.clone()).collect();
            if some.is_empty() {
                return;
            }
            for (place, entry) in some.iter().enumerate() {
                if passed == self.kept.gate() {
                    return;
                }
                match self.call_one(entry, slot) {
                    Called::Told(waiter) => {
                        return self.tell_next(some.iter().skip(place + 1), &waiter);
                    }
                    Called::Done => return,
                    Called::Passed => passed += 1,
                    Called::Dropped => {}
                }
            }
        }
    }

    /// Those in the gate, of the first 64, who have not come when they were called, or were not heard of for too long, are out of line.
    pub(super) fn sweep(&mut self, asks: &Entry) {
        let now = self.at.ms();
        let all = self.kept.line.all().take(self.kept.gate().min(SWEPT));
        let gone = all.filter(|(_, entry)| {
            let waiter = self.kept.line.waiter(entry);
            entry != asks && waiter.is_some_and(|waiter| waiter.is_gone(now))
        });
        let gone: Vec<Entry> = gone.map(|(_, entry)| entry.clone()).collect();
        for entry in gone {
            if self.at.may_delete().is_ok() {
                self.kept.line.remove(&entry);
                self.has_swept = true;
            }
        }
    }

    /// Slots that are new are free for as many as stand in the gate.
    pub(super) fn call_new(&mut self, slots: Range<u32>) {
        let free = slots.filter(|slot| self.kept.slot(*slot).is_none());
        let free: Vec<u32> = free.take(self.kept.gate()).collect();
        free.into_iter().for_each(|slot| self.call(slot));
    }

    /// It waits no more. Who comes into the gate by that is told.
    /// Whether it was in there itself.
    pub(super) fn leave(&mut self, entry: &Entry) -> bool {
        let gate = self.kept.gate();
        let rank = self.kept.line.rank(entry);
        self.kept.line.remove(entry);
        let was_in_it = rank.is_some_and(|rank| rank < gate);
        if self.at.admitted && was_in_it {
            self.tell_the_last(gate);
        }
        was_in_it
    }

    /// Who has come into the gate is told.
    pub(super) fn tell_the_last(&mut self, gate: usize) {
        let Some((_, entered)) = self.kept.line.all().nth(gate - 1).cloned() else {
            return;
        };
        let says = match self.kept.next_free(0) {
            Some(slot) => Says::Free { slot },
            None => Says::Called,
        };
        if let Some(waiter) = self.kept.line.waiter(&entered).cloned() {
            self.publish(&entered, &waiter, says);
        }
    }

    fn call_one(&mut self, entry: &Entry, slot: u32) -> Called {
        let now = self.at.ms();
        if self.asks == Some(entry) {
            return match std::mem::replace(&mut self.is_told, true) {
                true => Called::Passed,
                false => Called::Done,
            };
        }
        let Some(waiter) = self.kept.line.waiter(entry).cloned() else {
            return Called::Passed;
        };
        if !waiter.is_gone(now) {
            // It has to come within its term; or it asks by itself.
            if waiter.called.is_some() || waiter.channel.is_empty() {
                return Called::Passed;
            }
            if self.publish(entry, &waiter, Says::Free { slot }) {
                if self.at.may_write().is_err() {
                    return Called::Done;
                }
                self.kept.line.call(entry, now);
                return Called::Told(waiter);
            }
        }
        if self.at.may_delete().is_err() {
            return Called::Done;
        }
        self.kept.line.remove(entry);
        Called::Dropped
    }

    /// One behind who was called is told when to ask: the first of another process who hears it. What is called may have
    /// vanished, and its process with it.
    fn tell_next<'e>(&self, behind: impl Iterator<Item = &'e Entry>, called: &Waiter) {
        if !self.at.rules.hold(Rule::NextIsTold) {
            return;
        }
        let after = Duration::from_millis(called.term);
        for entry in behind {
            let waiter = self.kept.line.waiter(entry);
            let others = waiter.filter(|waiter| waiter.channel != called.channel);
            if others.is_some_and(|waiter| self.publish(entry, waiter, Says::Next { after })) {
                return;
            }
        }
    }

    /// Whether anybody hears it.
    fn publish(&self, entry: &Entry, waiter: &Waiter, says: Says) -> bool {
        let entry = entry.clone();
        !waiter.channel.is_empty() && self.at.air.publish(&waiter.channel, Push { entry, says })
    }
}

/// What became of one when a slot was free.
enum Called {
    /// It is called.
    Told(Waiter),
    /// Its answer tells it; or something failed.
    Done,
    /// It was called before.
    Passed,
    /// Nobody hears it.
    Dropped,
}
