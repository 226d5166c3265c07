//! No lock, no slot, no share and no place is left on a node once every holder released and every wish was given up.

use super::{
    Finding,
    operations::{History, Left, Op},
};
use crate::torture::history::{Kind, Side};

pub(super) fn check(history: &History) -> Vec<Finding> {
    let left = history.left.iter().map(|left| {
        let remaining = left
            .remaining_ms
            .map_or("no end".to_owned(), |ms| format!("{ms} ms"));
        let by = left_by(history, left).map_or_else(
            || "no operation in this history is its holder's".to_owned(),
            |op| {
                format!(
                    "the last of its holder's operations on it is {}",
                    history.tell(op)
                )
            },
        );
        format!(
            "{} was left on {}: at {} {:?} stood there, of {}, for {remaining} more; {by}",
            what(left),
            left.node,
            history.time(left.at),
            left.name,
            left.label
        )
    });
    let left = left.map(|text| Finding {
        kind: Kind::Leftover,
        text,
    });
    let unseen = history.unseen.iter().map(|(node, why)| Finding {
        kind: Kind::Unseen,
        text: format!("{node} could not be looked at: {why}"),
    });
    let nobody = (history.looked == 0).then(|| Finding {
        kind: Kind::Unseen,
        text: "nobody looked for what was left: `quorate torture look` does".to_owned(),
    });
    left.chain(unseen).chain(nobody).collect()
}

fn what(left: &Left) -> String {
    match (left.slot, left.side, left.waits) {
        (Some(slot), ..) => format!("slot {slot}"),
        (_, _, true) => "a place of one who waits to write".to_owned(),
        (_, Some(Side::Reader), _) => "a share of one who reads".to_owned(),
        (..) => "a lock".to_owned(),
    }
}

/// The operation with that token; if none has it, the last one of that process on that name until
/// then.
fn left_by<'a>(history: &'a History, left: &Left) -> Option<&'a Op> {
    let its = history.ops.iter().filter(|op| {
        let process = history.processes.get(op.process);
        let its = process.is_some_and(|process| process.label == left.label);
        let asked = op.names.contains(&left.name) && op.side == left.side;
        its && asked && op.invoked <= left.at
    });
    let its: Vec<&Op> = its.collect();
    let by_token = its.iter().find(|op| {
        op.granted
            .is_some_and(|grant| (Some(grant.token), grant.slot) == (left.token, left.slot))
    });
    by_token
        .or_else(|| its.iter().max_by_key(|op| op.invoked))
        .copied()
}
