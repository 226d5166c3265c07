//! Cases about a read-write lock, for every kind of node (protocol §4).

// A failed case panics, as a test does.
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

const MAX_TOKEN: u64 = (1 << 53) - 1;
/// A channel to which nobody listens.
const NOBODY: &str = "quorate:wake:nobody";
/// The channel of another process.
const OTHER: &str = "quorate:wake:other";
/// The p of every request. No counter is ahead of it.
const P: u64 = 1_760_000_000_000_000;

pub(crate) const CASES: &[Case] = &[
    case!(
        "§4 READ, WRITE: either any number of readers hold the lock, or one writer.",
        readers_beside_each_other_or_one_writer
    ),
    case!(
        "§4 HELD: it names a holder that conflicts, and the time until that may change.",
        a_refusal_names_the_holder_and_the_remaining_time
    ),
    case!(
        "§4, §10: each reader has an expiry of its own.",
        each_reader_has_its_own_time
    ),
    case!(
        "§4, §10: a writer that waits keeps new readers out for its life; a try to write does not.",
        an_intent_keeps_new_readers_out
    ),
    case!(
        "§4: when a writer leaves, refused readers are let in during the window, and writers are not.",
        the_window_admits_readers_after_a_writer_leaves
    ),
    case!(
        "§4: if no reader was refused, no window opens.",
        without_a_refused_reader_no_window_opens
    ),
    case!(
        "§4 EXTEND: it never shortens, never re-creates, and extends only the side that is held.",
        an_extension_needs_its_side
    ),
    case!(
        "§4 EXTEND: a writer becomes a reader in one step.",
        a_writer_becomes_a_reader
    ),
    case!(
        "§4 REPAIR: only if no holder conflicts; it only prolongs, and only raises the counter.",
        a_repair_restores_a_lease_that_conflicts_with_nobody
    ),
    case!(
        "§4 RELEASE: it frees what its owner holds, once; the guard changes the answer, but not what is done.",
        a_release_frees_only_what_its_owner_holds
    ),
    case!(
        "§4 EVICT: all holders go, nothing is repaired for a while, and the counter stays.",
        an_eviction_frees_all
    ),
    case!(
        "§4 INSPECT: it shows the holders, their remaining times, and the writers that wait.",
        an_inspection_shows_holders_and_waiting_writers
    ),
    case!(
        "§4: each process with a waiter is told of a release once, through the waiter that asked last.",
        a_waiter_in_each_process_is_told_of_a_release
    ),
    case!(
        "§4: no waiter is told if nothing was freed, and none whose wait is over.",
        only_live_waiters_are_told_and_only_if_something_was_freed
    ),
    case!(
        "§4: the rollback of an attempt tells no waiter, and opens no window.",
        a_rolled_back_attempt_notifies_no_waiter
    ),
    case!(
        "§4: when the last intent ends, readers are told.",
        the_end_of_an_intent_is_told
    ),
    case!(
        "§4: a writer's token grows; a reader's is the newest, and never 0.",
        writers_get_growing_tokens_and_readers_the_newest_one
    ),
    case!(
        "§3, §4: an exhausted counter gives no token, and readers go on.",
        an_exhausted_counter_gives_no_token,
        Counters
    ),
    case!(
        "§3, §4: the counters of read-write locks rotate with those of mutexes.",
        rwlock_counters_rotate_too,
        Counters
    ),
    case!(
        "§3, §4: a full server grants nothing, but still frees and prolongs.",
        a_full_server_frees_and_prolongs,
        Full
    ),
];

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A request for a side of the lock of this name.
fn request(n: &str, side: Side, owner: u128, verb: Verb) -> Request {
    Request {
        target: Target::Rwlock(name(n), side),
        entry: entry(owner),
        verb,
    }
}

/// A waiter that is heard, and lives for long.
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

/// Reads the lock "a" for 15 s.
fn reads(owner: u128) -> Request {
    read("a", owner, secs(15), P, None)
}

/// Writes the lock "a" for 15 s.
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

/// Releases "a". A writer opens a window of 5 s.
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

/// Takes back the grant of an attempt that was not won.
fn taken_back(owner: u128) -> Request {
    release_with("a", owner, None, Duration::ZERO)
}

fn inspect(n: &str) -> Question {
    Question::InspectRwlock(name(n))
}

fn evict(n: &str) -> Question {
    Question::EvictRwlock(name(n))
}

/// Sends a command that the node must answer.
async fn say(trial: &mut Trial<'_>, command: impl Into<Command>) -> Answer {
    trial.say(command).await
}

/// The token, which must be granted.
async fn granted(trial: &mut Trial<'_>, command: Request) -> u64 {
    match say(trial, command.clone()).await {
        Answer::Granted(token) => token,
        other => panic!("{}: {command:?}: {other:?}", trial.name()),
    }
}

/// The time for which it is refused, the counter, and the entry that is against it.
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

/// Sleeps for a little longer than the shortest time in these cases.
async fn nap() {
    tokio::time::sleep(millis(60)).await;
}

/// A life that ends within a case, and that outlasts the requests before its end on a busy machine.
const BRIEF: Duration = Duration::from_millis(600);

async fn outlast_brief() {
    tokio::time::sleep(BRIEF + millis(50)).await;
}
