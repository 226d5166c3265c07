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
    ballot::majority::majority,
    columns::{seconds, table},
    limit::Limit,
    taken::Taken,
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
                ": which slots are taken cannot be told, {answered} of {total} nodes answered and {needed} are needed"
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
        let remaining = self.holder.remaining.map(seconds);
        let on = format!("{} of {total} nodes", self.nodes.len());
        vec![
            self.number.to_string(),
            self.holder.label.clone(),
            remaining.unwrap_or_else(|| "no end".to_owned()),
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
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Silence;

    fn entry(who: &str) -> String {
        format!("{who}@{who}:1")
    }

    fn slot(at: &str, number: u32, who: &str, token: u64) -> Slot {
        Slot {
            number,
            holder: Holder {
                entry: entry(who),
                label: format!("{who}:1"),
                remaining: Some(Duration::from_millis(8_000 + token)),
            },
            token: Some(FencingToken::from_counter(token)),
            nodes: vec![at.into()],
            is_held: false,
        }
    }

    fn waiter(at: &str, who: &str, waited: u64) -> Waiter {
        Waiter {
            entry: entry(who),
            label: format!("{who}:1"),
            waited: Duration::from_millis(waited),
            nodes: vec![at.into()],
        }
    }

    /// A node, its limit, who has which slot with which token, and who waits.
    fn node(
        at: &str,
        limit: (u64, u32),
        slots: &[(u32, &str, u64)],
        line: &[(&str, u64)],
    ) -> NodeInspection {
        let mut bits = Taken::default();
        slots.iter().for_each(|slot| bits.set(slot.0, true));
        let slots = slots
            .iter()
            .map(|(number, who, token)| slot(at, *number, who, *token));
        let semaphore = NodeSlots {
            limit: Some(limit.1),
            version: limit.0,
            taken: bits.count(),
            bits,
            slots: slots.collect(),
            line: line
                .iter()
                .map(|(who, waited)| waiter(at, who, *waited))
                .collect(),
            waiting: line::length(line.len()),
        };
        NodeInspection {
            node: at.into(),
            holder: None,
            token: None,
            line: Vec::new(),
            waiting: 0,
            semaphore: Some(semaphore),
            silence: None,
        }
    }

    fn silent(at: &str) -> NodeInspection {
        NodeInspection {
            semaphore: None,
            silence: Some(Silence::Stalled),
            ..node(at, (1, 1), &[], &[])
        }
    }

    fn seen(nodes: impl IntoIterator<Item = NodeInspection>) -> Inspection {
        Inspection {
            name: "pool".into(),
            nodes: nodes.into_iter().collect(),
        }
    }

    fn first_line(seen: &Inspection) -> String {
        seen.to_string().lines().next().unwrap().to_owned()
    }

    #[test]
    fn an_operator_reads_who_has_which_slot_and_who_waits() {
        let line = [("fay", 4_200), ("gil", 150)];
        let seen = seen([
            node(
                "h:1",
                (1, 5),
                &[(0, "ann", 42), (2, "bob", 7), (4, "eve", 3)],
                &line,
            ),
            node("h:2", (1, 5), &[(0, "ann", 42), (2, "bob", 9)], &line[..1]),
            node("h:3", (1, 5), &[(0, "ann", 42), (2, "kim", 8)], &[]),
            silent("h:4"),
            node("h:5", (1, 5), &[(2, "bob", 7)], &line),
        ]);
        assert_eq!(
            seen.to_string(),
            r#""pool": 2 of 5 slots are taken; 2 wait in line

NODE  LIMIT  TAKEN  WAITING  STATE
h:1   5      3      2        voting
h:2   5      2      1        voting
h:3   5      2      0        voting
h:4   -      -      -        stalled: an earlier request is unanswered
h:5   5      1      2        voting

SLOT  HOLDER  REMAINING  TOKEN  ON
0     ann:1   8.0 s      42     3 of 5 nodes
2     bob:1   8.0 s      9      3 of 5 nodes
2     kim:1   8.0 s      8      1 of 5 nodes: no majority
4     eve:1   8.0 s      3      1 of 5 nodes: no majority

IN LINE  WAITED  ON
fay:1    4.2 s   3 of 5 nodes
gil:1    150 ms  2 of 5 nodes"#
        );
        let slots = seen.slots();
        assert_eq!(slots[1].nodes, ["h:1", "h:2", "h:5"].map(Arc::from));
        assert_eq!(
            slots[1].holder.remaining,
            Some(Duration::from_millis(8_009)),
            "the longest that a node says"
        );
        assert_eq!(
            slots[1].to_string(),
            "slot 2: bob:1, for 8.0 s more unless it is renewed"
        );
    }

    #[test]
    fn the_newest_limit_counts_and_of_one_version_the_smaller() {
        let of = |limits: [(u64, u32); 3]| seen(limits.map(|limit| node("h", limit, &[], &[])));
        assert_eq!(of([(1, 3), (2, 9), (1, 3)]).limit(), Some(9));
        assert_eq!(of([(2, 8), (2, 5), (1, 3)]).limit(), Some(5));
        assert_eq!(seen([silent("h"), silent("h"), silent("h")]).limit(), None);
    }

    #[test]
    fn the_first_line_says_what_is_known() {
        let three = |slots: &[(u32, &str, u64)], limit| {
            let on = || node("h", (1, limit), slots, &[]);
            [on(), on(), on()]
        };
        let (ann, bob) = ((0, "ann", 1), (3, "bob", 1));
        for (nodes, said) in [
            (three(&[], 5), "0 of 5 slots are taken"),
            (three(&[ann], 1), "1 of 1 slot is taken"),
            (three(&[ann, bob], 2), "2 of 2 slots are taken"),
            (
                three(&[ann, bob], 1),
                "2 slots are taken, and the limit is 1 by now",
            ),
            (
                [silent("h"), silent("h"), node("h", (1, 5), &[ann], &[])],
                "which slots are taken cannot be told, 1 of 3 nodes answered and 2 are needed",
            ),
        ] {
            assert_eq!(first_line(&seen(nodes)), format!("\"pool\": {said}"));
        }
        let mut unlimited = three(&[ann], 1);
        for node in &mut unlimited {
            node.semaphore.as_mut().unwrap().limit = None;
        }
        assert_eq!(
            first_line(&seen(unlimited)),
            "\"pool\": 1 slot is taken, and no node knows the limit"
        );
    }

    #[test]
    fn nobody_holds_a_slot_of_which_each_node_names_another() {
        let split = seen([
            node("h:1", (1, 2), &[(0, "ann", 1)], &[]),
            node("h:2", (1, 2), &[(0, "bob", 1)], &[]),
            node("h:3", (1, 2), &[], &[]),
        ]);
        assert_eq!(split.taken_slots(), 0);
        assert!(split.slots().iter().all(|slot| !slot.is_held));
    }

    #[test]
    fn slots_whose_holders_are_not_named_are_counted() {
        let names: Vec<String> = (0..30).map(|i| format!("w{i}")).collect();
        let slots: Vec<(u32, &str, u64)> = (0..30)
            .zip(&names)
            .map(|(number, who)| (number, who.as_str(), 1))
            .collect();
        let on = |unnamed| {
            let mut node = node("h", (1, 40), &slots, &[]);
            node.semaphore.as_mut().unwrap().slots.truncate(unnamed);
            node
        };
        // One node names more of them: those make no other count.
        let seen = seen([on(10), on(30), on(10)]);
        assert_eq!(seen.taken_slots(), 30);
        let text = seen.to_string();
        assert!(
            text.starts_with("\"pool\": 30 of 40 slots are taken\n"),
            "{text}"
        );
        assert!(text.ends_with("\nand 20 more"), "{text}");
    }

    #[test]
    fn who_holds_a_slot_does_not_wait_where_a_node_was_not_told_yet() {
        let seen = seen([
            node("h:1", (1, 1), &[(0, "ann", 1)], &[("bob", 10)]),
            node("h:2", (1, 1), &[(0, "ann", 1)], &[("bob", 10)]),
            node("h:3", (1, 1), &[], &[("ann", 900), ("bob", 10)]),
        ]);
        let labels: Vec<String> = seen
            .line_for_slots()
            .into_iter()
            .map(|one| one.label)
            .collect();
        assert_eq!(labels, ["bob:1"]);
        assert_eq!(seen.waiting_for_slots(), 1);
    }

    #[test]
    fn a_mutex_of_the_same_name_is_shown_first_where_it_is_used() {
        let with = |holder: Option<&str>, waits: &[(&str, u64)]| NodeInspection {
            holder: holder.map(|who| slot("h", 0, who, 1).holder),
            line: waits
                .iter()
                .map(|(who, ms)| waiter("h", who, *ms))
                .collect(),
            waiting: line::length(waits.len()),
            ..node("h", (1, 2), &[], &[])
        };
        let both = |holder, waits| {
            let on = || with(holder, waits);
            seen([on(), on(), on()]).to_string()
        };
        let held = both(Some("ann"), &[]);
        assert!(
            held.starts_with("\"pool\" is held on 3 of 3 nodes by ann:1"),
            "{held}"
        );
        assert!(
            held.contains("\n\n\"pool\": 0 of 2 slots are taken\n\n"),
            "{held}"
        );
        let line = both(None, &[("bob", 1)]);
        assert!(
            line.starts_with("\"pool\" is free; 1 waits in line\n"),
            "{line}"
        );
        assert!(both(None, &[]).starts_with("\"pool\": 0 of 2 slots are taken\n"));
    }
}
