//! Leftovers: no lock, slot, share or place is left on a node once every holder has released and every wait has ended.

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
            || "no operation in this history belongs to its holder".to_owned(),
            |op| format!("its holder's last operation on it is {}", history.tell(op)),
        );
        format!(
            "{} was left on {}: at {}, of {:?}, by {}, for {remaining} more; {by}",
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
        text: format!("{node} could not be inspected: {why}"),
    });
    let nobody = (history.looked == 0).then(|| Finding {
        kind: Kind::Unseen,
        text: "nobody looked for leftovers: run `quorate torture look`".to_owned(),
    });
    left.chain(unseen).chain(nobody).collect()
}

fn what(left: &Left) -> String {
    match (left.slot, left.side, left.waits) {
        (Some(slot), ..) => format!("slot {slot}"),
        (_, _, true) => "the place of a waiting writer".to_owned(),
        (_, Some(Side::Reader), _) => "a reader's share".to_owned(),
        (..) => "a lock".to_owned(),
    }
}

/// The operation with that token. If none has it, the last operation of that process on that name before the look.
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
