//! The state that the simulation keeps in order to see violations.

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

/// One lease that was not given up.
pub(crate) struct Lease {
    pub(crate) id: u64,
    pub(crate) op: Operation,
    pub(crate) share: Share,
    pub(crate) watch: LeaseWatch,
    pub(crate) seen: Seen,
    /// An operator freed the name, so the lease must be over by this instant of true time.
    pub(crate) over_by: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) leases: Vec<Lease>,
    pub(crate) gates: BTreeMap<String, Gate>,
    /// The content of a store that checks tokens, and of one that does not.
    pub(crate) updates: Updates,
    orders: BTreeMap<String, Order>,
    tokens: BTreeMap<String, Uniqueness>,
    support: Option<Support>,
    /// For each token: the entries that nodes granted it to, and which nodes.
    entries: BTreeMap<u64, BTreeMap<String, BTreeSet<usize>>>,
    /// For each entry: when its last ACQUIRE or JOIN arrived at a node.
    asked: BTreeMap<String, u64>,
    /// The waiters in the queue, by name.
    pub(crate) turns: BTreeMap<String, Turns>,
    pub(crate) stalls: BTreeMap<String, Stall>,
    pub(crate) semaphores: BTreeMap<String, Semaphore>,
    epochs: BTreeMap<String, Epochs>,
    /// For each entry, the names that were asked for together.
    pub(crate) sets: BTreeMap<Entry, Names>,
    /// The units of the limit that were used, for each interval.
    pub(crate) spent: Vec<Spent>,
    last_id: u64,
}

/// The known state of a semaphore.
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

    /// An ACQUIRE or a JOIN of this entry has arrived at a node.
    pub(crate) fn asked(&mut self, entry: &str, now: u64) {
        self.asked.insert(entry.to_owned(), now);
        for lease in &mut self.leases {
            if entry_of(&self.entries, &lease.op) == Some(entry) {
                lease.over_by = None;
            }
        }
    }

    /// An operator has freed the name. Leases that were granted before the eviction was asked for cannot be prolonged
    /// after `over_by`. The exception is a lease whose own request was under way to a node and arrived after the
    /// eviction: it may have that node again.
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

    /// Checks a grant: its token is new, the greatest so far, and stands on a majority.
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

    /// Checks a grant to a reader.
    pub(crate) fn granted_to_read(&mut self, op: &Operation) -> Held {
        self.epochs.entry(op.name.clone()).or_default().read(op)
    }

    /// Notes a lease of all of these.
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

    /// Checks at a grant that nobody was overtaken.
    pub(crate) fn in_turn(&self, op: &Operation, needed: usize) -> Held {
        match self.turns.get(&op.name) {
            Some(turns) => turns.granted(op, needed),
            None => Ok(()),
        }
    }

    /// The lease becomes a reader's, so others may read beside it.
    pub(crate) fn share(&mut self, id: u64) {
        let leases = self.leases.iter_mut().filter(|lease| lease.id == id);
        leases.for_each(|lease| lease.share = Share::Reader);
    }

    /// Notes a grant: the lock does not stand still, and neither does a set of names that contains it.
    pub(crate) fn progress(&mut self, name: &str) {
        let granted: Vec<&str> = parts_of(name).collect();
        for (waited, stall) in &mut self.stalls {
            if parts_of(waited).any(|part| granted.contains(&part)) {
                stall.over();
            }
        }
    }

    /// The lease was released, dropped or abandoned, or its process died.
    pub(crate) fn give_up(&mut self, now: u64, id: u64) {
        self.leases.retain(|lease| lease.id != id);
        for semaphore in self.semaphores.values_mut() {
            semaphore.resizes.used(now);
        }
    }

    /// Checks that the name does not have two holders. The lease `just` was granted at this instant. It counts whether
    /// it is still good or not, because its caller was told that it holds the lock.
    pub(crate) fn exclusive(&self, now: u64, name: &str, just: Option<u64>) -> Held {
        let of_name = self.leases.iter().filter(|lease| lease.op.name == name);
        let is_good = |lease: &Lease| just == Some(lease.id) || lease.watch.is_valid();
        let good = of_name.map(|lease| (&lease.op, lease.share, is_good(lease)));
        exclusion::check(now, good)
    }
}

/// The single names of a set that was asked for together.
pub(crate) fn parts_of(name: &str) -> impl Iterator<Item = &str> {
    name.split(", ")
}

impl Lease {
    /// The semaphore and the slot, if the lease is of a slot.
    pub(crate) fn slot(&self) -> Option<(&str, u32)> {
        let (semaphore, slot) = self.op.name.split_once('/')?;
        Some((semaphore, slot.parse().ok()?))
    }
}

/// The entry of a lease: the one to which most nodes granted its token.
fn entry_of<'e>(
    entries: &'e BTreeMap<u64, BTreeMap<String, BTreeSet<usize>>>,
    lease: &Operation,
) -> Option<&'e str> {
    let entries = entries.get(&lease.token?)?;
    let most = entries.iter().max_by_key(|(_, nodes)| nodes.len());
    most.map(|(entry, _)| entry.as_str())
}
