//! Frees a slot from its holder, which the nodes have named in an earlier round.

use super::Freed;
use crate::{
    Error, Silence,
    base::owner::Entry,
    engine::{net::Net, round},
    node::{
        answer::PoolInspection,
        request::{Pool, Target},
        session::{Purpose, RoundId},
    },
    protocol::ballot::answers::{Answers, Heard},
};

/// The holder of the slot on each node, by the node's index. `None`: the node names no holder, or did not answer. An
/// error: the slot is taken, and no node names its holder.
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
            "slot {slot} is taken, and nobody knows by whom: each node names the holders of its first 100 slots that are taken"
        ))),
        false => Ok(holders),
    }
}

/// Frees the slot on each node from the holder that the node has named. Other nodes are not asked to: there the same holder
/// may have another slot, which it won.
pub(super) fn free<'a>(
    net: &mut Net,
    round: RoundId,
    pool: &Pool,
    slot: u32,
    nodes: impl Iterator<Item = (&'a Heard<PoolInspection>, &'a Option<Entry>)>,
) -> Answers<Freed> {
    let target = Target::Slot(pool.clone(), Some(slot));
    let until = net.now.plus(net.fleet().max_ttl());
    let tag = Purpose::EvictSlot.of(round);
    let mut answers = Answers::new(net.total());
    for (node, (heard, holder)) in nodes.enumerate() {
        match (heard, holder) {
            (_, Some(holder)) => {
                let operation = target.ask(holder, net.release(0, None));
                round::release(net, Some(tag), &operation, [node], until);
            }
            (Heard::Said(inspected), None) if !inspected.taken.has(slot) => {
                answers.set(node, Ok(Freed));
            }
            (Heard::Said(_), None) => {
                let why = "it names no holder of the slot, which is taken there";
                answers.set(node, Err(Silence::Failed(why.into())));
            }
            (Heard::Silent(silence), None) => answers.set(node, Err(silence.clone())),
            (Heard::Waiting, None) => answers.set(node, Err(Silence::TimedOut)),
        }
    }
    for (node, state) in net.states().enumerate() {
        if let Some(silence) = state.silence() {
            answers.set(node, Err(silence));
        }
    }
    round::arm(net, tag);
    answers
}
