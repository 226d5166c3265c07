//! What every kind of node has to do with a read-write lock (protocol §4).

// As in a test, a mistake ends it.
#![allow(clippy::panic, clippy::unwrap_used)]

mod any;
mod holders;
mod tokens;
mod told;

use std::time::Duration;

use super::{Command, Side, Wait};
use crate::{
    node::{
        self, Push, Says,
        answer::{Answer, RwlockInspection},
        mutex::cases::{DAY, about, entry, name, secs},
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
        "§4 RAISE: by who has it, upward, and not far ahead.",
        a_raise_needs_a_holder
    ),
    case!(
        "§3, §4: a counter that may not reach the token leaves nothing behind.",
        nothing_is_repaired_far_ahead
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

/// Heard, and alive for long.
fn wait(owner: u128) -> Wait {
    Wait {
        entry: entry(owner),
        life: secs(18),
        channel: CHANNEL.into(),
    }
}

fn read(n: &str, owner: u128, ttl: Duration, floor: u64, wait: Option<Wait>) -> Command {
    Command::Read {
        name: name(n),
        entry: entry(owner),
        ttl,
        floor,
        wait,
    }
}

fn write(n: &str, owner: u128, ttl: Duration, floor: u64, wait: Option<Wait>) -> Command {
    Command::Write {
        name: name(n),
        entry: entry(owner),
        ttl,
        floor,
        wait,
    }
}

/// Of the lock "a", for 15 s.
fn reads(owner: u128) -> Command {
    read("a", owner, secs(15), P, None)
}

/// The same.
fn writes(owner: u128) -> Command {
    write("a", owner, secs(15), P, None)
}

fn extend(n: &str, owner: u128, side: Side, ttl: Duration, window: Duration) -> Command {
    Command::Extend {
        name: name(n),
        entry: entry(owner),
        side,
        ttl,
        window,
    }
}

fn repair(n: &str, owner: u128, side: Side, ttl: Duration, token: u64) -> Command {
    Command::Repair {
        name: name(n),
        entry: entry(owner),
        side,
        ttl,
        token,
    }
}

fn raise(owner: u128, token: u64) -> Command {
    Command::Raise {
        name: name("a"),
        entry: entry(owner),
        token,
    }
}

/// Of "a"; a writer opens a window of 5 s.
fn release(owner: u128) -> Command {
    release_of(owner, None)
}

fn release_of(owner: u128, wait: Option<u128>) -> Command {
    Command::Release {
        name: name("a"),
        entry: entry(owner),
        wait: wait.map(entry),
        window: secs(5),
    }
}

/// What an attempt got and did not win with.
fn taken_back(owner: u128) -> Command {
    Command::Release {
        name: name("a"),
        entry: entry(owner),
        wait: None,
        window: Duration::ZERO,
    }
}

fn evict(n: &str) -> Command {
    Command::Evict { name: name(n) }
}

/// It must answer.
async fn say(trial: &mut Trial<'_>, command: Command) -> Answer {
    trial.say(command).await
}

/// The token, where it is granted.
async fn granted(trial: &mut Trial<'_>, command: Command) -> u64 {
    match say(trial, command.clone()).await {
        Answer::Granted(token) => token,
        other => panic!("{}: {command:?}: {other:?}", trial.name()),
    }
}

/// For how long it is refused, the counter, and by whom.
async fn refused(trial: &mut Trial<'_>, command: Command) -> (Duration, u64, Option<String>) {
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
    match say(trial, Command::Inspect { name: name("a") }).await {
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
