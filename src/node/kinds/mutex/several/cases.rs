//! What every kind of node has to do with several locks at once (protocol §8).

// As in a test, a mistake ends it.
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
    case!("§8: all are granted, with one token, or none.", all_or_none),
    case!(
        "§8 HELD names the one that is held for longest, ties the first, and the greatest counter.",
        the_one_held_for_longest_is_named
    ),
    case!(
        "§8: the token is newer than the last of each name.",
        one_token_is_newer_than_each_names_last
    ),
    case!("§8: p is capped, never ignored.", the_floor_is_capped),
    case!(
        "§8: a set of one, which is a plain mutex, and one of 64.",
        a_set_is_of_any_size
    ),
    case!(
        "§8: one counter at 2^53 - 1 lets nothing be taken; a holder is still named.",
        an_exhausted_counter_spoils_all,
        Counters
    ),
    case!(
        "§8, §3 `RotateByAge`: a grant rotates the counters once, and finds the previous ones.",
        counters_rotate_once,
        Counters
    ),
    case!(
        "§8: a server that is full takes nothing, and frees and extends.",
        a_full_server_takes_nothing,
        Full
    ),
    case!(
        "§8 RAISE: all ours, else nothing; only upward, capped; the least counter is answered.",
        a_raise_needs_all_of_them
    ),
    case!(
        "§8 EXTEND: all ours, else nothing; never shortens, never re-creates.",
        an_extension_needs_all_of_them
    ),
    case!(
        "§8 REPAIR: puts back what is missing, where nobody else has one.",
        a_repair_puts_back_what_is_missing
    ),
    case!(
        "§8 REPAIR: one that was evicted, or a token too far ahead, leaves nothing behind.",
        a_repair_that_is_refused_writes_nothing
    ),
    case!(
        "§8 RELEASE: frees those that are ours, and no others.",
        a_release_frees_what_is_ours
    ),
    case!(
        "§8: without the guard a RELEASE frees, and serves nobody; nothing else is done.",
        a_memory_that_may_not_vote_frees
    ),
    case!(
        "§8: an ACQUIRE does not overtake a line; who is alive there is served, and nothing is taken.",
        a_line_is_not_overtaken
    ),
    case!(
        "§8: who is dead in a line does not keep the set.",
        the_dead_keep_no_set
    ),
    case!(
        "§8: a head that was called keeps its lock from the set.",
        who_was_called_is_waited_for
    ),
    case!(
        "§8 RELEASE: each lock goes to the head of its own line.",
        a_release_serves_every_line
    ),
    case!(
        "§8: a full server hands over what a set releases.",
        a_full_server_hands_over_from_a_set,
        Full
    ),
];

/// Asked for the mutexes of these names.
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

/// `floor`: for who gets one of them next.
pub(crate) fn release(of: &[&str], owner: u128, floor: u64) -> Request {
    request(of, owner, releases(floor))
}

/// It must answer.
async fn say(trial: &mut Trial<'_>, command: Request) -> Answer {
    trial.say(command).await
}

/// Which, whose, and the greatest counter; the remaining time is about this.
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

/// The counters of these.
async fn counters<const N: usize>(trial: &mut Trial<'_>, of: [&str; N]) -> [u64; N] {
    let mut all = [0; N];
    for (counter, n) in all.iter_mut().zip(of) {
        *counter = one::counter(trial, n).await;
    }
    all
}

/// For how much longer these are held, about, in seconds.
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
