//! Random commands, and a comparison of their answers.

use super::*;
use crate::testing::conformance::random::{Chance, SOON, near};

/// Any command, with the names and owners of single locks.
pub(crate) fn random(chance: &mut Chance) -> Request {
    let of = random_names(chance);
    let owner = u128::from(chance.up_to(4));
    let ttl = secs(chance.one(&[11, 14, 17, 20]));
    let floor = chance.floor();
    match chance.up_to(100) {
        0..35 => acquire(&of, owner, ttl, floor),
        35..47 => raise(&of, owner, floor + chance.up_to(3)),
        47..57 => extend(&of, owner, ttl),
        57..85 => release(&of, owner, floor),
        85..98 => repair(&of, owner, ttl, floor + chance.up_to(3)),
        _ => repair(&of, owner, ttl, one::MAX_TOKEN),
    }
}

/// Locks that are over before the next step.
pub(crate) fn random_and_short(chance: &mut Chance) -> Request {
    let of = random_names(chance);
    acquire(&of, u128::from(chance.up_to(4)), SOON, chance.floor())
}

fn random_names(chance: &mut Chance) -> Vec<&'static str> {
    let sets: [&[&str]; 9] = [
        &["a", "_"],
        &["b", "_"],
        &["_", "a"],
        &["a", "b"],
        &["b", "c:d"],
        &["a", "c:d"],
        &["_", "c:d"],
        &["a", "b", "c:d"],
        &["_", "a", "b", "c:d"],
    ];
    chance.one(&sets).to_vec()
}

/// Equal except for times. If two locks are held for about equally long, either may be named.
pub(crate) fn alike(a: &Answer, b: &Answer) -> bool {
    match (a, b) {
        (
            Answer::Held {
                which,
                remaining,
                counter,
                holder,
                ..
            },
            Answer::Held {
                which: other,
                remaining: left,
                counter: c,
                holder: by,
                ..
            },
        ) => near(*remaining, *left) && counter == c && (which != other || holder == by),
        (a, b) => a == b,
    }
}
