//! What every kind of node has to do with a lock and its counter (protocol §3).

// As in a test, a mistake ends it.
#![allow(clippy::panic, clippy::unwrap_used)]

mod counters;
mod locks;
mod repairs;

use std::{sync::Arc, time::Duration};

use super::{Command, Reply};
use crate::{
    name::Name,
    node,
    owner::{Entry, Label},
    testing::conformance::{
        Change,
        case::{Case, case},
        random::{Chance, near},
        trial::Trial,
    },
};
use counters::*;
use locks::*;
use repairs::*;

pub(crate) const MAX_TTL: Duration = Duration::from_secs(20);
/// The greatest token.
const MAX_TOKEN: u64 = (1 << 53) - 1;
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) const CASES: &[Case] = &[
    case!(
        "§3: granted where free, refused where held, by each name's own counter.",
        a_lock_is_granted_once_and_its_counter_grows
    ),
    case!("§1: a name is free text.", a_name_may_hold_any_character),
    case!(
        "§3 RAISE: only the holder, only upward.",
        a_raise_needs_the_lock_and_never_lowers
    ),
    case!(
        "§3 EXTEND, §10: it never shortens and never re-creates.",
        an_extension_only_prolongs
    ),
    case!(
        "§3: what has expired is free, and is nobody's any more.",
        an_entry_ends_with_its_ttl
    ),
    case!(
        "`break`: the lock is freed no matter who holds it, and its counter stays.",
        an_eviction_frees_and_forgets_no_counter
    ),
    case!(
        "§3 REPAIR: where nobody else holds it; it only prolongs, and only raises the counter.",
        a_repair_puts_back_what_nobody_else_holds
    ),
    case!(
        "§3 REPAIR: a counter that may not reach the token leaves no lock behind.",
        a_repair_far_ahead_is_refused
    ),
    case!(
        "§3 REPAIR: a counter among the previous ones counts.",
        a_repair_finds_the_previous_counters,
        Counters
    ),
    case!(
        "§3 EVICT, §10 `EvictionLasts`: what was evicted is not put back for 2 max_ttl.",
        what_was_evicted_is_not_put_back
    ),
    case!(
        "§3, §10 `ProposalCapped`: p far ahead is cut to TIME + max_ttl, never ignored.",
        a_floor_far_ahead_is_capped
    ),
    case!(
        "§2, §3: what one damaged counter says does not travel: no raise goes further than a \
         minute beyond where an ACQUIRE may.",
        a_raise_far_ahead_is_capped
    ),
    case!(
        "§10 `NumericCounters`: \"9\" is less than \"10\".",
        counters_are_numbers
    ),
    case!(
        "§3, §10 `AllDigits`: counters keep every digit up to 2^53 - 1.",
        counters_keep_all_digits,
        Counters
    ),
    case!(
        "§3: refused at 2^53 - 1, where a double cannot count on; a holder is still named.",
        an_exhausted_counter_grants_nothing,
        Counters
    ),
    case!(
        "§3 `RotateByAge`: counters older than 7 days become the previous ones and still \
         count; those that were the previous ones are forgotten.",
        counters_rotate_by_age,
        Counters
    ),
];

pub(crate) fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

pub(crate) fn entry(owner: u128) -> Entry {
    Entry::new(uuid::Uuid::from_u128(owner), &Label::new("host:1").unwrap())
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn acquire(n: &str, owner: u128, ttl: Duration, floor: u64) -> Command {
    Command::Acquire {
        name: name(n),
        entry: entry(owner),
        ttl,
        floor,
        max_ttl: MAX_TTL,
    }
}

pub(crate) fn raise(n: &str, owner: u128, token: u64) -> Command {
    Command::Raise {
        name: name(n),
        entry: entry(owner),
        token,
        max_ttl: MAX_TTL,
    }
}

pub(crate) fn extend(n: &str, owner: u128, ttl: Duration) -> Command {
    Command::Extend {
        name: name(n),
        entry: entry(owner),
        ttl,
    }
}

pub(crate) fn repair(n: &str, owner: u128, ttl: Duration, token: u64) -> Command {
    Command::Repair {
        name: name(n),
        entry: entry(owner),
        ttl,
        token,
        max_ttl: MAX_TTL,
    }
}

pub(crate) fn release(n: &str, owner: u128) -> Command {
    Command::Release {
        name: name(n),
        entry: entry(owner),
    }
}

pub(crate) fn inspect(n: &str) -> Command {
    Command::Inspect { name: name(n) }
}

pub(crate) fn evict(n: &str) -> Command {
    Command::Evict {
        name: name(n),
        max_ttl: MAX_TTL,
    }
}

/// It must answer.
pub(crate) async fn say(trial: &mut Trial<'_>, command: Command) -> Reply {
    match trial.say(command).await {
        node::Reply::Mutex(reply) => reply,
        other => panic!("{}: {other:?}", trial.name()),
    }
}

pub(crate) async fn remaining(trial: &mut Trial<'_>, n: &str) -> Option<Duration> {
    match say(trial, inspect(n)).await {
        Reply::Inspected { holder, .. } => holder.and_then(|(_, left)| left),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn counter(trial: &mut Trial<'_>, n: &str) -> u64 {
    match say(trial, inspect(n)).await {
        Reply::Inspected { counter, .. } => counter,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn about(left: Duration, wanted: Duration) -> bool {
    left <= wanted && left + secs(2) > wanted
}

/// Remaining time and counter of a refusal, and who is named.
fn held(reply: Reply) -> (Duration, u64, Option<Arc<str>>) {
    match reply {
        Reply::Held {
            remaining: Some(remaining),
            counter,
            holder,
        } => (remaining, counter, holder),
        other => panic!("{other:?}"),
    }
}

/// Any command, of few names and owners.
pub(crate) fn random(chance: &mut Chance) -> Command {
    let n = chance.one(&["a", "b", "c:d", "_"]);
    let owner = u128::from(chance.up_to(3));
    let ttl = secs(chance.one(&[5, 10, 15, 20]));
    let floor = chance.floor();
    match chance.up_to(70) {
        0..20 => acquire(n, owner, ttl, floor),
        20..30 => raise(n, owner, floor + chance.up_to(3)),
        30..40 => extend(n, owner, ttl),
        40..50 => release(n, owner),
        50..56 => inspect(n),
        56..66 => repair(n, owner, ttl, floor + chance.up_to(3)),
        66 => repair(n, owner, ttl, MAX_TOKEN),
        // Nothing is put back there any more, so others are left alone.
        _ => evict(chance.one(&["b", "_"])),
    }
}

/// One that is over before the next step.
pub(crate) fn random_and_short(chance: &mut Chance) -> Command {
    let n = chance.one(&["a", "b", "c:d", "_"]);
    let (owner, floor) = (u128::from(chance.up_to(3)), chance.floor());
    acquire(n, owner, Duration::from_millis(5), floor)
}

/// The same but for the clock.
pub(crate) fn alike(a: &Reply, b: &Reply) -> bool {
    match (a, b) {
        (
            Reply::Held {
                remaining: r1,
                counter: c1,
                holder: h1,
            },
            Reply::Held {
                remaining: r2,
                counter: c2,
                holder: h2,
            },
        ) => near(*r1, *r2) && c1 == c2 && h1 == h2,
        (
            Reply::Inspected {
                holder: Some((h1, r1)),
                counter: c1,
            },
            Reply::Inspected {
                holder: Some((h2, r2)),
                counter: c2,
            },
        ) => h1 == h2 && near(*r1, *r2) && c1 == c2,
        (a, b) => a == b,
    }
}
