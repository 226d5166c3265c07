//! Updates: every section writes one more than it read. So if two sections wrote the same value, one update is lost.
//! The store that checks tokens loses none. The other store loses one only to a stale holder, and the first store
//! refused that holder. A section that only reads finds the same values at its end as at its beginning, while its lease
//! is valid.

use std::collections::{BTreeMap, HashMap};

use super::{
    Finding,
    operations::{History, Op},
};
use crate::torture::history::{Access, Accesses, Kind};

#[derive(Default)]
pub(super) struct Updates {
    pub(super) findings: Vec<Finding>,
    pub(super) refused: usize,
    pub(super) lost_fenced: u64,
    pub(super) lost_plain: u64,
    pub(super) with_store: bool,
}

/// One of the two stores.
struct Store {
    what: &'static str,
    of: fn(Accesses) -> Access,
}

const FENCED: Store = Store {
    what: "the store that checks tokens",
    of: |both| both.fenced,
};
const PLAIN: Store = Store {
    what: "the store without a check",
    of: |both| both.plain,
};

/// The values that one operation read and wrote in one record. For a reader, those that it read at its end.
struct Section<'h> {
    op: &'h Op,
    record: String,
    read: Option<Accesses>,
    wrote: Option<Accesses>,
}

pub(super) fn check(history: &History) -> Updates {
    let sections: Vec<Section<'_>> = history.ops.iter().flat_map(sections).collect();
    let refused = |op: &&Op| {
        op.read
            .iter()
            .chain(&op.wrote)
            .any(|it| it.fenced == Access::REFUSED)
    };
    let of_a_store = |section: &Section<'_>| {
        let read = section.read;
        read.is_some_and(|read| read.plain != Access::NO_STORE)
    };
    let mut updates = Updates {
        refused: history.ops.iter().filter(refused).count(),
        with_store: sections.iter().any(of_a_store),
        ..Updates::default()
    };
    for (first, second) in pairs(&sections, &FENCED) {
        updates
            .findings
            .push(lost(history, &FENCED, first, second, ""));
    }
    for (first, second) in pairs(&sections, &PLAIN) {
        if !explained(&sections, first, second) {
            let why = ", and the store that checks tokens refused no writer meanwhile";
            updates
                .findings
                .push(lost(history, &PLAIN, first, second, why));
        }
    }
    let ends = history.stored.iter();
    let fenced: Ends = ends
        .clone()
        .map(|(name, fenced, _)| (name.as_str(), *fenced))
        .collect();
    let plain: Ends = ends
        .map(|(name, _, plain)| (name.as_str(), *plain))
        .collect();
    updates.lost_plain = count(&sections, &PLAIN, &plain, &mut Vec::new());
    updates.lost_fenced = count(&sections, &FENCED, &fenced, &mut updates.findings);
    refused_while_valid(history, &sections, &mut updates.findings);
    changed_under_a_reader(history, &sections, &mut updates.findings);
    updates
}

fn sections(op: &Op) -> Vec<Section<'_>> {
    let records = op.records().into_iter().enumerate();
    let section = |(i, record)| Section {
        op,
        record,
        read: op.read.get(i).copied(),
        wrote: op.wrote.get(i).copied(),
    };
    records.map(section).collect()
}

impl Section<'_> {
    fn is_refused(&self) -> bool {
        let mut all = self.read.iter().chain(&self.wrote);
        all.any(|all| all.fenced == Access::REFUSED)
    }

    fn read(&self, store: &Store) -> Option<u64> {
        self.read.and_then(|read| (store.of)(read).value())
    }

    fn written(&self, store: &Store) -> Option<u64> {
        let wrote = self.wrote.filter(|_| !self.op.reads());
        wrote.and_then(|wrote| (store.of)(wrote).value())
    }

    /// The limits of the time in which it wrote. If it was killed while it wrote, the upper limit is unknown.
    fn writing(&self) -> Option<(u64, u64)> {
        let from = self.op.writing.unwrap_or(self.op.invoked);
        match self.op.ended {
            _ if self.op.reads() => None,
            Some(end) => Some((from, end)),
            None => self.op.writing.map(|from| (from, u64::MAX)),
        }
    }

    /// When it ended, if its lease was valid until then.
    fn in_time(&self) -> Option<u64> {
        let end = self.op.ended?;
        (self.op.lost.is_none() && end <= self.op.valid_until).then_some(end)
    }
}

/// Returns true if a stale holder explains the lost update. Either one of the two was stale, or a stale holder wrote
/// between them and set the counter back, so that valid holders wrote the same values again.
fn explained(sections: &[Section<'_>], first: &Section<'_>, second: &Section<'_>) -> bool {
    let since = first.op.writing.unwrap_or(first.op.invoked);
    let until = second.op.ended.unwrap_or(u64::MAX);
    let stale = |section: &Section<'_>| {
        let maybe = section.op.ended.is_none() || section.is_refused();
        let meanwhile = section.writing();
        let meanwhile = meanwhile.is_some_and(|(from, to)| from <= until && since <= to);
        maybe && meanwhile && section.record == first.record
    };
    sections.iter().any(stale)
}

fn lost(
    history: &History,
    store: &Store,
    first: &Section<'_>,
    second: &Section<'_>,
    why: &str,
) -> Finding {
    let value = second.written(store).unwrap_or(0);
    Finding {
        kind: Kind::LostUpdate,
        text: format!(
            "an update of {:?} was lost in {}: both wrote {value}{why}: {} and {}",
            first.record,
            store.what,
            history.tell(first.op),
            history.tell(second.op)
        ),
    }
}

/// Pairs of sections that wrote the same value to the same record, one after the other.
fn pairs<'s, 'h>(
    sections: &'s [Section<'h>],
    store: &Store,
) -> Vec<(&'s Section<'h>, &'s Section<'h>)> {
    let mut seen: HashMap<(&str, u64), &Section<'_>> = HashMap::new();
    let mut pairs = Vec::new();
    let mut sections: Vec<&Section<'_>> = sections.iter().collect();
    sections.sort_by_key(|section| section.op.ended);
    for section in sections {
        let Some(value) = section.written(store) else {
            continue;
        };
        if let Some(other) = seen.insert((&section.record, value), section) {
            pairs.push((other, section));
        }
    }
    pairs
}

type Ends<'a> = BTreeMap<&'a str, u64>;

/// The number of updates that are missing at the end. A pair names at most two of them. This counts all, including
/// updates that were overwritten by a write whose answer was lost.
fn count(
    sections: &[Section<'_>],
    store: &Store,
    ends: &Ends<'_>,
    findings: &mut Vec<Finding>,
) -> u64 {
    let mut missing = 0;
    for (name, end) in ends {
        let its = || sections.iter().filter(|section| section.record == *name);
        let Some(first) = its().filter_map(|section| section.read(store)).min() else {
            continue;
        };
        let writes = its().filter_map(|section| section.written(store)).count() as u64;
        let short = first.saturating_add(writes).saturating_sub(*end);
        if short > 0 {
            findings.push(Finding {
                kind: Kind::LostUpdate,
                text: format!(
                    "{short} updates of {name:?} are missing in {}: it began with {first}, {writes} were \
                     written, and it ends with {end}",
                    store.what
                ),
            });
        }
        missing += short;
    }
    missing
}

/// A holder that the store refused was overtaken by a newer token, so its lease must have been over.
fn refused_while_valid(history: &History, sections: &[Section<'_>], findings: &mut Vec<Finding>) {
    for section in sections.iter().filter(|section| section.is_refused()) {
        let Some(end) = section.in_time() else {
            continue;
        };
        let token = section.op.granted.map_or(0, |grant| grant.token);
        let newer = sections.iter().find(|other| {
            other.record == section.record
                && other
                    .op
                    .granted
                    .is_some_and(|grant| grant.token > token && grant.at <= end)
        });
        findings.push(Finding {
            kind: Kind::Fence,
            text: format!(
                "the store refused a holder whose lease was valid: {}; a newer token was held by {}",
                history.tell(section.op),
                newer.map_or_else(
                    || "no recorded operation".to_owned(),
                    |newer| history.tell(newer.op)
                )
            ),
        });
    }
}

/// A writer whose lease is over may change what readers read, even where tokens are checked: the last writer before
/// them, whose token is their epoch. Nobody else may.
fn changed_under_a_reader(
    history: &History,
    sections: &[Section<'_>],
    findings: &mut Vec<Finding>,
) {
    for section in sections.iter().filter(|section| section.op.reads()) {
        let (Some(grant), Some(end)) = (section.op.granted, section.in_time()) else {
            continue;
        };
        let stale = |other: &Section<'_>| {
            let meanwhile = other.writing();
            let meanwhile = meanwhile.is_some_and(|(from, to)| from <= end && grant.at <= to);
            meanwhile && other.in_time().is_none() && other.record == section.record
        };
        for store in [FENCED, PLAIN] {
            let last = section.wrote.and_then(|wrote| (store.of)(wrote).value());
            let (Some(first), Some(last)) = (section.read(&store), last) else {
                continue;
            };
            if first != last && !sections.iter().any(stale) {
                findings.push(Finding {
                    kind: Kind::Exclusion,
                    text: format!(
                        "the value that was read changed from {first} to {last} in {} while the lease was valid, and \
                         no holder of an expired lease wrote it: {}",
                        store.what,
                        history.tell(section.op)
                    ),
                });
            }
        }
    }
}
