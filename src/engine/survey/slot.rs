//! Frees a slot from its holder. The nodes have named the holder in an earlier survey.

use crate::{
    Error, Silence,
    base::owner::Entry,
    engine::{cluster::Cluster, round},
    node::{
        answer::{Answer, PoolInspection},
        request::{Pool, Target},
        session::{DutyId, Tag},
    },
    protocol::ballot::answers::{Answers, Heard},
};

/// The holder of the slot on each node, by the node's index. `None` if the node names no holder or did not answer.
/// Returns an error if the slot is taken and no node names its holder.
pub(super) fn holders(
    answers: &Answers<PoolInspection>,
    slot: u32,
) -> Result<Vec<Option<Entry>>, Error> {
    let mut is_taken = false;
    let holder = |heard: &Heard<PoolInspection>| {
        let Heard::Said(inspected) = heard else {
            return None;
        };
        is_taken |= inspected.taken.has(slot);
        let mut holders = inspected.holders.iter();
        let held = holders.find(|held| held.slot == slot)?;
        Entry::read(&held.holder)
    };
    let holders: Vec<Option<Entry>> = answers.iter().map(holder).collect();
    match is_taken && holders.iter().all(Option::is_none) {
        true => Err(Error::Invalid(format!(
            "slot {slot} is taken by an unknown holder: each node names the holders of its first 100 slots that are taken"
        ))),
        false => Ok(holders),
    }
}

/// Frees the slot on each node from the holder that the node has named. No other node is asked: the same holder may
/// have another slot there, which it won.
pub(super) fn release<'a>(
    cluster: &mut Cluster,
    tag: Tag,
    pool: &Pool,
    slot: u32,
    nodes: impl Iterator<Item = (&'a Heard<PoolInspection>, &'a Option<Entry>)>,
) -> (Answers<Answer>, Vec<(usize, DutyId)>) {
    let target = Target::Slot(pool.clone(), Some(slot));
    let until = cluster.now.plus(cluster.fleet().max_ttl());
    let (mut answers, mut owed) = (Answers::new(cluster.total()), Vec::new());
    for (node, (heard, holder)) in nodes.enumerate() {
        match (heard, holder) {
            (_, Some(holder)) => {
                let operation = target.operation(holder, cluster.release_verb(0, None));
                owed.extend(round::release(
                    cluster,
                    Some(tag),
                    &operation,
                    [node],
                    until,
                ));
            }
            (Heard::Said(inspected), None) if !inspected.taken.has(slot) => {
                // The slot is free there already, so this node counts as one that has freed it.
                answers.set(node, Ok(Answer::Released(true)));
            }
            (Heard::Said(_), None) => {
                let why = "the slot is taken there, but its holder is not named";
                answers.set(node, Err(Silence::Failed(why.into())));
            }
            (Heard::Silent(silence), None) => answers.set(node, Err(silence.clone())),
            (Heard::Waiting, None) => answers.set(node, Err(Silence::TimedOut)),
        }
    }
    for (node, state) in cluster.states().enumerate() {
        if let Some(silence) = state.silence() {
            answers.set(node, Err(silence));
        }
    }
    round::arm(cluster, tag);
    (answers, owed)
}
