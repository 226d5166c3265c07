//! Cases about the slots of a semaphore, for every kind of node (protocol §6).

// A failed case panics, as a test does.
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
        answer::{Answer, PoolInspection, Slots},
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

const MAX_TOKEN: u64 = (1 << 53) - 1;
/// A channel to which nobody listens.
const NOBODY: &str = "quorate:wake:nobody";
/// The channel of another process.
const OTHER: &str = "quorate:wake:other";
/// The p of every request. No counter is ahead of it.
const P: u64 = 1_760_000_000_000_000;

pub(crate) const CASES: &[Case] = &[
    case!(
        "§6 TAKE: it takes the wanted slot, or another free one, with a token from that slot's own counter.",
        a_free_slot_is_taken_and_its_counter_grows
    ),
    case!(
        "§6 TAKE: a free slot is found wherever it is.",
        a_free_slot_is_found_even_if_the_steps_miss_it
    ),
    case!(
        "§6: a semaphore has slots of its own, and so has the pool for callers that take \
         several permits at once.",
        each_semaphore_has_its_own_slots
    ),
    case!(
        "§6 TAKE: a holder that asks again keeps its slot for longer, never for less.",
        a_repeated_take_prolongs_and_never_shortens
    ),
    case!(
        "§6, §10 `MoveMints`: a move gives the old slot up and gets a new token. If it fails, \
         the old slot stays.",
        a_move_takes_the_wanted_slot_in_place_of_the_old
    ),
    case!(
        "§6: an expired slot is free, and its old holder has lost it.",
        a_slot_ends_with_its_ttl
    ),
    case!(
        "§6: a semaphore is forgotten four max_ttl after its last use.",
        an_unused_semaphore_is_forgotten
    ),
    case!(
        "§3, §10 `ProposalCapped`: a p far ahead is capped at TIME + max_ttl, and in a RAISE a minute later.",
        a_slots_counter_stays_near_the_clock
    ),
    case!(
        "§3, §7: the same holds for units of a rate limit, which may be taken for longer than max_ttl.",
        a_units_counter_stays_near_the_clock_too
    ),
    case!(
        "§6 RAISE: only by the holder of this very slot, and only upward.",
        a_raise_needs_this_slot
    ),
    case!(
        "§6 EXTEND: only by the holder of this very slot; it never shortens and never re-creates.",
        an_extension_needs_this_slot
    ),
    case!(
        "§6 REPAIR: only if no other owner has the slot, and the holder has no other. It only \
         prolongs and raises.",
        a_repair_restores_a_lease_that_no_other_owner_holds
    ),
    case!(
        "§6 REPAIR: it restores no slot at or above the limit, and makes no limit if none is known.",
        a_repair_keeps_the_limit
    ),
    case!(
        "§6 RELEASE: it frees the owner's slot unless that is to be kept; a waiter leaves the queue.",
        a_release_frees_the_slot_unless_it_is_to_be_kept
    ),
    case!(
        "§6: another limit is a conflict, and nothing is done.",
        another_limit_is_a_conflict
    ),
    case!(
        "§6: the newer limit stands, and the smaller of two with the same version.",
        the_newer_limit_stands
    ),
    case!(
        "§6: lowering the limit evicts nobody; a slot above the limit stays until it is released.",
        lowering_the_limit_keeps_current_holders
    ),
    case!(
        "§6: waiters are told of each new slot, up to the gate.",
        new_slots_are_called
    ),
    case!(
        "§6: the queue is in the order of the tickets; a later waiter stands behind, no \
         matter what its ticket is.",
        a_later_waiter_queues_behind_earlier_ones
    ),
    case!(
        "§6: the waiters within the gate may take free slots, and none of them is overtaken.",
        the_gate_is_a_third_of_the_slots
    ),
    case!(
        "§6: a queued waiter may take a slot by its place, another caller only slots that the \
         waiters before it leave.",
        a_request_outside_the_queue_overtakes_no_waiter
    ),
    case!(
        "§6: a try takes nothing while a live waiter is queued, and leaves nothing behind.",
        a_try_does_not_overtake
    ),
    case!(
        "§6 YIELD: the slot is free, the place is what it was, and nobody is told.",
        a_waiter_that_yields_returns_to_its_place
    ),
    case!(
        "§6 call: the first waiter is told once which slot is free; the next time the next waiter is told.",
        each_free_slot_is_offered_to_one_waiter
    ),
    case!(
        "§6 call: a waiter of another process is told to ask when the called waiter has had its time.",
        a_waiter_of_another_process_is_told_to_ask_later
    ),
    case!(
        "§6 call: a waiter without a listener leaves the queue, and so does one that was not \
         heard of for its life.",
        dead_or_unreachable_waiters_are_skipped
    ),
    case!(
        "§6 call: a called waiter that does not come within its term loses its place.",
        a_called_waiter_that_does_not_come_loses_its_place
    ),
    case!(
        "§6: a called waiter that has asked again may be called again.",
        a_called_waiter_that_asked_again_may_be_called_again
    ),
    case!(
        "§6: a waiter that enters the gate because another leaves the queue is told.",
        a_waiter_that_enters_the_gate_is_told
    ),
    case!(
        "§6: a waiter that asks while a slot is free is not called, since its answer says so, \
         and no other is called.",
        a_waiter_that_asks_is_answered_and_not_called
    ),
    case!(
        "§6: no more waiters are called than may take a slot.",
        waiters_behind_the_gate_are_not_called
    ),
    case!(
        "§6 INSPECT: it names the first 100 holders and the first 100 waiters.",
        an_inspection_names_a_hundred_of_each
    ),
    case!(
        "§6: without the guard a RELEASE frees the slot, leaves the queue and tells nobody; \
         nothing else is done.",
        a_memory_that_may_not_vote_tells_nobody
    ),
    case!(
        "§6: a full server takes nobody in, but still prolongs and frees.",
        a_full_server_prolongs_and_frees,
        Full
    ),
    case!("§6: a replica changes nothing.", a_replica_refuses, Replica),
    case!(
        "§3: a counter at 2^53 - 1 gives no slot, because a double cannot count on.",
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
        a_survey_sees_that_a_semaphore_was_used
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

/// An owner, and the seat with which it asks.
type Seated = (u128, Seat);

/// A request for a slot of the semaphore "a".
fn request(owner: u128, slot: Option<u32>, verb: Verb) -> Request {
    Request {
        target: Target::Slot(pool("a"), slot),
        entry: entry(owner),
        verb,
    }
}

/// A waiter that is alive and heard.
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

/// An owner that only tries, and takes no place in the queue.
fn once(owner: u128) -> Seated {
    let seat = Seat {
        life: Duration::ZERO,
        ..seat(0)
    };
    (owner, seat)
}

/// Takes a slot for 15 s.
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

/// Moves to a slot. If that is not free, the owner keeps its slot or its place.
fn to(seated: &Seated, limit: u32, want: u32) -> Request {
    take(seated, limit, Mode::Move, Some(want))
}

/// Asks only for a place in the queue.
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
