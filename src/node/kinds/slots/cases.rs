//! What every kind of node has to do with the slots of a semaphore (protocol §6).

// As in a test, a mistake ends it.
#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod any;
mod calls;
mod holders;
mod limits;
mod line;
mod served;
mod slots;
mod told;

use std::time::Duration;

use crate::{
    base::{limit::Limit, taken::Taken},
    node::{
        self, Command, Push, Says,
        answer::{Answer, PoolInspection},
        mutex::cases::{DAY, about, entry, extends, name, raises, secs},
        request::{Family, Mode, Pool, Question, Release, Request, Seat, Target, Verb, Waiting},
    },
    testing::conformance::{
        Change,
        case::{Case, case},
        trial::{CHANNEL, Trial},
    },
};
pub(crate) use any::{alike, random, random_and_short};
use calls::*;
use holders::*;
use limits::*;
use line::*;
use served::*;
use slots::*;
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
        "§6 TAKE: the one that is wanted, or another free one, with a token of the slot's own counter.",
        a_free_slot_is_taken_and_its_counter_grows
    ),
    case!(
        "§6 TAKE: a free slot is found wherever it is.",
        steps_that_lead_to_nothing_free_are_not_gone_for_ever
    ),
    case!(
        "§6: a semaphore has slots of its own, and so have those who take several permits at once.",
        each_semaphore_has_its_own_slots
    ),
    case!(
        "§6 TAKE: who holds a slot keeps it for longer, never for less.",
        who_holds_is_prolonged_and_never_shortened
    ),
    case!(
        "§6, §10 `MoveMints`: who moves gives the old slot up, and gets a new token; else it keeps what it has.",
        a_move_takes_the_wanted_slot_in_place_of_the_old
    ),
    case!(
        "§6: what has expired is free, and is nobody's any more.",
        a_slot_ends_with_its_ttl
    ),
    case!(
        "§6: all that is known is forgotten four max_ttl after its last use.",
        what_is_not_used_is_forgotten
    ),
    case!(
        "§3, §10 `ProposalCapped`: p far ahead is cut to TIME + max_ttl, and a RAISE a minute later.",
        a_slots_counter_stays_near_the_clock
    ),
    case!(
        "§3, §7: the same of the units of a rate limit, which may be taken for longer than max_ttl.",
        a_units_counter_stays_near_the_clock_too
    ),
    case!(
        "§6 RAISE: only the holder of this very slot, only upward.",
        a_raise_needs_this_slot
    ),
    case!(
        "§6 EXTEND: only the holder of this very slot; it never shortens and never re-creates.",
        an_extension_needs_this_slot
    ),
    case!(
        "§6 REPAIR: where nobody else has it, and the holder has no other; it only prolongs, and only raises.",
        a_repair_puts_back_what_nobody_else_has
    ),
    case!(
        "§6 REPAIR: nothing at or above the limit; where none stands, none is made.",
        a_repair_keeps_the_limit
    ),
    case!(
        "§6 RELEASE: what is ours and is not kept; who waits leaves the line.",
        a_release_frees_what_is_not_kept
    ),
    case!(
        "§6: another limit is a conflict, and nothing is done.",
        another_limit_is_a_conflict
    ),
    case!(
        "§6: the newer limit stands, and of two of a version the smaller.",
        the_newer_limit_stands
    ),
    case!(
        "§6: shrinking evicts nobody; what is above the limit stays until it is given back.",
        who_is_above_the_limit_stays
    ),
    case!(
        "§6: who waits is told of each new slot, up to the gate.",
        new_slots_are_called
    ),
    case!(
        "§6: the line stands in the order of its tickets; who asks later stands behind, whatever its ticket.",
        who_asks_later_stands_behind
    ),
    case!(
        "§6: as many as the gate is wide may take what is free, and none of them is overtaken.",
        the_gate_is_a_third_of_the_slots
    ),
    case!(
        "§6: who is in line may take by its place; who is not, only what those before it leave.",
        who_is_not_in_line_overtakes_nobody
    ),
    case!(
        "§6: who only tries takes nothing while anybody alive waits, and leaves nothing behind.",
        a_try_does_not_overtake
    ),
    case!(
        "§6 YIELD: what was held is free, the place is what it was, and nobody is told.",
        who_yields_is_back_in_its_place
    ),
    case!(
        "§6 call: the first in line is told which slot is free, once; the next time the next one.",
        each_free_slot_is_told_to_one
    ),
    case!(
        "§6 call: one of another process is told to ask when the one who was called has had its time.",
        one_of_another_process_is_told_to_ask_later
    ),
    case!(
        "§6 call: whom nobody hears is out of line, and so is who was not heard of for its life.",
        the_dead_are_passed
    ),
    case!(
        "§6 call: who was called and does not come within its term is out of line.",
        who_does_not_come_is_out_of_line
    ),
    case!(
        "§6: who was called and asks again may be called again.",
        who_came_may_be_called_again
    ),
    case!(
        "§6: who comes into the gate as another leaves the line is told.",
        who_comes_into_the_gate_is_told
    ),
    case!(
        "§6: who asks while a slot is free is not called, as its answer tells it; nor is anybody else.",
        who_asks_is_answered_and_not_called
    ),
    case!(
        "§6: no more are called than may take.",
        behind_the_gate_nobody_is_called
    ),
    case!(
        "§6 INSPECT: the first 100 who hold and the first 100 who wait.",
        an_inspection_names_a_hundred_of_each
    ),
    case!(
        "§6: without the guard a RELEASE frees and leaves, and tells nobody; nothing else is done.",
        a_memory_that_may_not_vote_tells_nobody
    ),
    case!(
        "§6: a full server takes nobody in, and prolongs and frees all the same.",
        a_full_server_prolongs_and_frees,
        Full
    ),
    case!("§6: a replica changes nothing.", a_replica_refuses, Replica),
    case!(
        "§3: refused at 2^53 - 1, where a double cannot count on.",
        an_exhausted_counter_gives_no_slot,
        Counters
    ),
    case!(
        "§3 `RotateByAge`: counters older than 2 days become the previous ones and still count.",
        counters_rotate_with_those_of_locks,
        Counters
    ),
    case!(
        "§2 BOOTSTRAP: a slot that was taken shows that the server was used.",
        a_semaphore_shows_use
    ),
];

fn pool(n: &str) -> Pool {
    Pool {
        name: name(n),
        family: Family::Permits,
    }
}

fn slots(slots: u32) -> Limit {
    Limit { version: 0, slots }
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// An owner, and how it asks.
type Seated = (u128, Seat);

/// Asked for a slot of the semaphore "a".
fn request(owner: u128, slot: Option<u32>, verb: Verb) -> Request {
    Request {
        target: Target::Slot(pool("a"), slot),
        entry: entry(owner),
        verb,
    }
}

/// Alive, and heard.
fn seat(ticket: u64) -> Seat {
    Seat {
        limit: slots(1),
        mode: Mode::Pick,
        ticket,
        term: secs(10),
        life: secs(18),
        channel: CHANNEL.into(),
    }
}

/// Takes no place in line.
fn once(owner: u128) -> Seated {
    let seat = Seat {
        life: Duration::ZERO,
        ..seat(0)
    };
    (owner, seat)
}

/// For 15 s.
fn take((owner, seat): &Seated, limit: u32, mode: Mode, want: Option<u32>) -> Request {
    let seat = Seat {
        limit: slots(limit),
        mode,
        ..seat.clone()
    };
    let take = Verb::Acquire {
        ttl: secs(15),
        floor: P,
        wait: Waiting::Slot(seat),
    };
    request(*owner, want, take)
}

fn pick(seated: &Seated, limit: u32, want: u32) -> Request {
    take(seated, limit, Mode::Pick, Some(want))
}

/// To a slot, or where that is not free: what it has, or its place.
fn to(seated: &Seated, limit: u32, want: u32) -> Request {
    take(seated, limit, Mode::Move, Some(want))
}

/// Asks for nothing but its place.
fn wait(seated: &Seated, limit: u32) -> Request {
    take(seated, limit, Mode::Move, None)
}

fn raise(owner: u128, slot: u32, token: u64) -> Request {
    request(owner, Some(slot), raises(token))
}

fn extend(owner: u128, slot: u32, ttl: Duration) -> Request {
    request(owner, Some(slot), extends(ttl))
}

fn repair(owner: u128, slot: u32, token: u64) -> Request {
    let ttl = secs(15);
    request(owner, Some(slot), Verb::Repair { ttl, token })
}

fn release(owner: u128) -> Request {
    release_but(owner, None)
}

fn release_but(owner: u128, keep: Option<u32>) -> Request {
    let release = Release {
        keep,
        ..Release::default()
    };
    request(owner, None, Verb::Release(release))
}

fn give_back((owner, seat): &Seated) -> Request {
    let (floor, wait) = (0, Waiting::Slot(seat.clone()));
    request(*owner, None, Verb::Yield { floor, wait })
}

fn resize(version: u64, slots: u32) -> Question {
    Question::Resize(pool("a"), Limit { version, slots })
}

fn inspect() -> Question {
    Question::InspectPool(pool("a"))
}
