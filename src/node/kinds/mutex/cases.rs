//! Cases about a lock and its counter, for every kind of node (protocol §3).

// A failed case panics, as a test does.
#![allow(clippy::panic, clippy::unwrap_used)]

mod any;
mod counters;
mod last;
mod line;
mod locks;
mod repairs;
mod served;

use std::{sync::Arc, time::Duration};

use crate::{
    base::{
        name::Name,
        owner::{Entry, Label},
    },
    node::{
        self, Command,
        answer::{Answer, MutexInspection},
        request::{Place, Question, Release, Request, Target, Verb, Waiting},
    },
    testing::conformance::{
        Change,
        case::{Case, case},
        trial::{CHANNEL, GUARD, Trial},
    },
};
pub(crate) use any::{alike, random, random_and_short};
use counters::*;
use last::*;
use line::*;
pub(crate) use line::{P, granted, holder, join, line, millis, next, owners, place, push, stand};
use locks::*;
use repairs::*;
use served::*;

pub(crate) const MAX_TTL: Duration = Duration::from_secs(20);
pub(crate) const MAX_TOKEN: u64 = (1 << 53) - 1;
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) const CASES: &[Case] = &[
    case!(
        "§3: a free lock is granted, a held one is refused, and each name has its own counter.",
        a_lock_is_granted_once_and_its_counter_grows
    ),
    case!("§1: a name is free text.", a_name_may_hold_any_character),
    case!(
        "`break`: the lock is freed no matter who holds it, and its counter stays.",
        an_eviction_frees_the_lock_and_keeps_its_counter
    ),
    case!(
        "§3 REPAIR: only if no other owner holds the lock; it only prolongs, and only raises the counter.",
        a_repair_restores_a_mutex_that_no_other_owner_holds
    ),
    case!(
        "§5 REPAIR: if another owner holds the lock, it is kept for the owner whose REPAIR was refused.",
        a_lock_is_kept_for_the_owner_whose_repair_was_refused
    ),
    case!(
        "§3 REPAIR: the previous counters count too.",
        a_repair_finds_the_previous_counters,
        Counters
    ),
    case!(
        "§3 EVICT, §10 `EvictionLasts`: an evicted lock is not repaired for 2 max_ttl.",
        an_evicted_lock_is_not_repaired
    ),
    case!(
        "§3, §10 `ProposalCapped`: a p far ahead is capped at TIME + max_ttl, never ignored.",
        a_floor_far_ahead_is_capped
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
        "§3: a counter at 2^53 - 1 grants nothing, because a double cannot count on; a holder is still named.",
        an_exhausted_counter_grants_nothing,
        Counters
    ),
    case!(
        "§3 `RotateByAge`: counters older than 2 days become the previous ones and still \
         count; those that were the previous ones are forgotten.",
        counters_rotate_by_age,
        Counters
    ),
    case!(
        "§5 JOIN: it takes a free lock without a queue. A repeated JOIN prolongs it and says \
         which request took it.",
        a_join_takes_a_free_lock
    ),
    case!(
        "§5: EXTEND, RELEASE and REPAIR match a holder by its entry alone, RAISE by its entry and seq.",
        a_holder_is_matched_by_its_entry_and_for_raise_also_by_seq
    ),
    case!(
        "§5: the queue is in the order of the tickets, and of the entries if tickets are equal.",
        the_queue_is_in_ticket_order
    ),
    case!(
        "§5 JOIN: a waiter that may only be the last is refused, like an ACQUIRE, if it would \
         come before another.",
        an_only_last_join_never_comes_before_another_waiter
    ),
    case!(
        "INSPECT names the first 100 waiters, and says how many there are.",
        an_inspection_names_the_first_hundred
    ),
    case!(
        "§5 RELEASE: the head gets the lock for S and the lock-delay, with the releaser's p; \
         the next waiter is told.",
        a_release_hands_over_to_the_head
    ),
    case!(
        "§5: a head whose channel has no listener is dropped, and one token is made.",
        a_head_that_nobody_hears_is_dropped
    ),
    case!(
        "§5: the waiter behind the head is told when to ask, or the last in the queue if that one hears it.",
        the_next_waiter_is_told_if_nobody_hears_the_last_one
    ),
    case!(
        "§5: a new waiter asks again by itself, and is not told that it is next.",
        a_new_waiter_is_not_told_that_it_is_next
    ),
    case!(
        "§5: a head that was not heard of within S/2 is called, and the lock is kept for it.",
        a_head_that_is_not_fresh_is_called
    ),
    case!(
        "§5: when a called waiter asks again, the lock is no longer reserved for it, and the \
         waiter counts as alive.",
        the_reservation_ends_when_the_called_waiter_asks_again
    ),
    case!(
        "§5: a called waiter that does not come within its claim is dropped.",
        a_called_waiter_that_does_not_come_is_dropped
    ),
    case!(
        "§5: a waiter that was not heard of for its life is dropped, and blocks nobody.",
        dead_waiters_do_not_block_the_queue
    ),
    case!(
        "§5: the lock is kept for a head without a channel, which asks by itself.",
        the_lock_is_kept_for_a_head_without_a_channel
    ),
    case!(
        "§5 YIELD: only the named grant is given back, to an earlier waiter; the place stays, \
         and the seq is used up.",
        a_yielded_lock_goes_to_an_earlier_waiter
    ),
    case!(
        "§5 RELEASE: it leaves the queue, and hands a free lock to the head.",
        a_release_by_a_waiter_leaves_the_queue
    ),
    case!(
        "§5: without the guard a RELEASE frees the lock and leaves the queue, and serves nobody.",
        a_memory_that_may_not_vote_serves_nobody
    ),
    case!(
        "§5, §3 Batches: an operation that serves the queue sees those before it, and is seen \
         by those behind it.",
        a_batch_serves_in_its_order
    ),
    case!(
        "§5: a queue is forgotten four lives after its last waiter was heard of.",
        a_queue_is_forgotten_after_four_lives
    ),
    case!(
        "§5: a full server hands over a lock that is released, and takes no waiter into the queue.",
        a_full_server_hands_over,
        Full
    ),
    case!(
        "§5: if no token can be made, the lock stays free, and the RELEASE is done.",
        a_release_succeeds_although_the_counter_is_exhausted,
        Counters
    ),
    case!(
        "§5, §3 `RotateByAge`: a hand-over rotates the counters, and finds the previous ones.",
        a_hand_over_finds_the_previous_counters,
        Counters
    ),
];

pub(crate) fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// Even owners have a plain label. Each odd owner has one of the longest, with all characters that a label may hold,
/// and another one of them first.
pub(crate) fn entry(owner: u128) -> Entry {
    let label = match owner % 2 {
        0 => "host:1".to_owned(),
        _ => {
            let all = ('!'..='~').filter(|c| !matches!(c, '@' | '"' | '\'' | '\\'));
            let first = (owner / 2 % 90) as usize;
            all.cycle().skip(first).take(128).collect()
        }
    };
    Entry::new(uuid::Uuid::from_u128(owner), &Label::new(&label).unwrap())
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A request for the mutex of this name.
pub(crate) fn request(n: &str, owner: u128, verb: Verb) -> Request {
    Request {
        target: Target::mutex(name(n)),
        entry: entry(owner),
        verb,
    }
}

pub(crate) fn acquires(ttl: Duration, floor: u64) -> Verb {
    let wait = Waiting::No;
    Verb::Acquire { ttl, floor, wait }
}

pub(crate) fn raises(token: u64) -> Verb {
    Verb::Raise { seq: 0, token }
}

pub(crate) fn extends(ttl: Duration) -> Verb {
    let window = Duration::ZERO;
    Verb::Extend { ttl, window }
}

/// `floor` is the p for the waiter that gets the lock next.
pub(crate) fn releases(floor: u64) -> Verb {
    Verb::Release(Release {
        floor,
        ..Release::default()
    })
}

pub(crate) fn acquire(n: &str, owner: u128, ttl: Duration, floor: u64) -> Request {
    request(n, owner, acquires(ttl, floor))
}

pub(crate) fn raise(n: &str, owner: u128, token: u64) -> Request {
    request(n, owner, raises(token))
}

pub(crate) fn extend(n: &str, owner: u128, ttl: Duration) -> Request {
    request(n, owner, extends(ttl))
}

pub(crate) fn repair(n: &str, owner: u128, ttl: Duration, token: u64) -> Request {
    request(n, owner, Verb::Repair { ttl, token })
}

pub(crate) fn release(n: &str, owner: u128) -> Request {
    release_for(n, owner, 0)
}

pub(crate) fn release_for(n: &str, owner: u128, floor: u64) -> Request {
    request(n, owner, releases(floor))
}

/// A channel to which nobody listens.
pub(crate) const NOBODY: &str = "quorate:wake:nobody";

/// An owner, and its place in the queue.
pub(crate) type Queued = (u128, Place);

pub(crate) fn join_for(n: &str, (owner, place): Queued, ttl: Duration, floor: u64) -> Request {
    let wait = Waiting::Queue(place);
    request(n, owner, Verb::Acquire { ttl, floor, wait })
}

/// The same, but only as the last in the queue.
fn only_last(mut join: Request) -> Request {
    if let Verb::Acquire { wait, .. } = &mut join.verb
        && let Waiting::Queue(place) = wait
    {
        place.only_last = true;
    }
    join
}

fn give_back(n: &str, (owner, place): Queued, floor: u64) -> Request {
    let wait = Waiting::Queue(place);
    request(n, owner, Verb::Yield { floor, wait })
}

pub(crate) fn inspect(n: &str) -> Question {
    Question::InspectMutex(name(n))
}

pub(crate) fn evict(n: &str) -> Question {
    Question::EvictMutex(name(n))
}

/// The answer to an eviction of this holder.
pub(crate) fn evicted(holder: Option<u128>) -> Answer {
    Answer::Evicted {
        held: holder.is_some(),
        holders: holder
            .map(|owner| entry(owner).text())
            .into_iter()
            .collect(),
    }
}

/// Sends a command that the node must answer.
pub(crate) async fn say(trial: &mut Trial<'_>, command: impl Into<Command>) -> Answer {
    trial.say(command).await
}

pub(crate) async fn remaining(trial: &mut Trial<'_>, n: &str) -> Option<Duration> {
    match say(trial, inspect(n)).await {
        Answer::InspectedMutex(it) => it.holder.and_then(|(_, left)| left),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn counter(trial: &mut Trial<'_>, n: &str) -> u64 {
    match say(trial, inspect(n)).await {
        Answer::InspectedMutex(it) => it.counter,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn about(left: Duration, wanted: Duration) -> bool {
    left <= wanted && left + secs(2) > wanted
}

/// Remaining time, counter and holder of a refusal.
fn held(reply: Answer) -> (Duration, u64, Option<Arc<str>>) {
    match reply {
        Answer::Held {
            remaining: Some(remaining),
            counter,
            holder,
            ..
        } => (remaining, counter, holder),
        other => panic!("{other:?}"),
    }
}
