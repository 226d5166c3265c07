//! Commands at random, and what is alike in the answers to them.

use super::*;
use crate::testing::conformance::random::{Chance, SOON, near};

/// Any command, of few semaphores and owners.
pub(crate) fn random(chance: &mut Chance) -> Command {
    let pool = random_pool(chance);
    let owner = u128::from(chance.up_to(7));
    let entry = entry(owner);
    let slot = random_slot(chance);
    let ttl = secs(chance.one(&[11, 14, 17, 20]));
    match chance.up_to(100) {
        0..45 => random_take(chance, pool, owner, ttl),
        45..50 => Command::Raise {
            pool,
            entry,
            slot,
            token: chance.floor() + chance.up_to(3),
        },
        50..58 => Command::Extend {
            pool,
            entry,
            slot,
            ttl,
        },
        58..65 => Command::Repair {
            pool,
            entry,
            slot,
            ttl,
            token: match chance.up_to(10) {
                0 => MAX_TOKEN,
                _ => chance.floor() + chance.up_to(3),
            },
        },
        65..84 => Command::Release {
            pool,
            entry,
            keep: (chance.up_to(4) == 0).then_some(slot),
        },
        84..92 => Command::Yield {
            pool,
            place: random_place(chance, owner),
        },
        92..95 => Command::Resize {
            pool,
            limit: {
                let version = chance.floor();
                random_limit(chance, version)
            },
        },
        _ => Command::Inspect { pool },
    }
}

/// One that is over before the next step: a slot; the life of one who waits; or the time in which it has to come.
pub(crate) fn random_and_short(chance: &mut Chance) -> Command {
    let pool = random_pool(chance);
    let owner = u128::from(chance.up_to(7));
    let short = chance.up_to(3);
    let ttl = if short == 0 { SOON } else { secs(10) };
    let mut command = random_take(chance, pool, owner, ttl);
    if let Command::Take { place, .. } = &mut command {
        match short {
            1 => place.life = SOON,
            2 => place.term = SOON,
            _ => {}
        }
    }
    command
}

fn random_pool(chance: &mut Chance) -> Pool {
    let family = chance.one(&[Family::Permits, Family::Permits, Family::Gatherers]);
    Pool {
        name: name(chance.one(&["a", "7:b"])),
        family,
    }
}

fn random_slot(chance: &mut Chance) -> u32 {
    chance.one(&[0, 0, 0, 1, 1, 2, 2, 3, 7, 12])
}

/// Mostly the same one, or there would be nothing but conflicts. Of a resize it is mostly newer than what stands.
fn random_limit(chance: &mut Chance, version: u64) -> Limit {
    let slots = chance.one(&[3, 3, 3, 3, 3, 3, 3, 3, 1, 2, 4, 9]);
    Limit { version, slots }
}

fn random_take(chance: &mut Chance, pool: Pool, owner: u128, ttl: Duration) -> Command {
    Command::Take {
        pool,
        place: random_place(chance, owner),
        limit: random_limit(chance, 0),
        mode: chance.one(&[Mode::Pick, Mode::Move]),
        want: (chance.up_to(8) > 0).then(|| random_slot(chance)),
        ttl,
        floor: chance.floor(),
    }
}

/// Alive for as long as the test takes, or one that only tries. It has all the time to come when it is called.
fn random_place(chance: &mut Chance, owner: u128) -> Place {
    let channels = [CHANNEL, CHANNEL, CHANNEL, CHANNEL, NOBODY, ""];
    Place {
        entry: entry(owner),
        ticket: 1000 + chance.up_to(6),
        term: secs(60),
        life: secs(chance.one(&[0, 20, 20, 20])),
        channel: chance.one(&channels).into(),
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
        Answer::Slots { next_free, .. } => *next_free = None,
        Answer::InspectedPool(inspected) => {
            for held in &mut inspected.holders {
                held.remaining = Duration::ZERO;
            }
            for (_, waited) in &mut inspected.line {
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
        Answer::Slots { next_free, .. } => vec![*next_free],
        Answer::InspectedPool(inspected) => {
            let left = inspected.holders.iter().map(|held| held.remaining);
            let waited = inspected.line.iter().map(|(_, waited)| *waited);
            left.chain(waited).map(Some).collect()
        }
        _ => Vec::new(),
    }
}
