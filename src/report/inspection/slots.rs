//! Who holds the slots of a semaphore and who waits for one: what each node says, and all of them together.

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

/// What one node knows of the semaphore of a name.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSlots {
    /// How many slots there are; none where nobody has said so for long.
    pub limit: Option<u32>,
    /// How many of them are taken.
    pub taken: u32,
    /// The first of those that are taken, in their order: up to 100.
    pub slots: Vec<Slot>,
    /// The first of those who wait for one there, in that order: up to 100.
    pub line: Vec<Waiter>,
    /// How many wait there.
    pub waiting: u64,
    /// Of the limit: a greater one is newer.
    pub(crate) version: u64,
    /// Which are taken.
    pub(crate) bits: Taken,
}

/// A slot of a semaphore that is taken. `Display`: `slot 3: web-3:77, for 8.2 s more unless it is renewed`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Which: the first is 0.
    pub number: u32,
    /// Who has it, and for how much longer.
    pub holder: Holder,
    /// The newest token that was given out for this slot.
    pub token: Option<FencingToken>,
    /// The nodes that say so. In [`NodeSlots::slots`] it is that node alone.
    pub nodes: Vec<Arc<str>>,
    /// Whether they are a majority. If not, mostly somebody asks for the slot at this moment, or has left it there.
    pub is_held: bool,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}: {}", self.number, self.holder)
    }
}

impl Inspection {
    /// How many slots the semaphore of this name has: the newest limit that any node knows. None where nobody has used
    /// one for long.
    pub fn limit(&self) -> Option<u32> {
        let known = self.semaphores().filter_map(|node| {
            let (slots, version) = (node.limit?, node.version);
            Some(Limit { version, slots })
        });
        // Of two of the same version the smaller stands.
        let newest = known.max_by_key(|limit| (limit.version, Reverse(limit.slots)));
        newest.map(|limit| limit.slots)
    }

    /// Who has which slot of the semaphore of this name, by number. Where nodes name different holders of a slot, each of
    /// them is there; at most one of them holds it ([`Slot::is_held`]).
    ///
    /// Each node names the holders of its first 100 slots; [`taken_slots`](Self::taken_slots) counts all.
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

    /// How many slots are held: each by somebody whom a majority of nodes names. (Of those whose holders are not named it
    /// is enough that a majority says they are taken.)
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

    /// Who waits for a slot of the semaphore of this name, as [`line`](Self::line) says it of the mutex.
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

    /// Whether anything is known of a semaphore of this name.
    pub(super) fn has_semaphore(&self) -> bool {
        self.semaphores().next().is_some()
    }

    /// What an operator reads of the semaphore.
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
                ": which slots are taken cannot be told, {answered} of {total} nodes answered and {}",
                are_needed(needed)
            );
        }
        let taken = self.taken_slots();
        let are = if taken == 1 { "slot is" } else { "slots are" };
        match self.limit() {
            Some(1) if taken < 2 => write!(f, ": {taken} of 1 slot is taken"),
            Some(limit) if taken <= limit => write!(f, ": {taken} of {limit} slots are taken"),
            Some(limit) => write!(
                f,
                ": {taken} slots are taken, and the limit is {limit} by now"
            ),
            None => write!(f, ": {taken} {are} taken, and no node knows the limit"),
        }
    }

    /// A row for each that is named.
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

    /// Their entries.
    fn holders_of_slots(&self) -> BTreeSet<String> {
        let held = self.slots().into_iter().filter(|slot| slot.is_held);
        held.map(|slot| slot.holder.entry).collect()
    }
}

impl NodeInspection {
    /// The row under the head of the semaphore's table of nodes.
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
