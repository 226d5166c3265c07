//! What every kind of node has to do with a lock and its counter (protocol §3).

// As in a test, a mistake ends it.
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
/// The greatest token.
pub(crate) const MAX_TOKEN: u64 = (1 << 53) - 1;
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) const CASES: &[Case] = &[
    case!(
        "§3: granted where free, refused where held, by each name's own counter.",
        a_lock_is_granted_once_and_its_counter_grows
    ),
    case!("§1: a name is free text.", a_name_may_hold_any_character),
    case!(
        "`break`: the lock is freed no matter who holds it, and its counter stays.",
        an_eviction_frees_and_forgets_no_counter
    ),
    case!(
        "§3 REPAIR: where nobody else holds it; it only prolongs, and only raises the counter.",
        a_repair_puts_back_what_nobody_else_holds
    ),
    case!(
        "§5 REPAIR: where another holds it, the lock is kept for the one whose REPAIR was refused.",
        a_lock_that_a_repair_lacks_is_kept_for_it
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
        "§3 `RotateByAge`: counters older than 2 days become the previous ones and still \
         count; those that were the previous ones are forgotten.",
        counters_rotate_by_age,
        Counters
    ),
    case!(
        "§5 JOIN: a free lock without a line is taken; asked again, it is prolonged, and says by which \
         request it came.",
        a_free_lock_is_taken_by_who_joins
    ),
    case!(
        "§5: EXTEND, RELEASE and REPAIR match the entry whatever follows it, RAISE the entry and its seq.",
        the_entry_counts_whatever_follows_it
    ),
    case!(
        "§5: the line stands in the order of its tickets; ties by entry.",
        the_line_is_in_the_order_of_tickets
    ),
    case!(
        "§5 JOIN: who may only be the last is refused, as an ACQUIRE is, where it would come before somebody.",
        who_may_only_be_last_comes_before_nobody
    ),
    case!(
        "INSPECT names the first 100 who wait, and says how many there are.",
        an_inspection_names_the_first_hundred
    ),
    case!(
        "§5 RELEASE: the head gets the lock for S and the lock-delay, with the releaser's p; the next one is told.",
        a_release_hands_over_to_the_head
    ),
    case!(
        "§5: a head whose channel nobody hears is dropped, and one token is made.",
        a_head_that_nobody_hears_is_dropped
    ),
    case!(
        "§5: who stands behind the head is told when to ask, or the last in line, where that one hears it.",
        where_nobody_hears_the_last_in_line_the_next_is_told
    ),
    case!(
        "§5: who has only just come asks again by itself, and is not told that it is next.",
        who_has_only_just_come_is_not_told_that_it_is_next
    ),
    case!(
        "§5: a head that was not heard of within S/2 is called, and the lock is kept for it.",
        a_head_that_is_not_fresh_is_called
    ),
    case!(
        "§5: who was called and asks again is no longer waited for, but alive.",
        who_was_called_and_asks_again_is_reserved_no_more
    ),
    case!(
        "§5: who was called and does not come within its claim is dropped.",
        who_does_not_come_is_dropped
    ),
    case!(
        "§5: who was not heard of for its life is dropped, and blocks nobody.",
        the_dead_do_not_block
    ),
    case!(
        "§5: for a head without a channel the lock is kept; it asks by itself.",
        who_has_no_channel_is_waited_for
    ),
    case!(
        "§5 YIELD: this very grant goes to whoever stands before; the place stays, the seq is used up.",
        what_is_given_back_goes_to_the_next
    ),
    case!(
        "§5 RELEASE: it leaves the line, and serves where the lock is free.",
        who_gives_up_leaves_the_line
    ),
    case!(
        "§5: without the guard a RELEASE frees and leaves, and serves nobody.",
        a_memory_that_may_not_vote_serves_nobody
    ),
    case!(
        "§5, §3 Batches: what serves sees what came before it, and is seen by what comes behind.",
        a_batch_serves_in_its_order
    ),
    case!(
        "§5: a line is forgotten four lives after the last who waits was heard of.",
        a_line_is_forgotten_after_four_lives
    ),
    case!(
        "§5: a server that is full hands over what is released, and takes nobody into the line.",
        a_full_server_hands_over,
        Full
    ),
    case!(
        "§5: where no token can be made the lock stays free, and the RELEASE is done.",
        an_exhausted_counter_fails_no_release,
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

pub(crate) fn entry(owner: u128) -> Entry {
    Entry::new(uuid::Uuid::from_u128(owner), &Label::new("host:1").unwrap())
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Asked for the mutex of this name.
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

/// `floor`: for who gets it next.
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

fn release_for(n: &str, owner: u128, floor: u64) -> Request {
    request(n, owner, releases(floor))
}

/// A channel to which nobody listens.
pub(crate) const NOBODY: &str = "quorate:wake:nobody";

/// An owner, and its place in the queue.
pub(crate) type Queued = (u128, Place);

fn join_for(n: &str, (owner, place): Queued, ttl: Duration, floor: u64) -> Request {
    let wait = Waiting::Queue(place);
    request(n, owner, Verb::Acquire { ttl, floor, wait })
}

/// The same, if it comes before nobody.
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

/// To an eviction: who held it.
pub(crate) fn evicted(holder: Option<u128>) -> Answer {
    Answer::Evicted {
        held: holder.is_some(),
        holders: holder
            .map(|owner| entry(owner).text())
            .into_iter()
            .collect(),
    }
}

/// It must answer.
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

/// Remaining time and counter of a refusal, and who is named.
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
