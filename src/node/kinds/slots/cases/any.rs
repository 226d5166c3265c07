//! Random commands, and a comparison of their answers.

use super::*;
use crate::testing::conformance::random::{Chance, SOON, near};

/// Any command, for a few semaphores and owners.
pub(crate) fn random(chance: &mut Chance) -> Command {
    let pool = random_pool(chance);
    let owner = u128::from(chance.up_to(7));
    let slot = random_slot(chance);
    let ttl = secs(chance.one(&[11, 14, 17, 20]));
    let verb = match chance.up_to(100) {
        0..45 => return random_take(chance, pool, owner, ttl).into(),
        45..50 => raises(chance.floor() + chance.up_to(3)),
        50..58 => extends(ttl),
        58..65 => Verb::Repair {
            ttl,
            token: match chance.up_to(10) {
                0 => MAX_TOKEN,
                _ => chance.floor() + chance.up_to(3),
            },
        },
        65..84 => Verb::Release(Release {
            keep: (chance.up_to(4) == 0).then_some(slot),
            ..Release::default()
        }),
        84..92 => Verb::Yield {
            floor: 0,
            wait: Waiting::Slot(random_seat(chance)),
        },
        92..95 => {
            let version = chance.floor();
            return Question::Resize(pool, random_limit(chance, version)).into();
        }
        _ => return Question::InspectPool(pool).into(),
    };
    Command::Request(Request {
        target: Target::Slot(pool, Some(slot)),
        ..request(owner, None, verb)
    })
}

/// A command whose effect is over before the next step: a slot, the life of a waiter, or the term in which it has to
/// come.
pub(crate) fn random_and_short(chance: &mut Chance) -> Command {
    let pool = random_pool(chance);
    let owner = u128::from(chance.up_to(7));
    let short = chance.up_to(3);
    let ttl = if short == 0 { SOON } else { secs(10) };
    let mut take = random_take(chance, pool, owner, ttl);
    if let Verb::Acquire { wait, .. } = &mut take.verb
        && let Waiting::Slot(seat) = wait
    {
        match short {
            1 => seat.life = SOON,
            2 => seat.term = SOON,
            _ => {}
        }
    }
    take.into()
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

/// Mostly the same limit: otherwise there would be only conflicts. The version of a resize is mostly newer than the one
/// that stands.
fn random_limit(chance: &mut Chance, version: u64) -> Limit {
    let slots = chance.one(&[3, 3, 3, 3, 3, 3, 3, 3, 1, 2, 4, 9]);
    Limit { version, slots }
}

fn random_take(chance: &mut Chance, pool: Pool, owner: u128, ttl: Duration) -> Request {
    let seat = random_seat(chance);
    let want = (chance.up_to(8) > 0).then(|| random_slot(chance));
    let take = Verb::Acquire {
        ttl,
        floor: chance.floor(),
        wait: Waiting::Slot(seat),
    };
    Request {
        target: Target::Slot(pool, want),
        ..request(owner, None, take)
    }
}

/// A waiter that lives for as long as the test takes, or an entry that only tries. When called, it has enough time to
/// come.
fn random_seat(chance: &mut Chance) -> Seat {
    let channels = [CHANNEL, CHANNEL, CHANNEL, CHANNEL, NOBODY, ""];
    Seat {
        ticket: 1000 + chance.up_to(6),
        term: secs(60),
        life: secs(chance.one(&[0, 20, 20, 20])),
        channel: chance.one(&channels).into(),
        limit: random_limit(chance, 0),
        mode: chance.one(&[Mode::Pick, Mode::Move]),
    }
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
        Answer::Slots(Slots { next_free, .. }) => *next_free = None,
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

/// The times of the answer.
fn times(reply: &Answer) -> Vec<Option<Duration>> {
    match reply {
        Answer::Slots(Slots { next_free, .. }) => vec![*next_free],
        Answer::InspectedPool(inspected) => {
            let left = inspected.holders.iter().map(|held| held.remaining);
            let waited = inspected.line.iter().map(|(_, waited)| *waited);
            left.chain(waited).map(Some).collect()
        }
        _ => Vec::new(),
    }
}
