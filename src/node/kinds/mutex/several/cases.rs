//! Cases about several locks at once, for every kind of node (protocol §8).

// A failed case panics, as a test does.
#![allow(clippy::panic, clippy::unwrap_used)]

mod any;
mod keeping;
mod lines;
mod taking;

use std::{sync::Arc, time::Duration};

use crate::{
    base::name::Names,
    node::{
        answer::Answer,
        mutex::cases::{self as one, acquires, entry, extends, name, raises, releases, secs},
        request::{Request, Target, Verb},
    },
    testing::conformance::{
        Change,
        case::{Case, case},
        trial::Trial,
    },
};
pub(crate) use any::{alike, random, random_and_short};
use keeping::*;
use lines::*;
use taking::*;

pub(crate) const CASES: &[Case] = &[
    case!(
        "§8: all names are granted, with one token, or none.",
        a_set_is_granted_whole_or_not_at_all
    ),
    case!(
        "§8 HELD: it names the lock held for longest, the first of equals, and the greatest counter.",
        a_refusal_names_the_lock_held_for_longest
    ),
    case!(
        "§8: the token is newer than the last token of each name.",
        one_token_is_newer_than_each_names_last
    ),
    case!("§8: p is capped, never ignored.", the_floor_is_capped),
    case!(
        "§8: a set may have one name, and is a plain mutex then, or 64.",
        a_set_may_have_one_to_sixty_four_names
    ),
    case!(
        "§8: if one counter is at 2^53 - 1, nothing is taken; a holder is still named.",
        one_exhausted_counter_fails_the_whole_set,
        Counters
    ),
    case!(
        "§8, §3 `RotateByAge`: a grant rotates the counters once, and finds the previous ones.",
        counters_rotate_once,
        Counters
    ),
    case!(
        "§8: a full server takes nothing, but still frees and extends.",
        a_full_server_takes_nothing,
        Full
    ),
    case!(
        "§8 RAISE: only if the owner holds all names; only upward, and capped. It answers the least counter.",
        a_raise_needs_all_of_them
    ),
    case!(
        "§8 EXTEND: only if the owner holds all names; it never shortens and never re-creates.",
        an_extension_needs_all_of_them
    ),
    case!(
        "§8 REPAIR: it restores the missing names if no other owner has one of the names.",
        a_repair_restores_the_missing_names
    ),
    case!(
        "§8 REPAIR: if a name was evicted, or the token is too far ahead, nothing is written.",
        a_repair_that_is_refused_writes_nothing
    ),
    case!(
        "§8 RELEASE: it frees the owner's locks, and no others.",
        a_release_frees_only_what_its_owner_holds
    ),
    case!(
        "§8: without the guard a RELEASE frees the locks and serves nobody, and nothing else is done.",
        a_memory_that_may_not_vote_frees
    ),
    case!(
        "§8: an ACQUIRE does not overtake a queue; a live waiter is served, and nothing is taken.",
        a_set_does_not_overtake_a_queue
    ),
    case!(
        "§8: a dead waiter does not keep a set from its locks.",
        dead_waiters_do_not_block_a_set
    ),
    case!(
        "§8: a head that was called keeps its lock from a set.",
        a_called_head_keeps_its_lock_from_a_set
    ),
    case!(
        "§8 RELEASE: each lock goes to the head of its own queue.",
        a_release_of_a_set_serves_every_queue
    ),
    case!(
        "§8: a full server hands over the locks that a set releases.",
        a_full_server_hands_over_from_a_set,
        Full
    ),
];

/// A request for the mutexes of these names.
fn request(of: &[&str], owner: u128, verb: Verb) -> Request {
    let names: Vec<Arc<str>> = of.iter().map(|name| (*name).into()).collect();
    Request {
        target: Target::Mutex(Names::new(&names).unwrap()),
        entry: entry(owner),
        verb,
    }
}

pub(crate) fn acquire(of: &[&str], owner: u128, ttl: Duration, floor: u64) -> Request {
    request(of, owner, acquires(ttl, floor))
}

pub(crate) fn raise(of: &[&str], owner: u128, token: u64) -> Request {
    request(of, owner, raises(token))
}

pub(crate) fn extend(of: &[&str], owner: u128, ttl: Duration) -> Request {
    request(of, owner, extends(ttl))
}

pub(crate) fn repair(of: &[&str], owner: u128, ttl: Duration, token: u64) -> Request {
    request(of, owner, Verb::Repair { ttl, token })
}

/// `floor` is the p for the waiters that get one of them next.
pub(crate) fn release(of: &[&str], owner: u128, floor: u64) -> Request {
    request(of, owner, releases(floor))
}

/// Sends a command that the node must answer.
async fn say(trial: &mut Trial<'_>, command: Request) -> Answer {
    trial.say(command).await
}

/// The lock that is named, its holder, and the greatest counter of a refusal whose remaining time is about `left`.
fn held(reply: Answer, left: Duration) -> (String, Option<Arc<str>>, u64) {
    match reply {
        Answer::Held {
            which,
            remaining: Some(remaining),
            counter,
            holder,
            ..
        } => {
            assert!(one::about(remaining, left), "{remaining:?}");
            (which.unwrap().to_string(), holder, counter)
        }
        other => panic!("{other:?}"),
    }
}

fn by(owner: u128) -> Option<Arc<str>> {
    Some(entry(owner).text())
}

async fn counters<const N: usize>(trial: &mut Trial<'_>, of: [&str; N]) -> [u64; N] {
    let mut all = [0; N];
    for (counter, n) in all.iter_mut().zip(of) {
        *counter = one::counter(trial, n).await;
    }
    all
}

/// Asserts for how many more seconds, about, these are held.
async fn are_held(trial: &mut Trial<'_>, of: &[(&str, Option<u64>)]) {
    for (n, wanted) in of {
        let left = one::remaining(trial, n).await;
        let is_so = match (left, wanted) {
            (Some(left), Some(wanted)) => one::about(left, secs(*wanted)),
            (left, wanted) => left.is_none() && wanted.is_none(),
        };
        assert!(is_so, "{}: {n}: {left:?}, not {wanted:?}", trial.name());
    }
}
