//! What the simulation keeps in mind to see a violation.

use std::collections::{BTreeMap, BTreeSet};

use super::invariants::{
    Held, Operation,
    epochs::Epochs,
    exclusion::{self, Share},
    finality::Seen,
    gate::Gate,
    order::Order,
    resizes::Resizes,
    settled::Settled,
    spent::Spent,
    stall::Stall,
    support::Support,
    turns::Turns,
    uniqueness::Uniqueness,
    updates::Updates,
};
use crate::{
    LeaseWatch,
    base::{name::Names, owner::Entry},
};

/// One lease that nobody gave up.
pub(crate) struct Lease {
    pub(crate) id: u64,
    pub(crate) op: Operation,
    pub(crate) share: Share,
    pub(crate) watch: LeaseWatch,
    pub(crate) seen: Seen,
    /// An operator freed the name: over by then (true time).
    pub(crate) over_by: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) leases: Vec<Lease>,
    pub(crate) gates: BTreeMap<String, Gate>,
    /// What stands in a store that checks tokens, and in one that does not.
    pub(crate) updates: Updates,
    orders: BTreeMap<String, Order>,
    tokens: BTreeMap<String, Uniqueness>,
    support: Option<Support>,
    /// By token: the entries that it was told to, and by which nodes.
    entries: BTreeMap<u64, BTreeMap<String, BTreeSet<usize>>>,
    /// By entry: when an ACQUIRE or a JOIN of it last came to a node.
    asked: BTreeMap<String, u64>,
    /// Who stands in line, by name.
    pub(crate) turns: BTreeMap<String, Turns>,
    pub(crate) stalls: BTreeMap<String, Stall>,
    pub(crate) semaphores: BTreeMap<String, Semaphore>,
    epochs: BTreeMap<String, Epochs>,
    /// What was asked for together, by entry.
    pub(crate) sets: BTreeMap<Entry, Names>,
    /// The units of the limit, by interval.
    pub(crate) spent: Vec<Spent>,
    last_id: u64,
}

/// What is known of a semaphore.
pub(crate) struct Semaphore {
    pub(crate) resizes: Resizes,
    pub(crate) settled: Settled,
}

impl Checks {
    pub(crate) fn new(support: bool) -> Self {
        Self {
            support: support.then(Support::default),
            ..Self::default()
        }
    }

    /// An ACQUIRE or a JOIN of this entry has come to a node.
    pub(crate) fn asked(&mut self, entry: &str, now: u64) {
        self.asked.insert(entry.to_owned(), now);
        for lease in &mut self.leases {
            if entry_of(&self.entries, &lease.op) == Some(entry) {
                lease.over_by = None;
            }
        }
    }

    /// An operator has freed the name: leases that were granted before it was asked for cannot be prolonged after `over_by`.
    /// But for those whose own request was under way to a node and came after it: they may have that node again.
    pub(crate) fn evicted(&mut self, name: &str, asked_at: u64, over_by: u64) {
        for lease in &mut self.leases {
            let entry = entry_of(&self.entries, &lease.op);
            let came_at = entry.and_then(|entry| self.asked.get(entry));
            let came_after = came_at.is_some_and(|at| *at >= asked_at);
            let was_granted = lease.op.answered_at.is_some_and(|at| at <= asked_at);
            if lease.op.name == name && was_granted && !came_after {
                lease.over_by.get_or_insert(over_by);
            }
        }
    }

    pub(crate) fn stood(&mut self, node: usize, entry: &str, counter: u64) {
        let entries = self.entries.entry(counter).or_default();
        entries.entry(entry.to_owned()).or_default().insert(node);
        if let Some(support) = &mut self.support {
            support.stood(node, entry, counter);
        }
    }

    /// A grant: its token is new, the greatest, and stands on a majority.
    pub(crate) fn granted(
        &mut self,
        op: &Operation,
        strict: bool,
        entries: &[String],
        needed: usize,
    ) -> Held {
        self.orders
            .entry(op.name.clone())
            .or_default()
            .granted(op, strict)?;
        self.tokens
            .entry(op.name.clone())
            .or_default()
            .granted(op)?;
        if strict {
            let epochs = self.epochs.entry(op.name.clone()).or_default();
            epochs.wrote(op)?;
        }
        match &self.support {
            Some(support) => support.granted(op, entries, needed),
            None => Ok(()),
        }
    }

    /// A grant to a reader.
    pub(crate) fn granted_to_read(&mut self, op: &Operation) -> Held {
        self.epochs.entry(op.name.clone()).or_default().read(op)
    }

    /// A lease of all of these.
    pub(crate) fn hold(
        &mut self,
        all: &[Operation],
        share: Share,
        watch: &LeaseWatch,
        over_at: u64,
    ) -> u64 {
        self.last_id += 1;
        let seen = Seen {
            over_at,
            over: false,
        };
        self.leases.extend(all.iter().map(|op| Lease {
            id: self.last_id,
            op: op.clone(),
            share,
            watch: watch.clone(),
            seen,
            over_by: None,
        }));
        self.last_id
    }

    /// At a grant: nobody was overtaken.
    pub(crate) fn in_turn(&self, op: &Operation, needed: usize) -> Held {
        match self.turns.get(&op.name) {
            Some(turns) => turns.granted(op, needed),
            None => Ok(()),
        }
    }

    /// Others may read beside it.
    pub(crate) fn share(&mut self, id: u64) {
        let leases = self.leases.iter_mut().filter(|lease| lease.id == id);
        leases.for_each(|lease| lease.share = Share::Reader);
    }

    /// A grant: the lock does not stand still, nor does what is waited for together with it.
    pub(crate) fn progress(&mut self, name: &str) {
        let granted: Vec<&str> = parts_of(name).collect();
        for (waited, stall) in &mut self.stalls {
            if parts_of(waited).any(|part| granted.contains(&part)) {
                stall.over();
            }
        }
    }

    /// Released, dropped, abandoned, or its process died.
    pub(crate) fn give_up(&mut self, now: u64, id: u64) {
        self.leases.retain(|lease| lease.id != id);
        for semaphore in self.semaphores.values_mut() {
            semaphore.resizes.used(now);
        }
    }

    /// No two holders of this name; `just` was granted this instant, good or not: its caller was
    /// told so.
    pub(crate) fn exclusive(&self, now: u64, name: &str, just: Option<u64>) -> Held {
        let of_name = self.leases.iter().filter(|lease| lease.op.name == name);
        let is_good = |lease: &Lease| just == Some(lease.id) || lease.watch.is_valid();
        let good = of_name.map(|lease| (&lease.op, lease.share, is_good(lease)));
        exclusion::check(now, good)
    }
}

/// The names that were asked for together.
pub(crate) fn parts_of(name: &str) -> impl Iterator<Item = &str> {
    name.split(", ")
}

impl Lease {
    /// The semaphore and the slot, if it is one of these.
    pub(crate) fn slot(&self) -> Option<(&str, u32)> {
        let (semaphore, slot) = self.op.name.split_once('/')?;
        Some((semaphore, slot.parse().ok()?))
    }
}

/// The entry of a lease: that which most nodes told its token to.
fn entry_of<'e>(
    entries: &'e BTreeMap<u64, BTreeMap<String, BTreeSet<usize>>>,
    lease: &Operation,
) -> Option<&'e str> {
    let entries = entries.get(&lease.token?)?;
    let most = entries.iter().max_by_key(|(_, nodes)| nodes.len());
    most.map(|(entry, _)| entry.as_str())
}
