//! The holders of a semaphore's slots and the waiters: as each node names them, and merged.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{Holder, Inspection, NodeInspection, Waiter, line};
use crate::{
    FencingToken,
    base::{
        limit::Limit,
        majority::majority,
        taken::Taken,
        text::{are_needed, table},
    },
};

/// The semaphore of a name, as one node knows it.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSlots {
    /// The number of slots. `None` if nobody has named it for long.
    pub limit: Option<u32>,
    /// How many of them are taken.
    pub taken: u32,
    /// The first taken slots, by number: up to 100.
    pub slots: Vec<Slot>,
    /// The first waiters there, in the order of the queue: up to 100.
    pub line: Vec<Waiter>,
    /// How many wait there.
    pub waiting: u64,
    /// The version of the limit. A greater one is newer.
    pub(crate) version: u64,
    /// The taken slots.
    pub(crate) bits: Taken,
}

/// A slot of a semaphore that is taken. `Display`: `slot 3: web-3:77, for 8.2 s more unless it is renewed`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The number of the slot, from 0.
    pub number: u32,
    /// The holder, and how much longer it holds the slot.
    pub holder: Holder,
    /// The newest token that was given out for this slot.
    pub token: Option<FencingToken>,
    /// The nodes that name this holder. In [`NodeSlots::slots`] it is that node alone.
    pub nodes: Vec<Arc<str>>,
    /// True if a majority names this holder. If not, it is mostly an attempt under way, or something that an attempt
    /// has left there.
    pub is_held: bool,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}: {}", self.number, self.holder)
    }
}

impl Inspection {
    /// The number of slots of the semaphore of this name: the newest limit that any node knows. `None` if nobody has
    /// used one for long.
    pub fn limit(&self) -> Option<u32> {
        let known = self.semaphores().filter_map(|node| {
            let (slots, version) = (node.limit?, node.version);
            Some(Limit { version, slots })
        });
        // Of two limits with the same version the smaller stands.
        let newest = known.max_by_key(|limit| (limit.version, Reverse(limit.slots)));
        newest.map(|limit| limit.slots)
    }

    /// The taken slots of the semaphore of this name with their holders, by number.
    ///
    /// If nodes name different holders of a slot, each of them is listed. At most one of them holds it
    /// ([`Slot::is_held`]). Each node names the holders of its first 100 slots; [`taken_slots`](Self::taken_slots)
    /// counts all.
    pub fn slots(&self) -> Vec<Slot> {
        let mut slots: BTreeMap<(u32, &str), Slot> = BTreeMap::new();
        for slot in self.semaphores().flat_map(|node| &node.slots) {
            match slots.get_mut(&(slot.number, slot.holder.entry.as_str())) {
                Some(known) => {
                    known.holder.remaining = known.holder.remaining.max(slot.holder.remaining);
                    known.token = known.token.max(slot.token);
                    known.nodes.extend(slot.nodes.iter().cloned());
                }
                None => {
                    slots.insert((slot.number, &slot.holder.entry), slot.clone());
                }
            }
        }
        let needed = majority(self.nodes.len());
        let mut slots: Vec<Slot> = slots.into_values().collect();
        for slot in &mut slots {
            slot.is_held = slot.nodes.len() >= needed;
        }
        slots.sort_by_key(|slot| (slot.number, Reverse(slot.nodes.len())));
        slots
    }

    /// How many slots are held, by a holder that a majority of nodes names. (If the holder of a slot is not named, it
    /// is enough that a majority says that the slot is taken.)
    pub fn taken_slots(&self) -> u32 {
        let needed = majority(self.nodes.len());
        let mut named: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for slot in self.slots() {
            let (most, all) = named.entry(slot.number).or_default();
            *most = slot.nodes.len().max(*most);
            *all += slot.nodes.len();
        }
        let numbers: BTreeSet<u32> = self
            .semaphores()
            .flat_map(|node| node.bits.iter())
            .collect();
        let held = numbers.into_iter().filter(|number| {
            let on = self.semaphores().filter(|node| node.bits.has(*number));
            let (most, all) = named.get(number).copied().unwrap_or_default();
            on.count().saturating_sub(all) + most >= needed
        });
        u32::try_from(held.count()).unwrap_or(u32::MAX)
    }

    /// The waiters for a slot of the semaphore of this name, as [`line`](Self::line) lists those for the mutex.
    pub fn line_for_slots(&self) -> Vec<Waiter> {
        let holders = self.holders_of_slots();
        let waiters = self.semaphores().flat_map(|node| &node.line);
        line::merged(waiters.filter(|waiter| !holders.contains(&waiter.entry)))
    }

    /// How many wait for a slot: the most that any node counts, or that all of them name together.
    pub fn waiting_for_slots(&self) -> u64 {
        let holders = self.holders_of_slots();
        let is_holder = |waiter: &Waiter| holders.contains(&waiter.entry);
        let lines = self
            .semaphores()
            .map(|node| (node.line.as_slice(), node.waiting));
        line::count(lines, is_holder).max(line::length(self.line_for_slots().len()))
    }

    /// Returns true if any node knows a semaphore of this name.
    pub(super) fn has_semaphore(&self) -> bool {
        self.semaphores().next().is_some()
    }

    /// Prints the semaphore for operators.
    pub(super) fn print_semaphore(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        self.print_taken(f)?;
        line::print_count(self.waiting_for_slots(), f)?;
        let rows: Vec<Vec<String>> = self.nodes.iter().map(NodeInspection::slots_row).collect();
        let head = ["NODE", "LIMIT", "TAKEN", "WAITING", "STATE"];
        write!(f, "\n\n{}", table(&head, &rows))?;
        self.print_slots(f)?;
        let total = self.nodes.len();
        line::print(&self.line_for_slots(), self.waiting_for_slots(), total, f)
    }

    fn print_taken(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answered, total) = (self.answered(), self.nodes.len());
        let needed = majority(total);
        if answered < needed {
            return write!(
                f,
                ": the taken slots are unknown, {answered} of {total} nodes answered and {}",
                are_needed(needed)
            );
        }
        let taken = self.taken_slots();
        let are = if taken == 1 { "slot is" } else { "slots are" };
        match self.limit() {
            Some(1) if taken < 2 => write!(f, ": {taken} of 1 slot is taken"),
            Some(limit) if taken <= limit => write!(f, ": {taken} of {limit} slots are taken"),
            Some(limit) => write!(f, ": {taken} slots are taken, and the limit is now {limit}"),
            None => write!(f, ": {taken} {are} taken, and no node knows the limit"),
        }
    }

    /// Prints a row for each slot that is named.
    fn print_slots(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slots, total) = (self.slots(), self.nodes.len());
        if !slots.is_empty() {
            let rows: Vec<Vec<String>> = slots.iter().map(|slot| slot.row(total)).collect();
            let head = ["SLOT", "HOLDER", "REMAINING", "TOKEN", "ON"];
            write!(f, "\n\n{}", table(&head, &rows))?;
        }
        let named = slots.iter().filter(|slot| slot.is_held).count();
        let taken = u64::from(self.taken_slots());
        match taken.saturating_sub(line::length(named)) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }

    fn semaphores(&self) -> impl Iterator<Item = &NodeSlots> {
        self.nodes.iter().filter_map(|node| node.semaphore.as_ref())
    }

    /// The entries of the holders.
    fn holders_of_slots(&self) -> BTreeSet<String> {
        let held = self.slots().into_iter().filter(|slot| slot.is_held);
        held.map(|slot| slot.holder.entry).collect()
    }
}

impl NodeInspection {
    /// The node's row in the table of the semaphore.
    fn slots_row(&self) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let nothing = NodeSlots::default();
        let known = self.semaphore.as_ref().unwrap_or(&nothing);
        let said = |text: String| self.silence.is_none().then_some(text);
        vec![
            self.node.to_string(),
            or_dash(known.limit.map(|limit| limit.to_string())),
            or_dash(said(known.taken.to_string())),
            or_dash(said(known.waiting.to_string())),
            self.state(),
        ]
    }
}

impl Slot {
    fn row(&self, total: usize) -> Vec<String> {
        let on = format!("{} of {total} nodes", self.nodes.len());
        vec![
            self.number.to_string(),
            self.holder.label.clone(),
            self.holder.time_left(),
            self.token
                .map_or_else(|| "-".to_owned(), |token| token.to_string()),
            match self.is_held {
                true => on,
                false => format!("{on}: no majority"),
            },
        ]
    }
}

#[cfg(test)]
mod tests;
