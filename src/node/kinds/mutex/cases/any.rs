//! Random commands, and a comparison of their answers.

use super::*;
use crate::testing::conformance::random::{Chance, SOON, near};

/// Any command, for a few names and owners.
pub(crate) fn random(chance: &mut Chance) -> Command {
    let n = chance.one(&["a", "b", "c:d", "_"]);
    let owner = u128::from(chance.up_to(4));
    let ttl = secs(chance.one(&[11, 14, 17, 20]));
    let floor = chance.floor();
    match chance.up_to(120) {
        0..20 => acquire(n, owner, ttl, floor).into(),
        20..30 => {
            let seq = chance.one(&[0, 0, 1, 2]);
            let token = floor + chance.up_to(3);
            request(n, owner, Verb::Raise { seq, token }).into()
        }
        30..40 => extend(n, owner, ttl).into(),
        40..62 => release_for(n, owner, floor).into(),
        62..68 => inspect(n).into(),
        68..76 => repair(n, owner, ttl, floor + chance.up_to(3)).into(),
        76 => repair(n, owner, ttl, MAX_TOKEN).into(),
        77..104 => {
            let place = random_place(chance);
            let join = join_for(n, (owner, place), ttl, floor);
            match chance.one(&[false, true]) {
                true => only_last(join).into(),
                false => join.into(),
            }
        }
        104..116 => {
            let place = random_place(chance);
            give_back(n, (owner, place), floor).into()
        }
        // Nothing is repaired under an evicted name, so the other names are never evicted.
        _ => evict(chance.one(&["b", "_"])).into(),
    }
}

/// A place that stays fresh for as long as the test takes. Its reservation is over at once, or never.
fn random_place(chance: &mut Chance) -> Place {
    let channels = [CHANNEL, CHANNEL, CHANNEL, NOBODY, ""];
    Place {
        only_last: false,
        seq: 1 + chance.up_to(2),
        ticket: 1000 + chance.up_to(6),
        term: secs(60),
        lock_delay: secs(chance.one(&[0, 20])),
        life: secs(20),
        claim: secs(chance.one(&[0, 15])),
        channel: chance.one(&channels).into(),
    }
}

/// A command whose effect is over before the next step. That is a lock, the life of a waiter (and of its queue, if it
/// is alone), or only its freshness.
pub(crate) fn random_and_short(chance: &mut Chance) -> Command {
    let n = chance.one(&["a", "b", "c:d", "_"]);
    let (owner, floor) = (u128::from(chance.up_to(4)), chance.floor());
    let mut place = random_place(chance);
    match chance.up_to(3) {
        0 => return acquire(n, owner, SOON, floor).into(),
        1 => place.life = SOON,
        _ => place.term = SOON,
    }
    join_for(n, (owner, place), SOON, floor).into()
}

/// Equal except for times, which must be near each other.
pub(crate) fn alike(a: &Answer, b: &Answer) -> bool {
    untimed(a) == untimed(b) && {
        let (a, b) = (times(a), times(b));
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| near(*a, *b))
    }
}

/// The answer without its times.
fn untimed(reply: &Answer) -> Answer {
    let mut reply = reply.clone();
    match &mut reply {
        Answer::Held { remaining, .. } => *remaining = None,
        Answer::InLine { ahead, .. } => ahead.remaining = None,
        Answer::InspectedMutex(it) => {
            if let Some((_, left)) = &mut it.holder {
                *left = None;
            }
            for (_, waited) in &mut it.line {
                *waited = Duration::ZERO;
            }
        }
        _ => {}
    }
    reply
}

/// The times of the answer.
fn times(reply: &Answer) -> Vec<Option<Duration>> {
    match reply {
        Answer::Held { remaining, .. } => vec![*remaining],
        Answer::InLine { ahead, .. } => vec![ahead.remaining],
        Answer::InspectedMutex(it) => {
            let left = it.holder.iter().map(|(_, left)| *left);
            left.chain(it.line.iter().map(|(_, waited)| Some(*waited)))
                .collect()
        }
        _ => Vec::new(),
    }
}
