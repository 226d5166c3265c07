//! Cases that are the same for everything that can be held (protocol §3, §4, §6, §8).

// A failed case panics, as a test does.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::time::Duration;

use tokio::time::sleep;

use super::mutex::cases::{about, entry, extends, name, raises, releases, secs};
use crate::{
    base::{limit::Limit, name::Names},
    node::{
        Fault,
        answer::{Answer, Answered, Slots},
        request::{Family, Mode, Pool, Question, Request, Seat, Side, Target, Verb, Waiting},
    },
    testing::conformance::{
        Change,
        case::{Case, case},
        trial::Trial,
    },
};

pub(crate) const CASES: &[Case] = &[
    case!(
        "§3 RAISE: only by the holder, only upward, and at most a minute further than an ACQUIRE may go.",
        a_raise_needs_the_holder_and_is_capped
    ),
    case!(
        "§3 EXTEND, §10: it never shortens a lease and never re-creates one.",
        an_extension_only_prolongs
    ),
    case!(
        "§3: an expired lock is free, and its old holder has lost it.",
        an_expired_lock_is_free
    ),
    case!(
        "§3 RELEASE: it frees the owner's lock, once.",
        a_release_frees_the_owners_lock_once
    ),
    case!(
        "§3 REPAIR: it restores a lease that no other owner holds; it only prolongs, and only \
         raises the counter.",
        a_repair_restores_a_lease_that_no_other_owner_holds
    ),
    case!(
        "§3 REPAIR: if the counter may not reach the token, nothing is written.",
        a_repair_with_a_token_far_ahead_changes_nothing
    ),
    case!(
        "§3 RELEASE: a YIELD without a place and a TAKE without a seat do the same.",
        a_yield_or_take_without_a_place_is_a_release
    ),
    case!(
        "§6: a request for a slot without its number does not match any holder.",
        a_slot_request_without_the_slots_number_fails
    ),
    case!(
        "§2: without the guard a RELEASE frees, and nothing else is done.",
        without_the_guard_only_a_release_is_obeyed
    ),
    case!(
        "§3 `ErrorIsNoAnswer`: a full server grants and raises nothing, but still prolongs and frees.",
        a_full_server_prolongs_and_frees_all,
        Full
    ),
    case!(
        "§3 `ErrorIsNoAnswer`: a replica does nothing.",
        a_replica_does_nothing,
        Replica
    ),
];

/// The p of all requests. No counter is ahead of it.
const P: u64 = 1_760_000_000_000_000;
const MAX_TOKEN: u64 = (1 << 53) - 1;
/// How far a RAISE may go beyond TIME: `max_ttl` of the trials and a minute, in µs.
const AHEAD: u64 = 20_000_000 + 60_000_000;
const WRONG: &str = "20000 3 3 word 5000 another";

/// One target of each kind that can be held.
fn targets() -> [Target; 5] {
    targets_of("a")
}

/// The same, with names that begin with this text.
fn targets_of(begin: &str) -> [Target; 5] {
    let of = |end: &str| name(&format!("{begin} {end}"));
    let several = ["two", "three"].map(|end| format!("{begin} {end}").into());
    let pool = Pool {
        name: of("slots"),
        family: Family::Permits,
    };
    [
        Target::mutex(of("one")),
        Target::Mutex(Names::new(&several).unwrap()),
        Target::Rwlock(of("read"), Side::Reader),
        Target::Rwlock(of("written"), Side::Writer),
        Target::Slot(pool, Some(1)),
    ]
}

fn request(target: &Target, owner: u128, verb: Verb) -> Request {
    Request {
        target: target.clone(),
        entry: entry(owner),
        verb,
    }
}

/// An ACQUIRE of this target that does not wait.
fn acquires(target: &Target, ttl: Duration) -> Verb {
    let wait = match target {
        Target::Mutex(_) | Target::Rwlock(..) => Waiting::No,
        Target::Slot(..) => Waiting::Slot(Seat {
            limit: Limit {
                version: 0,
                slots: 3,
            },
            mode: Mode::Move,
            ticket: 0,
            term: secs(10),
            life: Duration::ZERO,
            channel: "".into(),
        }),
    };
    Verb::Acquire {
        ttl,
        floor: P,
        wait,
    }
}

async fn say(trial: &mut Trial<'_>, target: &Target, owner: u128, verb: Verb) -> Answer {
    trial.say(request(target, owner, verb)).await
}

/// The token, if it was granted.
async fn acquire(trial: &mut Trial<'_>, target: &Target, owner: u128, ttl: u64) -> Option<u64> {
    let acquire = acquires(target, Duration::from_millis(ttl));
    match say(trial, target, owner, acquire).await {
        Answer::Granted(token) => Some(token),
        Answer::Slots(Slots { mine, .. }) => mine.map(|(_, token)| token),
        Answer::Held { .. } => None,
        other => panic!("{target:?}: {other:?}"),
    }
}

/// The time for which the entry still has the target, and the counter. For several mutexes, the shortest time and the
/// least counter.
async fn stands(trial: &mut Trial<'_>, target: &Target, owner: u128) -> (Option<Duration>, u64) {
    let question = match target {
        Target::Mutex(names) => {
            let (mut shortest, mut least) = (Some(Duration::MAX), u64::MAX);
            for name in names.all() {
                let question = Question::InspectMutex(name.clone());
                let (left, counter) = inspected(trial.say(question).await, target, owner);
                (shortest, least) = (shortest.min(left), least.min(counter));
            }
            return (shortest, least);
        }
        Target::Rwlock(name, _) => Question::InspectRwlock(name.clone()),
        Target::Slot(pool, _) => Question::InspectPool(pool.clone()),
    };
    inspected(trial.say(question).await, target, owner)
}

fn inspected(answer: Answer, target: &Target, owner: u128) -> (Option<Duration>, u64) {
    let ours = |who: &str| who == entry(owner).as_str();
    match answer {
        Answer::InspectedMutex(it) => {
            let left = it.holder.filter(|(who, _)| ours(who));
            (left.and_then(|(_, left)| left), it.counter)
        }
        Answer::InspectedRwlock(it) => {
            let writer = it.writer.map(|(who, left)| (who, left.unwrap()));
            let mut all = it.readers.into_iter().chain(writer);
            let left = all.find(|(who, _)| ours(who)).map(|(_, left)| left);
            (left, it.counter)
        }
        Answer::InspectedPool(it) => {
            let held = it.holders.into_iter().find(|held| ours(&held.holder));
            held.map_or((None, 0), |held| (Some(held.remaining), held.counter))
        }
        other => panic!("{target:?}: {other:?}"),
    }
}

async fn is_held_for(trial: &mut Trial<'_>, target: &Target, owner: u128, seconds: u64) {
    let (left, _) = stands(trial, target, owner).await;
    let is_so = left.is_some_and(|left| about(left, secs(seconds)));
    assert!(is_so, "{}: {target:?}: {left:?}", trial.name());
}

async fn a_raise_needs_the_holder_and_is_capped(trial: &mut Trial<'_>) {
    for target in &targets() {
        let nobodys = say(trial, target, 1, raises(P)).await;
        assert_eq!(nobodys, Answer::Lost, "{target:?}");
        let token = acquire(trial, target, 1, 10_000).await.unwrap();
        let anothers = say(trial, target, 2, raises(token + 9)).await;
        assert_eq!(anothers, Answer::Lost, "{target:?}");
        for (to, raised) in [(0, 0), (5, 5), (4, 5)] {
            let answer = say(trial, target, 1, raises(token + to)).await;
            assert_eq!(answer, Answer::Raised(token + raised), "{target:?}");
        }
        assert_eq!(stands(trial, target, 1).await.1, token + 5, "{target:?}");
        let below = trial.wall_us().await + AHEAD - 1_000_000;
        let answer = say(trial, target, 1, raises(below)).await;
        assert_eq!(answer, Answer::Raised(below), "{target:?}");
        for token in [
            trial.wall_us().await + AHEAD + 1_000_000,
            MAX_TOKEN,
            u64::MAX,
        ] {
            let from = trial.wall_us().await + AHEAD;
            let Answer::Raised(raised) = say(trial, target, 1, raises(token)).await else {
                panic!("{target:?}")
            };
            let until = trial.wall_us().await + AHEAD;
            assert!((from..=until).contains(&raised), "{target:?}: {raised}");
            assert_eq!(stands(trial, target, 1).await.1, raised, "{target:?}");
        }
    }
}

async fn an_extension_only_prolongs(trial: &mut Trial<'_>) {
    for target in &targets() {
        let nobodys = say(trial, target, 1, extends(secs(10))).await;
        assert_eq!(nobodys, Answer::Lost, "{target:?}");
        assert_eq!(stands(trial, target, 1).await.0, None, "{target:?}");
        acquire(trial, target, 1, 10_000).await.unwrap();
        let anothers = say(trial, target, 2, extends(secs(20))).await;
        assert_eq!(anothers, Answer::Lost, "{target:?}");
        for (ttl, left) in [(5, 10), (20, 20), (10, 20)] {
            let extended = say(trial, target, 1, extends(secs(ttl))).await;
            assert_eq!(extended, Answer::Extended, "{target:?}");
            is_held_for(trial, target, 1, left).await;
        }
    }
}

async fn an_expired_lock_is_free(trial: &mut Trial<'_>) {
    for target in &targets() {
        acquire(trial, target, 1, 20).await.unwrap();
    }
    sleep(Duration::from_millis(40)).await;
    for target in &targets() {
        for verb in [extends(secs(10)), raises(P + 9)] {
            assert_eq!(
                say(trial, target, 1, verb).await,
                Answer::Lost,
                "{target:?}"
            );
        }
        let released = say(trial, target, 1, releases(0)).await;
        assert_eq!(released, Answer::Released(false), "{target:?}");
        assert_eq!(stands(trial, target, 1).await.0, None, "{target:?}");
        let is_epoch = target.side() == Some(Side::Reader);
        let next = acquire(trial, target, 2, 10_000).await;
        assert_eq!(next, Some(P + u64::from(!is_epoch)), "{target:?}");
    }
}

async fn a_release_frees_the_owners_lock_once(trial: &mut Trial<'_>) {
    for target in &targets() {
        acquire(trial, target, 1, 10_000).await.unwrap();
        if target.side() != Some(Side::Reader) {
            assert_eq!(acquire(trial, target, 2, 10_000).await, None, "{target:?}");
        }
        let anothers = say(trial, target, 3, releases(0)).await;
        assert_eq!(anothers, Answer::Released(false), "{target:?}");
        is_held_for(trial, target, 1, 10).await;
        for freed in [true, false] {
            let answer = say(trial, target, 1, releases(0)).await;
            assert_eq!(answer, Answer::Released(freed), "{target:?}");
        }
        let next = acquire(trial, target, 3, 10_000).await;
        assert!(next.is_some(), "{target:?}");
    }
}

async fn a_yield_or_take_without_a_place_is_a_release(trial: &mut Trial<'_>) {
    let yields = || Verb::Yield {
        floor: P,
        wait: Waiting::No,
    };
    let takes = Verb::Acquire {
        ttl: secs(10),
        floor: P,
        wait: Waiting::No,
    };
    let mut asked: Vec<(Target, Verb)> = targets().map(|target| (target, yields())).into();
    let [.., slot] = targets();
    asked.push((slot, takes));
    for (target, verb) in &asked {
        for freed in [true, false] {
            if freed {
                acquire(trial, target, 1, 10_000).await.unwrap();
            }
            let answer = say(trial, target, 1, verb.clone()).await;
            assert_eq!(answer, Answer::Released(freed), "{target:?} {verb:?}");
            assert_eq!(stands(trial, target, 1).await.0, None, "{target:?}");
        }
        acquire(trial, target, 1, 10_000).await.unwrap();
        let answer = unguarded(trial, target, 1, verb.clone()).await;
        assert_eq!(answer, Ok(Answer::ReleasedUnadmitted), "{target:?}");
        assert_eq!(stands(trial, target, 1).await.0, None, "{target:?}");
    }
}

async fn a_slot_request_without_the_slots_number_fails(trial: &mut Trial<'_>) {
    let [.., slot] = targets();
    let Target::Slot(pool, _) = &slot else {
        panic!()
    };
    acquire(trial, &slot, 1, 10_000).await.unwrap();
    let (unknown, ttl) = (Target::Slot(pool.clone(), None), secs(20));
    for (verb, wanted) in [
        (raises(P + 9), Answer::Lost),
        (extends(ttl), Answer::Lost),
        (Verb::Repair { ttl, token: P + 9 }, Answer::Repaired(false)),
    ] {
        assert_eq!(say(trial, &unknown, 1, verb).await, wanted);
    }
    is_held_for(trial, &slot, 1, 10).await;
    assert_eq!(stands(trial, &slot, 1).await.1, P);
}

async fn a_repair_restores_a_lease_that_no_other_owner_holds(trial: &mut Trial<'_>) {
    // It needs all its digits, and no smaller token would do.
    const TOKEN: u64 = 1_760_000_000_123_457;
    for target in &targets() {
        for (ttl, token, left, counter) in [
            (10, TOKEN, 10, TOKEN),
            (5, 9, 10, TOKEN),
            (20, TOKEN + 1, 20, TOKEN + 1),
        ] {
            let ttl = secs(ttl);
            let answer = say(trial, target, 1, Verb::Repair { ttl, token }).await;
            assert_eq!(answer, Answer::Repaired(true), "{target:?}");
            is_held_for(trial, target, 1, left).await;
            assert_eq!(stands(trial, target, 1).await.1, counter, "{target:?}");
        }
        if target.side() != Some(Side::Reader) {
            let (ttl, token) = (secs(20), TOKEN + 9);
            let answer = say(trial, target, 2, Verb::Repair { ttl, token }).await;
            assert_eq!(answer, Answer::Repaired(false), "{target:?}");
            assert_eq!(stands(trial, target, 1).await.1, TOKEN + 1, "{target:?}");
        }
    }
}

async fn a_repair_with_a_token_far_ahead_changes_nothing(trial: &mut Trial<'_>) {
    for target in &targets() {
        for token in [trial.wall_us().await + AHEAD + 1_000_000, MAX_TOKEN] {
            let ttl = secs(10);
            let repair = request(target, 1, Verb::Repair { ttl, token });
            assert_eq!(trial.error(repair).await, "AHEAD", "{target:?}");
            assert_eq!(stands(trial, target, 1).await, (None, 0), "{target:?}");
        }
        let (ttl, token) = (secs(10), trial.wall_us().await + AHEAD - 1_000_000);
        let answer = say(trial, target, 1, Verb::Repair { ttl, token }).await;
        assert_eq!(answer, Answer::Repaired(true), "{target:?}");
        // If the token is too far ahead, a lock that is held is not prolonged either.
        let (ttl, far) = (secs(20), trial.wall_us().await + AHEAD + 1_000_000);
        let repair = request(target, 1, Verb::Repair { ttl, token: far });
        assert_eq!(trial.error(repair).await, "AHEAD", "{target:?}");
        is_held_for(trial, target, 1, 10).await;
        assert_eq!(stands(trial, target, 1).await.1, token, "{target:?}");
    }
}

/// Sends the request with a guard that does not fit.
async fn unguarded(trial: &mut Trial<'_>, target: &Target, owner: u128, verb: Verb) -> Answered {
    let command = request(target, owner, verb).into();
    trial.ask_with(&command, WRONG).await
}

async fn without_the_guard_only_a_release_is_obeyed(trial: &mut Trial<'_>) {
    for target in &targets() {
        let token = acquire(trial, target, 1, 10_000).await.unwrap();
        let ttl = secs(20);
        for (owner, verb) in [
            (2, acquires(target, ttl)),
            (1, raises(token + 9)),
            (1, extends(ttl)),
            (1, Verb::Repair { ttl, token }),
        ] {
            let answer = unguarded(trial, target, owner, verb).await;
            assert_eq!(answer, Err(Fault::NotAdmitted), "{target:?}");
        }
        is_held_for(trial, target, 1, 10).await;
        assert_eq!(stands(trial, target, 1).await.1, token, "{target:?}");
        for owner in [1, 2] {
            let answer = unguarded(trial, target, owner, releases(0)).await;
            assert_eq!(answer, Ok(Answer::ReleasedUnadmitted), "{target:?}");
        }
        assert_eq!(stands(trial, target, 1).await.0, None, "{target:?}");
    }
}

async fn a_full_server_prolongs_and_frees_all(trial: &mut Trial<'_>) {
    for target in &targets() {
        let token = acquire(trial, target, 1, 10_000).await.unwrap();
        trial.change(Change::Full(true)).await;
        let raise = request(target, 1, raises(token + 1));
        assert_eq!(trial.error(raise).await, "OOM", "{target:?}");
        let extended = say(trial, target, 1, extends(secs(15))).await;
        assert_eq!(extended, Answer::Extended, "{target:?}");
        is_held_for(trial, target, 1, 15).await;
        let ttl = secs(20);
        // All shares of a lock are in one key, and REPAIR may make that key grow.
        if target.side() != Some(Side::Reader) {
            let repaired = say(trial, target, 1, Verb::Repair { ttl, token }).await;
            assert_eq!(repaired, Answer::Repaired(true), "{target:?}");
            is_held_for(trial, target, 1, 20).await;
        }
        let released = say(trial, target, 1, releases(0)).await;
        assert_eq!(released, Answer::Released(true), "{target:?}");
        for verb in [acquires(target, ttl), Verb::Repair { ttl, token }] {
            let command = request(target, 2, verb);
            assert_eq!(trial.error(command).await, "OOM", "{target:?}");
        }
        assert_eq!(stands(trial, target, 2).await.0, None, "{target:?}");
        trial.change(Change::Full(false)).await;
    }
}

async fn a_replica_does_nothing(trial: &mut Trial<'_>) {
    let mut tokens = Vec::new();
    for target in &targets() {
        tokens.push(acquire(trial, target, 1, 10_000).await.unwrap());
    }
    trial.change(Change::Replica(true)).await;
    for target in &targets_of("free") {
        let (ttl, token) = (secs(10), P);
        for verb in [acquires(target, ttl), Verb::Repair { ttl, token }] {
            let command = request(target, 2, verb);
            assert_eq!(trial.error(command).await, "READONLY", "{target:?}");
        }
    }
    for (target, token) in targets().iter().zip(tokens) {
        let ttl = secs(20);
        for verb in [
            raises(token + 1),
            extends(ttl),
            Verb::Repair { ttl, token },
            releases(0),
        ] {
            let command = request(target, 1, verb);
            assert_eq!(trial.error(command).await, "READONLY", "{target:?}");
        }
        let anothers = say(trial, target, 9, releases(0)).await;
        assert_eq!(anothers, Answer::Released(false), "{target:?}");
        is_held_for(trial, target, 1, 10).await;
        assert_eq!(stands(trial, target, 1).await.1, token, "{target:?}");
    }
}
