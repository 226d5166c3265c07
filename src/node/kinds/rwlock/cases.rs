//! What every kind of node has to do with a read-write lock (protocol §4).

// As in a test, a mistake ends it.
#![allow(clippy::panic, clippy::unwrap_used)]

mod any;
mod holders;
mod tokens;
mod told;

use std::time::Duration;

use crate::{
    base::owner::Entry,
    node::{
        self, Command, Push, Says,
        answer::{Answer, RwlockInspection},
        mutex::cases::{DAY, about, entry, name, raises, secs},
        request::{Question, Release, Request, Side, Target, Verb, Waiter, Waiting},
    },
    testing::conformance::{
        Change,
        case::{Case, case},
        trial::{CHANNEL, Trial},
    },
};
pub(crate) use any::{alike, random, random_and_short};
use holders::*;
use tokens::*;
use told::*;

/// The greatest token.
const MAX_TOKEN: u64 = (1 << 53) - 1;
/// A channel to which nobody listens.
const NOBODY: &str = "quorate:wake:nobody";
/// The channel of another process.
const OTHER: &str = "quorate:wake:other";
/// p of whoever asks. No counter is ahead of it.
const P: u64 = 1_760_000_000_000_000;

pub(crate) const CASES: &[Case] = &[
    case!(
        "§4 READ, WRITE: readers beside each other, or one writer.",
        readers_beside_each_other_or_one_writer
    ),
    case!(
        "§4 HELD: until it may be otherwise, and who is against it.",
        a_refusal_says_who_and_for_how_long
    ),
    case!(
        "§4, §10: each reader has an expiry of its own.",
        each_reader_has_its_own_time
    ),
    case!(
        "§4, §10: who waits to write keeps new readers out, for its life, and a try does not.",
        an_intent_keeps_new_readers_out
    ),
    case!(
        "§4: refused readers are let in when a writer leaves, for the window, and writers are not.",
        the_window_lets_in_who_was_refused
    ),
    case!(
        "§4: where no reader was refused there is no window.",
        without_a_refusal_there_is_no_window
    ),
    case!(
        "§4 EXTEND: never shortens, never re-creates, and only as what it is held.",
        an_extension_needs_its_side
    ),
    case!(
        "§4 EXTEND: a writer becomes a reader in one step.",
        a_writer_becomes_a_reader
    ),
    case!(
        "§4 REPAIR: only where nobody is against it; it only prolongs, and only raises.",
        a_repair_puts_back_what_nobody_is_against
    ),
    case!(
        "§4 RELEASE: whatever is ours, once; the guard decides the answer, never the deed.",
        a_release_frees_what_is_ours
    ),
    case!(
        "§4 EVICT: all go, nothing is put back for a while, and the counter stays.",
        an_eviction_frees_all
    ),
    case!(
        "§4 INSPECT: who has it, for how long, who waits to write.",
        an_inspection_tells_all
    ),
    case!(
        "§4: each process in which somebody waits is told once that it was freed, by who asked last.",
        who_waits_is_told_of_a_release
    ),
    case!(
        "§4: nobody is told of what frees nothing, nor who waits no more.",
        nobody_is_told_of_nothing
    ),
    case!(
        "§4: of an attempt in vain nobody is told, and it opens no window.",
        nobody_is_told_of_an_attempt_in_vain
    ),
    case!(
        "§4: the last intent that ends tells readers.",
        the_end_of_an_intent_is_told
    ),
    case!(
        "§4: a writer's token grows; a reader's is the newest, and never 0.",
        tokens_and_epochs
    ),
    case!(
        "§3, §4: an exhausted counter gives no token, and readers go on.",
        an_exhausted_counter_gives_no_token,
        Counters
    ),
    case!(
        "§3, §4: counters rotate with those of locks.",
        counters_of_these_rotate_too,
        Counters
    ),
    case!(
        "§3, §4: a full server frees and prolongs, and takes nothing.",
        a_full_server_frees_and_prolongs,
        Full
    ),
];

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Asked for a side of the lock of this name.
fn request(n: &str, side: Side, owner: u128, verb: Verb) -> Request {
    Request {
        target: Target::Rwlock(name(n), side),
        entry: entry(owner),
        verb,
    }
}

/// Heard, and alive for long.
fn wait(owner: u128) -> Waiter {
    Waiter {
        entry: entry(owner),
        life: secs(18),
        channel: CHANNEL.into(),
    }
}

fn acquires(ttl: Duration, floor: u64, waiter: Option<Waiter>) -> Verb {
    let wait = waiter.map_or(Waiting::No, Waiting::Told);
    Verb::Acquire { ttl, floor, wait }
}

fn read(n: &str, owner: u128, ttl: Duration, floor: u64, waiter: Option<Waiter>) -> Request {
    request(n, Side::Reader, owner, acquires(ttl, floor, waiter))
}

fn write(n: &str, owner: u128, ttl: Duration, floor: u64, waiter: Option<Waiter>) -> Request {
    request(n, Side::Writer, owner, acquires(ttl, floor, waiter))
}

/// Of the lock "a", for 15 s.
fn reads(owner: u128) -> Request {
    read("a", owner, secs(15), P, None)
}

/// The same.
fn writes(owner: u128) -> Request {
    write("a", owner, secs(15), P, None)
}

fn extend(n: &str, owner: u128, side: Side, ttl: Duration, window: Duration) -> Request {
    request(n, side, owner, Verb::Extend { ttl, window })
}

fn repair(n: &str, owner: u128, side: Side, ttl: Duration, token: u64) -> Request {
    request(n, side, owner, Verb::Repair { ttl, token })
}

fn raise(owner: u128, token: u64) -> Request {
    request("a", Side::Writer, owner, raises(token))
}

/// Of "a"; a writer opens a window of 5 s.
fn release(owner: u128) -> Request {
    release_of(owner, None)
}

fn release_of(owner: u128, waited: Option<u128>) -> Request {
    release_with("a", owner, waited.map(entry), secs(5))
}

fn release_with(n: &str, owner: u128, waited: Option<Entry>, window: Duration) -> Request {
    let release = Release {
        window,
        waited,
        ..Release::default()
    };
    request(n, Side::Writer, owner, Verb::Release(release))
}

/// What an attempt got and did not win with.
fn taken_back(owner: u128) -> Request {
    release_with("a", owner, None, Duration::ZERO)
}

fn inspect(n: &str) -> Question {
    Question::InspectRwlock(name(n))
}

fn evict(n: &str) -> Question {
    Question::EvictRwlock(name(n))
}

/// It must answer.
async fn say(trial: &mut Trial<'_>, command: impl Into<Command>) -> Answer {
    trial.say(command).await
}

/// The token, where it is granted.
async fn granted(trial: &mut Trial<'_>, command: Request) -> u64 {
    match say(trial, command.clone()).await {
        Answer::Granted(token) => token,
        other => panic!("{}: {command:?}: {other:?}", trial.name()),
    }
}

/// For how long it is refused, the counter, and by whom.
async fn refused(trial: &mut Trial<'_>, command: Request) -> (Duration, u64, Option<String>) {
    match say(trial, command.clone()).await {
        Answer::Held {
            remaining: Some(left),
            counter,
            holder,
            ..
        } => (left, counter, holder.map(|text| text.to_string())),
        other => panic!("{}: {command:?}: {other:?}", trial.name()),
    }
}

async fn inspected(trial: &mut Trial<'_>) -> RwlockInspection {
    match say(trial, inspect("a")).await {
        Answer::InspectedRwlock(inspected) => *inspected,
        other => panic!("{}: {other:?}", trial.name()),
    }
}

fn text(owner: u128) -> String {
    entry(owner).as_str().to_owned()
}

/// How long the shortest time lasts, and a little more.
async fn nap() {
    tokio::time::sleep(millis(60)).await;
}
