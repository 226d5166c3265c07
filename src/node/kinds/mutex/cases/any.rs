//! Commands at random, and what is alike in the answers to them.

use super::*;
use crate::testing::conformance::random::{Chance, SOON, near};

/// Any command, of few names and owners.
pub(crate) fn random(chance: &mut Chance) -> Command {
    let n = chance.one(&["a", "b", "c:d", "_"]);
    let owner = u128::from(chance.up_to(4));
    let ttl = secs(chance.one(&[11, 14, 17, 20]));
    let floor = chance.floor();
    match chance.up_to(120) {
        0..20 => acquire(n, owner, ttl, floor),
        20..30 => Command::Raise {
            name: name(n),
            entry: entry(owner),
            seq: chance.one(&[0, 0, 1, 2]),
            token: floor + chance.up_to(3),
        },
        30..40 => extend(n, owner, ttl),
        40..62 => release_for(n, owner, floor),
        62..68 => inspect(n),
        68..76 => repair(n, owner, ttl, floor + chance.up_to(3)),
        76 => repair(n, owner, ttl, MAX_TOKEN),
        77..104 => {
            let place = random_place(chance, owner);
            let join = join_for(n, place, ttl, floor);
            if chance.one(&[false, true]) {
                only_last(join)
            } else {
                join
            }
        }
        104..116 => {
            let place = random_place(chance, owner);
            give_back(n, place, floor)
        }
        // Nothing is put back there any more, so others are left alone.
        _ => evict(chance.one(&["b", "_"])),
    }
}

/// Fresh for as long as the test takes. Its reservation is over at once, or never.
fn random_place(chance: &mut Chance, owner: u128) -> Place {
    let channels = [CHANNEL, CHANNEL, CHANNEL, NOBODY, ""];
    Place {
        entry: entry(owner),
        seq: 1 + chance.up_to(2),
        ticket: 1000 + chance.up_to(6),
        term: secs(60),
        lock_delay: secs(chance.one(&[0, 20])),
        life: secs(20),
        claim: secs(chance.one(&[0, 15])),
        channel: chance.one(&channels).into(),
    }
}

/// One that is over before the next step: a lock; the life of one who waits, and the line's with it if it is alone;
/// or only how fresh it is.
pub(crate) fn random_and_short(chance: &mut Chance) -> Command {
    let n = chance.one(&["a", "b", "c:d", "_"]);
    let (owner, floor) = (u128::from(chance.up_to(4)), chance.floor());
    let place = random_place(chance, owner);
    match chance.up_to(3) {
        0 => acquire(n, owner, SOON, floor),
        1 => join_for(
            n,
            Place {
                life: SOON,
                ..place
            },
            SOON,
            floor,
        ),
        _ => join_for(
            n,
            Place {
                term: SOON,
                ..place
            },
            SOON,
            floor,
        ),
    }
}

/// The same but for the clock.
pub(crate) fn alike(a: &Answer, b: &Answer) -> bool {
    untimed(a) == untimed(b) && {
        let (a, b) = (times(a), times(b));
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| near(*a, *b))
    }
}

/// Without what the clock says.
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

/// What the clock says.
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
