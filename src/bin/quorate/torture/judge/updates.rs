//! Updates: every section writes one more than it read, so two that read the same and both wrote have
//! lost one update. In the store that checks tokens there is none. In the other there is none but by
//! a stale holder, whom the first store refused.

use std::collections::{BTreeMap, HashMap};

use super::{
    Finding,
    operations::{Accesses, History, Op},
};
use crate::torture::history::{Access, Kind};

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

pub(super) fn check(history: &History) -> Updates {
    let mut updates = Updates {
        refused: history.ops.iter().filter(|op| refused(op)).count(),
        with_store: history
            .ops
            .iter()
            .any(|op| op.read.is_some_and(|read| read.plain != Access::NO_STORE)),
        ..Updates::default()
    };
    for (first, second) in pairs(history, &FENCED) {
        updates
            .findings
            .push(lost(history, &FENCED, first, second, ""));
    }
    for (first, second) in pairs(history, &PLAIN) {
        if !explained(history, first, second) {
            let why = ", and nobody who wrote meanwhile was refused where tokens are checked";
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
    updates.lost_plain = count(history, &PLAIN, &plain, &mut Vec::new());
    updates.lost_fenced = count(history, &FENCED, &fenced, &mut updates.findings);
    refused_while_valid(history, &mut updates.findings);
    updates
}

fn refused(op: &Op) -> bool {
    op.read.is_some_and(|read| read.fenced == Access::REFUSED)
        || op
            .ended
            .is_some_and(|end| end.wrote.fenced == Access::REFUSED)
}

/// One of the two was stale; or a stale holder wrote between them and set the counter back, so that good ones came
/// by the same values again. When exactly it wrote is known only within limits, and for one that was killed while
/// it wrote there is no upper limit.
fn explained(history: &History, first: &Op, second: &Op) -> bool {
    let since = first.writing.unwrap_or(first.invoked);
    let until = second.ended.map_or(u64::MAX, |end| end.at);
    let stale = |op: &Op| {
        let wrote_from = op.writing.unwrap_or(op.invoked);
        let (maybe, wrote_until) = match op.ended {
            Some(end) => (refused(op), end.at),
            None => (op.writing.is_some(), u64::MAX),
        };
        maybe && op.record() == first.record() && wrote_from <= until && since <= wrote_until
    };
    history.ops.iter().any(stale)
}

fn written(op: &Op, store: &Store) -> Option<u64> {
    op.ended.and_then(|end| (store.of)(end.wrote).value())
}

fn lost(history: &History, store: &Store, first: &Op, second: &Op, why: &str) -> Finding {
    let value = written(second, store).unwrap_or(0);
    Finding {
        kind: Kind::LostUpdate,
        text: format!(
            "an update was lost in {}: both wrote {value}{why}: {} and {}",
            store.what,
            history.tell(first),
            history.tell(second)
        ),
    }
}

/// Two that wrote the same value to the same record, one after the other.
fn pairs<'a>(history: &'a History, store: &Store) -> Vec<(&'a Op, &'a Op)> {
    let mut seen: HashMap<(String, u64), &Op> = HashMap::new();
    let mut pairs = Vec::new();
    let mut ops: Vec<&Op> = history.ops.iter().collect();
    ops.sort_by_key(|op| op.ended.map(|end| end.at));
    for op in ops {
        let (Some(value), Some(record)) = (written(op, store), op.record()) else {
            continue;
        };
        if let Some(other) = seen.insert((record, value), op) {
            pairs.push((other, op));
        }
    }
    pairs
}

type Ends<'a> = BTreeMap<&'a str, u64>;

/// How many updates are missing at the end. Each pair names two of them at most; this counts all,
/// and sees also what was overwritten by a write that nobody heard the answer of.
fn count(history: &History, store: &Store, ends: &Ends<'_>, findings: &mut Vec<Finding>) -> u64 {
    let mut missing = 0;
    for (name, end) in ends {
        let ops = || {
            let all = history.ops.iter();
            all.filter(|op| op.record().as_deref() == Some(*name))
        };
        let Some(first) = ops()
            .filter_map(|op| op.read.and_then(|read| (store.of)(read).value()))
            .min()
        else {
            continue;
        };
        let writes = ops().filter(|op| written(op, store).is_some()).count() as u64;
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

/// A refused holder has been overtaken by a newer token, so its lease was over.
fn refused_while_valid(history: &History, findings: &mut Vec<Finding>) {
    for op in history.ops.iter().filter(|op| refused(op)) {
        let Some(end) = op.ended else { continue };
        let in_time = op.lost.is_none() && end.at <= op.valid_until;
        if !in_time {
            continue;
        }
        let token = op.granted.map_or(0, |grant| grant.token);
        let newer = history.ops.iter().find(|other| {
            other.record() == op.record()
                && other
                    .granted
                    .is_some_and(|grant| grant.token > token && grant.at <= end.at)
        });
        findings.push(Finding {
            kind: Kind::Fence,
            text: format!(
                "the store refused a holder whose lease was valid: {}; a newer token had {}",
                history.tell(op),
                newer.map_or_else(
                    || "nobody that was recorded".to_owned(),
                    |newer| history.tell(newer)
                )
            ),
        });
    }
}
