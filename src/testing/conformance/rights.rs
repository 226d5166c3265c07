//! Commands that a script may not run: a user loses the right to each of them in turn while it is logged in, or the
//! server refuses writes (protocol §3, `WriteThenPublish` and `NothingHalfWritten`).

// A failed case panics, as a test does.
#![allow(clippy::panic)]

use std::time::Duration;

use super::{
    Change,
    case::{Case, case},
    trial::{CHANNEL, Trial},
};
use crate::{
    base::{
        limit::Limit,
        name::{Name, Names},
    },
    node::{
        Command, Says,
        answer::{Answer, Answered, Slots},
        mutex::cases::{NOBODY, P, entry, extends, name, place, raises, releases, secs},
        request::{
            Family, Mode, Place, Pool, Question, Request, Seat, Side, Target, Verb, Waiter, Waiting,
        },
    },
};

pub(crate) const CASES: &[Case] = &[case!(
    "§3 `WriteThenPublish`, `NothingHalfWritten`: whatever command fails, nothing is told that does not stand, and no \
     key is left without an expiry.",
    a_command_that_fails_leaves_nothing_told_and_nothing_for_ever,
    Full,
    Rights
)];

/// The commands of all scripts that can be refused by themselves. (Each script begins with one of the commands that
/// read. If that is refused, nothing has been done.)
const COMMANDS: [&str; 20] = [
    "SET", "DEL", "UNLINK", "RENAME", "HSET", "HDEL", "ZADD", "ZREM", "PEXPIRE", "SPUBLISH", "GET",
    "MGET", "HGET", "HMGET", "ZRANGE", "ZRANK", "ZSCORE", "ZCARD", "PTTL", "TIME",
];

/// The obstacle of the act.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    None,
    /// The user has lost the right to this command.
    Without(&'static str),
    /// OOM. The server refuses a write that may need memory, if it is the first one of a script.
    Full,
    /// NOREPLICAS, and so for MISCONF: the server refuses any write, if it is the first one of a script.
    NoReplicas,
}

impl Trouble {
    fn all() -> impl Iterator<Item = Self> {
        let others = [Self::None, Self::Full, Self::NoReplicas];
        others.into_iter().chain(COMMANDS.map(Self::Without))
    }

    async fn set(self, trial: &Trial<'_>, on: bool) {
        match self {
            Self::None => {}
            Self::Without(command) => {
                trial.change(Change::Withdraw(on.then_some(command))).await;
            }
            Self::Full => trial.change(Change::Full(on)).await,
            Self::NoReplicas => trial.change(Change::NoReplicas(on)).await,
        }
    }
}

/// The number of owners in a scene, from 1.
const OWNERS: u128 = 4;

/// Commands that are carried out with all rights, and one that is then carried out without one of them.
struct Scene {
    before: Vec<Command>,
    act: Command,
    /// The owner of the act.
    owner: u128,
    /// The act gives up what its owner has.
    gives_up: bool,
    target: Target,
}

fn request(target: &Target, owner: u128, verb: Verb) -> Request {
    Request {
        target: target.clone(),
        entry: entry(owner),
        verb,
    }
}

/// A request of this owner for the target.
fn takes(target: &Target, owner: u128, waits: bool, channel: &str) -> Request {
    let wait = match target {
        Target::Mutex(names) if waits && names.one().is_some() => Waiting::Queue(Place {
            channel: channel.into(),
            ..place(1, owner as u64 * 10)
        }),
        Target::Rwlock(..) if waits => Waiting::Told(Waiter {
            entry: entry(owner + 100),
            life: secs(20),
            channel: channel.into(),
        }),
        Target::Mutex(_) | Target::Rwlock(..) => Waiting::No,
        Target::Slot(..) => Waiting::Slot(seat(owner, waits, channel)),
    };
    let verb = Verb::Acquire {
        ttl: secs(10),
        floor: P,
        wait,
    };
    request(target, owner, verb)
}

fn seat(owner: u128, waits: bool, channel: &str) -> Seat {
    Seat {
        limit: LIMIT,
        mode: Mode::Move,
        ticket: owner as u64 * 10,
        term: secs(10),
        life: if waits { secs(20) } else { Duration::ZERO },
        channel: channel.into(),
    }
}

const LIMIT: Limit = Limit {
    version: 1,
    slots: 2,
};

fn pool() -> Pool {
    Pool {
        name: name("slots"),
        family: Family::Permits,
    }
}

fn rwlock(side: Side) -> Target {
    Target::Rwlock(name("rwlock"), side)
}

fn targets() -> [Target; 5] {
    let several = ["two".into(), "three".into()];
    let Ok(several) = Names::new(&several) else {
        panic!("two names")
    };
    [
        Target::mutex(name("one")),
        Target::Mutex(several),
        rwlock(Side::Reader),
        rwlock(Side::Writer),
        Target::Slot(pool(), Some(0)),
    ]
}

fn scenes() -> Vec<Scene> {
    let mut all = Vec::new();
    for target in targets() {
        let mut add = |before: &[Request], act: Request, owner: u128, gives_up: bool| {
            all.push(Scene {
                before: before.iter().cloned().map(Command::from).collect(),
                act: act.into(),
                owner,
                gives_up,
                target: target.clone(),
            });
        };
        let lone = |owner| takes(&target, owner, false, CHANNEL);
        let waits = |owner| takes(&target, owner, true, CHANNEL);
        let unheard = |owner| takes(&target, owner, true, NOBODY);
        let verb = |owner, verb| request(&target, owner, verb);
        let repair = || Verb::Repair {
            ttl: secs(20),
            token: P + 7,
        };
        add(&[], lone(1), 1, false);
        add(&[], waits(1), 1, false);
        add(&[lone(1)], lone(1), 1, false);
        add(&[lone(1)], verb(1, extends(secs(20))), 1, false);
        add(&[lone(1)], verb(1, raises(P + 7)), 1, false);
        add(&[lone(1)], verb(1, repair()), 1, false);
        add(&[], verb(1, repair()), 1, false);
        add(&[lone(1)], verb(2, repair()), 2, false);
        add(&[lone(1)], verb(1, releases(P)), 1, true);
        // One waits behind the holder, and then another does.
        let taken = match &target {
            Target::Slot(pool, _) => {
                let other = Target::Slot(pool.clone(), Some(1));
                vec![lone(1), takes(&other, 4, false, CHANNEL)]
            }
            _ => vec![lone(1)],
        };
        let with = |more: &[Request]| [&*taken, more].concat();
        add(&taken, waits(2), 2, false);
        add(&with(&[waits(2)]), waits(3), 3, false);
        add(&with(&[waits(2)]), lone(3), 3, false);
        add(&with(&[waits(2)]), verb(1, releases(P)), 1, true);
        add(&with(&[waits(2), waits(3)]), verb(1, releases(P)), 1, true);
        // Nobody hears the first waiter.
        add(&with(&[unheard(2)]), verb(1, releases(P)), 1, true);
        add(
            &with(&[unheard(2), waits(3)]),
            verb(1, releases(P)),
            1,
            true,
        );
        // A waiter leaves.
        add(&with(&[waits(2)]), verb(2, releases(P)), 2, true);
        let wait = match &target {
            Target::Mutex(names) if names.one().is_some() => Waiting::Queue(place(1, 20)),
            Target::Slot(..) => Waiting::Slot(seat(1, true, CHANNEL)),
            Target::Mutex(_) | Target::Rwlock(..) => Waiting::No,
        };
        let gives_back = Verb::Yield { floor: P, wait };
        // The waiter is handed the lock, and yields it to the next one.
        let handed = with(&[waits(2), waits(3), verb(1, releases(P))]);
        add(&handed, verb(2, gives_back.clone()), 2, true);
        let its = Verb::Yield {
            floor: P,
            wait: match &target {
                Target::Slot(..) => Waiting::Slot(seat(1, true, CHANNEL)),
                Target::Mutex(names) if names.one().is_some() => Waiting::Queue(place(1, 10)),
                Target::Mutex(_) | Target::Rwlock(..) => Waiting::No,
            },
        };
        add(&[waits(1)], verb(1, its), 1, true);
    }
    // Several names are freed or asked for, and one of them has waiters.
    let (several, two) = (targets().into_iter().nth(1), Target::mutex(name("two")));
    let several = several.unwrap_or_else(|| two.clone());
    let lone = takes(&several, 1, false, CHANNEL);
    let waits = takes(&two, 2, true, CHANNEL);
    let frees = request(&several, 1, releases(P));
    for (before, act, owner, gives_up) in [
        (vec![lone.clone(), waits.clone()], frees, 1, true),
        (
            vec![takes(&two, 3, false, CHANNEL), waits],
            lone.clone(),
            1,
            false,
        ),
    ] {
        all.push(Scene {
            before: before.into_iter().map(Command::from).collect(),
            act: act.into(),
            owner,
            gives_up,
            target: two.clone(),
        });
    }
    // A writer becomes a reader.
    let (reads, writes) = (rwlock(Side::Reader), rwlock(Side::Writer));
    for verb in [
        extends(secs(20)),
        Verb::Repair {
            ttl: secs(20),
            token: P + 7,
        },
    ] {
        all.push(Scene {
            before: vec![
                takes(&writes, 1, false, CHANNEL).into(),
                takes(&reads, 2, true, CHANNEL).into(),
            ],
            act: request(&reads, 1, verb).into(),
            owner: 1,
            gives_up: false,
            target: reads.clone(),
        });
    }
    // A slot is taken in place of another, and the limit changes.
    let slot = |number| Target::Slot(pool(), Some(number));
    let first = Command::from(takes(&slot(0), 1, false, CHANNEL));
    all.push(Scene {
        before: vec![first.clone()],
        act: takes(&slot(1), 1, false, CHANNEL).into(),
        owner: 1,
        gives_up: false,
        target: slot(1),
    });
    for before in [vec![], vec![first]] {
        let limit = Limit {
            version: 2,
            slots: 5,
        };
        all.push(Scene {
            before,
            act: Question::Resize(pool(), limit).into(),
            owner: 1,
            gives_up: false,
            target: slot(0),
        });
    }
    all
}

async fn a_command_that_fails_leaves_nothing_told_and_nothing_for_ever(trial: &mut Trial<'_>) {
    let mut failed = 0;
    for (number, scene) in scenes().iter().enumerate() {
        for trouble in Trouble::all() {
            let what = format!("scene {number}, {:?}, {trouble:?}", scene.act);
            trial.restart_with(secs(20)).await;
            for request in &scene.before {
                trial.say(request.clone()).await;
            }
            trial.pushes().await;
            let before = standing(trial, &scene.target).await;
            trouble.set(trial, true).await;
            let answer = trial.ask(scene.act.clone()).await;
            trouble.set(trial, false).await;
            let pushes = trial.pushes().await;
            let after = standing(trial, &scene.target).await;
            failed += usize::from(answer.is_err());
            assert!(
                trouble != Trouble::None || answer.is_ok(),
                "{what}: {answer:?}"
            );
            let lasting = trial.lasting().await;
            assert!(
                lasting.is_empty(),
                "{what}: without an expiry stay {lasting:?}"
            );
            for push in pushes {
                if let Says::Granted { token, .. } = push.says {
                    let stands = after.iter().find(|held| held.entry == push.entry.as_str());
                    assert!(
                        stands.is_some_and(|held| held.counter >= token),
                        "{what}: {push:?} was told, and {after:?} stands"
                    );
                }
            }
            check(&what, scene, &answer, &before, &after);
            let left = left_after_release(trial, scene).await;
            assert!(
                left.is_empty(),
                "{what}: {answer:?}, and after all {left:?}"
            );
        }
    }
    assert!(failed > 100, "only {failed} commands failed");
}

/// A holder, and the counter of the target.
#[derive(Debug)]
struct Stands {
    entry: String,
    counter: u64,
}

fn check(what: &str, scene: &Scene, answer: &Answered, before: &[Stands], after: &[Stands]) {
    let of = |all: &[Stands], owner| {
        let entry = entry(owner);
        let mut all = all.iter();
        all.find(|held| held.entry == entry.as_str())
            .map(|held| held.counter)
    };
    let ours = of(after, scene.owner);
    let told = match answer {
        Ok(Answer::Granted(token) | Answer::Taken { counter: token, .. }) => Some(*token),
        Ok(Answer::Slots(Slots {
            mine: Some((_, token)),
            ..
        })) => Some(*token),
        Ok(Answer::Raised(token)) => Some(*token),
        Ok(Answer::Extended | Answer::Repaired(true)) => Some(0),
        _ => None,
    };
    if let Some(token) = told {
        assert!(
            ours.is_some_and(|counter| counter >= token),
            "{what}: {answer:?}, and {after:?} stands"
        );
    }
    if let (true, Ok(Answer::Released(_) | Answer::Yielded)) = (scene.gives_up, answer) {
        assert_eq!(ours, None, "{what}: {answer:?}");
    }
    for owner in 1..=OWNERS {
        let (had, has) = (of(before, owner), of(after, owner));
        if had.is_some() && !(scene.gives_up && owner == scene.owner) {
            assert!(
                has.is_some(),
                "{what}: {answer:?}, and {before:?} became {after:?}"
            );
        }
        // A lock without its counter could be followed by a smaller token.
        if had.is_none() && has.is_some() {
            let least = if matches!(scene.target, Target::Rwlock(_, Side::Reader)) {
                1
            } else {
                P
            };
            assert!(has >= Some(least), "{what}: {after:?} stands");
        }
    }
}

/// With all rights again everybody gives up what it has. Returns the owners that still hold or wait.
async fn left_after_release(trial: &mut Trial<'_>, scene: &Scene) -> Vec<String> {
    let acts = scene.act.request().map(|request| request.target.clone());
    for target in acts.iter().chain([&scene.target]) {
        for owner in 1..=OWNERS {
            trial.say(request(target, owner, releases(P))).await;
        }
    }
    let holders = standing(trial, &scene.target).await;
    let mut left: Vec<String> = holders.into_iter().map(|held| held.entry).collect();
    // After a MOVE that failed halfway, the slot that was given up is free when it ends.
    if matches!(scene.target, Target::Slot(_, Some(1))) {
        left.clear();
    }
    let question = match &scene.target {
        Target::Mutex(names) => names.one().cloned().map(Question::InspectMutex),
        Target::Slot(pool, _) => Some(Question::InspectPool(pool.clone())),
        // The notes of its waiters end by themselves.
        Target::Rwlock(..) => None,
    };
    if let Some(question) = question {
        match trial.say(question).await {
            Answer::InspectedMutex(it) => left.extend(it.line.into_iter().map(|one| one.0)),
            Answer::InspectedPool(it) => left.extend(it.line.into_iter().map(|one| one.0)),
            other => panic!("{other:?}"),
        }
    }
    let owners: Vec<String> = (1..=OWNERS)
        .map(|owner| entry(owner).as_str().to_owned())
        .collect();
    left.retain(|entry| owners.contains(entry));
    left
}

/// The holders of the target, each with its counter.
async fn standing(trial: &mut Trial<'_>, target: &Target) -> Vec<Stands> {
    let questions: Vec<Question> = match target {
        Target::Mutex(names) => {
            let all = names.all().iter().map(Name::clone);
            all.map(Question::InspectMutex).collect()
        }
        Target::Rwlock(name, _) => vec![Question::InspectRwlock(name.clone())],
        Target::Slot(pool, _) => vec![Question::InspectPool(pool.clone())],
    };
    let mut all = Vec::new();
    for question in questions {
        let (holders, counter): (Vec<String>, u64) = match trial.say(question).await {
            Answer::InspectedMutex(it) => (
                it.holder.into_iter().map(|held| held.0).collect(),
                it.counter,
            ),
            Answer::InspectedRwlock(it) => {
                let all = it.readers.into_iter().map(|held| held.0);
                let writer = it.writer.map(|held| held.0);
                (all.chain(writer).collect(), it.counter)
            }
            Answer::InspectedPool(it) => {
                for held in it.holders {
                    all.push(Stands {
                        entry: held.holder,
                        counter: held.counter,
                    });
                }
                continue;
            }
            other => panic!("{other:?}"),
        };
        for entry in holders {
            // The text of a lock that came through the queue is "entry seq ticket".
            let entry = entry.split(' ').next().unwrap_or_default().to_owned();
            all.push(Stands { entry, counter });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::COMMANDS;
    use crate::node::kinds::scripts;

    #[test]
    fn every_command_of_the_scripts_is_refused_once() {
        let mut called = BTreeSet::new();
        for script in scripts::all() {
            for call in script.source().split("call(").skip(1) {
                // A call that pcall makes of a function has no quote here.
                if let Some(rest) = call.strip_prefix('\'') {
                    called.extend(rest.split('\'').next());
                }
            }
        }
        // INFO and EXISTS are those of HANDSHAKE and SURVEY, which grant nothing.
        let known: BTreeSet<_> = COMMANDS.into_iter().chain(["INFO"]).collect();
        assert_eq!(called, known);
    }
}
