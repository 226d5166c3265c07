//! Random commands, and a comparison of their answers.

use super::*;
use crate::testing::conformance::random::{Chance, SOON, near};

/// Any command, for a few locks and owners.
pub(crate) fn random(chance: &mut Chance) -> Command {
    let n = chance.one(&["a", "b:c"]);
    let owner = u128::from(chance.up_to(6));
    let ttl = secs(chance.one(&[11, 14, 17, 20]));
    let side = chance.one(&[Side::Reader, Side::Reader, Side::Writer]);
    match chance.up_to(100) {
        0..26 => read(n, owner, ttl, chance.floor(), random_wait(chance)).into(),
        26..42 => write(n, owner, ttl, chance.floor(), random_wait(chance)).into(),
        42..47 => {
            let token = chance.floor() + chance.up_to(3);
            request(n, side, owner, raises(token)).into()
        }
        47..58 => extend(n, owner, side, ttl, random_window(chance)).into(),
        58..65 => repair(n, owner, side, ttl, random_token(chance)).into(),
        65..92 => {
            let waited = (chance.up_to(3) == 0).then(|| entry(chance.up_to(4).into()));
            release_with(n, owner, waited, random_window(chance)).into()
        }
        92..98 => inspect(n).into(),
        // Nothing is repaired under an evicted name, so the other name is never evicted.
        _ => evict("b:c").into(),
    }
}

/// A command whose effect is over before the next step: a lease, or the life of a waiter.
pub(crate) fn random_and_short(chance: &mut Chance) -> Command {
    let n = chance.one(&["a", "b:c"]);
    let owner = u128::from(chance.up_to(6));
    let floor = chance.floor();
    let short = Some(Waiter {
        life: SOON,
        ..wait(chance.up_to(4).into())
    });
    match chance.up_to(4) {
        0 => read(n, owner, SOON, floor, None),
        1 => write(n, owner, SOON, floor, None),
        2 => read(n, owner, secs(10), floor, short),
        _ => write(n, owner, secs(10), floor, short),
    }
    .into()
}

fn random_token(chance: &mut Chance) -> u64 {
    match chance.up_to(10) {
        0 => MAX_TOKEN,
        _ => chance.floor() + chance.up_to(3),
    }
}

/// A window that lasts for as long as the test takes, or none.
fn random_window(chance: &mut Chance) -> Duration {
    secs(chance.one(&[0, 20]))
}

fn random_wait(chance: &mut Chance) -> Option<Waiter> {
    let channel = chance.one(&[CHANNEL, CHANNEL, NOBODY, ""]);
    let waits = Waiter {
        channel: channel.into(),
        ..wait(chance.up_to(4).into())
    };
    (chance.up_to(3) > 0).then_some(waits)
}

/// Equal except for times. The entry that is named may differ: a ms decides which of several has the most time left.
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
        Answer::Held {
            remaining, holder, ..
        } => {
            *remaining = None;
            *holder = None;
        }
        Answer::InspectedRwlock(inspected) => {
            if let Some((_, left)) = &mut inspected.writer {
                *left = None;
            }
            for some in [&mut inspected.readers, &mut inspected.waiters] {
                some.iter_mut().for_each(|(_, left)| *left = Duration::ZERO);
                some.sort();
            }
        }
        Answer::Evicted { holders, .. } => holders.sort(),
        _ => {}
    }
    reply
}

/// The times of the answer.
fn times(reply: &Answer) -> Vec<Option<Duration>> {
    match reply {
        Answer::Held { remaining, .. } => vec![*remaining],
        Answer::InspectedRwlock(inspected) => {
            let writer = inspected.writer.iter().map(|(_, left)| *left);
            let others = inspected.readers.iter().chain(&inspected.waiters);
            let mut all: Vec<_> = writer.chain(others.map(|(_, left)| Some(*left))).collect();
            all.sort();
            all
        }
        _ => Vec::new(),
    }
}
