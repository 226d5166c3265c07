//! Random sequences that two subjects must answer alike. They keep the two implementations, Rust and Lua, from drifting
//! apart.

use std::{collections::BTreeSet, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::sleep;

use super::{
    subject::{Change, Key, Power, Subject},
    trial::{GUARD, Trial},
};
use crate::{
    base::{owner::Entry, rules::Rules},
    node::{
        Command, Fault, Push, Says,
        admission::{self, Admit, Handshake, cases::random as admissions},
        answer::{Answer, Answered},
        mutex::{cases as mutexes, several::cases as sets},
        rate::cases as limits,
        request::{Question, Target, Verb},
        rwlock::cases as rwlocks,
        slots::cases as semaphores,
    },
};

/// Anything that lasts this long is over after a [`NAP`], on both subjects.
pub(crate) const SOON: Duration = Duration::from_millis(5);
const NAP: Duration = Duration::from_millis(30);

/// Sends the same `steps` random requests to two subjects, and makes the same changes to both in between. Their answers
/// must be the same, except for their clocks, their runs and the words of an error. The keys of the admission must be
/// the same too.
///
/// A change is left out if one of the subjects has no power to make it. These powers are returned.
pub async fn alike(one: &dyn Subject, two: &dyn Subject, seed: u64, steps: usize) -> Vec<Power> {
    ask_both(one, two, seed, steps, Chance::ask).await
}

/// The same for semaphores alone, on masters that vote all the time. So more of the requests have an effect.
pub async fn slots_alike(
    one: &dyn Subject,
    two: &dyn Subject,
    seed: u64,
    steps: usize,
) -> Vec<Power> {
    ask_both(one, two, seed, steps, Chance::ask_of_slots).await
}

/// The same for read-write locks alone.
pub async fn rwlocks_alike(
    one: &dyn Subject,
    two: &dyn Subject,
    seed: u64,
    steps: usize,
) -> Vec<Power> {
    ask_both(one, two, seed, steps, Chance::ask_of_rwlocks).await
}

/// The same for several locks at once and for each of them alone.
pub async fn several_alike(
    one: &dyn Subject,
    two: &dyn Subject,
    seed: u64,
    steps: usize,
) -> Vec<Power> {
    ask_both(one, two, seed, steps, Chance::ask_of_several).await
}

/// The same for rate limits alone.
pub async fn limits_alike(
    one: &dyn Subject,
    two: &dyn Subject,
    seed: u64,
    steps: usize,
) -> Vec<Power> {
    ask_both(one, two, seed, steps, Chance::ask_of_limits).await
}

async fn ask_both(
    one: &dyn Subject,
    two: &dyn Subject,
    seed: u64,
    steps: usize,
    next: impl Fn(&mut Chance) -> Ask,
) -> Vec<Power> {
    let mut chance = Chance::new(seed, one.wall_us().await);
    let mut peers = [Peer::new(one).await, Peer::new(two).await];
    let powers = [Power::Flush, Power::Full, Power::Keys, Power::Counters];
    let can = |power: Power| peers.iter().all(|peer| peer.trial.can(power));
    let (usable, missing): (Vec<Power>, Vec<Power>) = powers.into_iter().partition(|p| can(*p));
    // Waiters that must come soon after they are called, whenever that is.
    let mut hurried = BTreeSet::new();
    for step in 0..steps {
        let ask = next(&mut chance);
        if ask.needs().iter().any(|power| !usable.contains(power)) {
            continue;
        }
        let [a, b] = &mut peers;
        let answers = [ask.of(a).await, ask.of(b).await];
        let told = || format!("seed {seed}, step {step}: {ask:?}");
        let [first, second] = &answers;
        for (place, (a, b)) in first.iter().zip(second).enumerate() {
            assert!(
                same(ask.command(place), a, b),
                "{}, {place}: {a:?}, {b:?}",
                told()
            );
        }
        let heard = [a.trial.pushes().await, b.trial.pushes().await];
        let heard = heard.map(unnamed);
        assert_eq!(heard[0], heard[1], "after {}", told());
        if usable.contains(&Power::Keys) {
            let stand = [a.trial.stands().await, b.trial.stands().await];
            assert_eq!(stand[0], stand[1], "after {}", told());
        }
        let is_called = heard[0].iter().any(|push| hurried.remove(&push.entry));
        if let Ask::Nap(command) = &ask {
            hurried.extend(who_waits(command).cloned());
        }
        if is_called || matches!(ask, Ask::Nap(_)) {
            sleep(NAP).await;
        }
        if let Some(Ok(Answer::Admission(admission::Reply::Met(meeting)))) = first.first() {
            let record = meeting.stored.record();
            chance.guard = record.map_or(GUARD.into(), |record| record.guard(Rules::ALL));
        }
    }
    missing
}

/// The waiter, if a random command registers one.
fn who_waits(command: &Command) -> Option<&Entry> {
    command.entry_that(|request| {
        matches!(request.verb, Verb::Acquire { .. }) && request.keeps_a_place()
    })
}

/// One of the two subjects. For each of three clients it holds the run and the id that the client read last there,
/// because each subject has its own run.
struct Peer<'s> {
    trial: Trial<'s>,
    known: [Option<(String, String)>; 3],
}

impl<'s> Peer<'s> {
    async fn new(subject: &'s dyn Subject) -> Self {
        let trial = Trial::start(subject).await;
        let known = Default::default();
        Self { trial, known }
    }
}

#[derive(Debug)]
enum Ask {
    /// Flushed together, so that they travel in batches. Mostly it is a single command, which travels alone.
    Commands(Vec<(Command, String)>),
    /// A request whose entry, or place in the queue, has ended after the step.
    Nap(Command),
    /// A handshake of this client. The flag says whether it brings what the client read last, or nothing.
    Hello(Handshake, usize, bool),
    /// An ADMIT of the record that this client read last.
    Admit(Admit, usize),
    /// A change to the master. The keys of the admission and the counters can be written only while it is not full.
    Change(Change),
}

impl Ask {
    fn needs(&self) -> &'static [Power] {
        match self {
            Self::Change(Change::Flush) => &[Power::Flush],
            Self::Change(Change::Full(_)) => &[Power::Full],
            Self::Change(Change::Put(..)) => &[Power::Keys],
            Self::Change(
                Change::Age(_)
                | Change::Counter(..)
                | Change::RwlockCounter(..)
                | Change::SlotCounter(..),
            ) => &[Power::Counters],
            Self::Change(Change::Replica(_)) => &[Power::Replica],
            _ => &[],
        }
    }

    /// The command that got the answer at this position. `None` for an admission.
    fn command(&self, place: usize) -> Option<&Command> {
        match self {
            Self::Commands(asked) => asked.get(place).map(|(command, _)| command),
            Self::Nap(command) => Some(command),
            Self::Hello(..) | Self::Admit(..) | Self::Change(_) => None,
        }
    }

    /// Sends it and returns the answers. A change has no answer.
    async fn of(&self, peer: &mut Peer<'_>) -> Vec<Answered> {
        let Peer { trial, known } = peer;
        match self {
            Self::Commands(asked) => trial.ask_together(asked).await,
            Self::Nap(command) => vec![trial.ask(command.clone()).await],
            Self::Hello(hello, client, knows) => {
                let mut hello = hello.clone();
                hello.known = known[*client].clone().filter(|_| *knows);
                let answer = trial.ask(admission::Command::Handshake(hello)).await;
                if let Ok(Answer::Admission(admission::Reply::Met(meeting))) = &answer {
                    let record = meeting.stored.record();
                    known[*client] = record.map(|r| (r.run.clone(), r.id.clone()));
                }
                vec![answer]
            }
            Self::Admit(admit, client) => {
                let (run, id) = known[*client].clone().unwrap_or_default();
                let admit = Admit {
                    run,
                    id,
                    ..admit.clone()
                };
                vec![trial.ask(admission::Command::Admit(admit)).await]
            }
            Self::Change(change) => {
                let is_written = matches!(
                    change,
                    Change::Put(..) | Change::Age(_) | Change::Counter(..)
                );
                if is_written && trial.can(Power::Full) {
                    trial.change(Change::Full(false)).await;
                }
                match change {
                    Change::Put(key, text) => trial.put(*key, text.as_deref()).await,
                    change => trial.change(change.clone()).await,
                }
                Vec::new()
            }
        }
    }
}

/// Generates the steps.
pub(crate) struct Chance {
    rng: StdRng,
    floor: u64,
    /// The content of `open` if the node of the last handshake votes.
    guard: String,
}

impl Chance {
    fn new(seed: u64, floor: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            floor,
            guard: GUARD.into(),
        }
    }

    /// A random number below `n`.
    pub(crate) fn up_to(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.up_to(of.len() as u64) as usize]
    }

    /// The floor of an ACQUIRE for its counter: none, low, as before, or higher.
    pub(crate) fn floor(&mut self) -> u64 {
        match self.up_to(4) {
            0 => 0,
            1 => self.up_to(120),
            2 => self.floor,
            _ => {
                self.floor += self.up_to(1000);
                self.floor
            }
        }
    }

    fn ask(&mut self) -> Ask {
        let change = match self.up_to(1000) {
            0..180 => return Ask::Commands(vec![self.command(mutexes::random)]),
            180..200 => return Ask::Commands(vec![self.command(limits::random)]),
            200..400 => return Ask::Commands(vec![self.command(semaphores::random)]),
            400..580 => return self.many(),
            580..600 => {
                let survey = self.command(|_| admission::Command::Survey);
                return Ask::Commands(vec![survey]);
            }
            600..604 => return Ask::Nap(mutexes::random_and_short(self)),
            604..608 => return Ask::Nap(semaphores::random_and_short(self)),
            608..620 => Change::Full(true),
            620..650 => Change::Full(false),
            650..652 => Change::Flush,
            652..657 => Change::Age(mutexes::DAY * self.one(&[1, 3])),
            657..690 => Change::Put(self.one(&[Key::Boot, Key::Open]), None),
            690..730 => Change::Put(Key::Boot, Some(admissions::boot(self))),
            730..740 => Change::Put(Key::Open, Some(self.guard.clone())),
            740..790 => return Ask::Admit(admissions::admit(self), self.client()),
            _ => {
                let hello = admissions::hello(self);
                return Ask::Hello(hello, self.client(), self.up_to(4) > 0);
            }
        };
        Ask::Change(change)
    }

    fn ask_of_rwlocks(&mut self) -> Ask {
        match self.up_to(100) {
            0..95 => Ask::Commands(vec![self.command(rwlocks::random)]),
            95 => Ask::Change(Change::Full(true)),
            96..98 => Ask::Change(Change::Full(false)),
            98 => Ask::Nap(rwlocks::random_and_short(self)),
            _ if self.up_to(10) > 0 => Ask::Commands(vec![self.command(rwlocks::random)]),
            _ => Ask::Change(Change::Age(mutexes::DAY * self.one(&[1, 3]))),
        }
    }

    fn ask_of_limits(&mut self) -> Ask {
        match self.up_to(100) {
            0..97 => Ask::Commands(vec![self.command(limits::random)]),
            97 => Ask::Change(Change::Full(true)),
            _ => Ask::Change(Change::Full(false)),
        }
    }

    fn ask_of_slots(&mut self) -> Ask {
        match self.up_to(100) {
            0..95 => Ask::Commands(vec![self.command(semaphores::random)]),
            95 => Ask::Change(Change::Full(true)),
            96..98 => Ask::Change(Change::Full(false)),
            98 => Ask::Nap(semaphores::random_and_short(self)),
            _ if self.up_to(10) > 0 => Ask::Commands(vec![self.command(semaphores::random)]),
            _ => Ask::Change(Change::Age(mutexes::DAY * self.one(&[1, 3]))),
        }
    }

    fn ask_of_several(&mut self) -> Ask {
        match self.up_to(100) {
            0..45 => Ask::Commands(vec![self.command(sets::random)]),
            45..88 => Ask::Commands(vec![self.command(mutexes::random)]),
            88..92 => Ask::Nap(mutexes::random_and_short(self)),
            92..94 => Ask::Nap(sets::random_and_short(self).into()),
            94 => Ask::Change(Change::Full(true)),
            95..98 => Ask::Change(Change::Full(false)),
            98 => Ask::Change(Change::Age(mutexes::DAY * self.one(&[1, 3]))),
            // This counter is used again after four days.
            _ if self.up_to(8) == 0 => {
                let name = mutexes::name(self.one(&["a", "b"]));
                Ask::Change(Change::Counter(name, mutexes::MAX_TOKEN))
            }
            _ => Ask::Commands(vec![self.command(sets::random)]),
        }
    }

    /// Many commands at once. In one half of the cases commands that travel alone, or have another guard, cut them into
    /// batches. In the other half all of them can travel in whole batches.
    fn many(&mut self) -> Ask {
        let most = self.one(&[3, 10, 128]);
        let count = 2 + self.up_to(most) as usize;
        let whole = self.up_to(2) == 0;
        let mut all = Vec::new();
        while all.len() < count {
            let (command, guard) = match self.up_to(6) {
                0..2 => self.command(semaphores::random),
                2 => self.command(sets::random),
                _ => self.command(mutexes::random),
            };
            if !whole || command.rider().is_some() && guard == self.guard {
                all.push((command, guard));
            }
        }
        Ask::Commands(all)
    }

    fn command<C: Into<Command>>(
        &mut self,
        random: impl FnOnce(&mut Self) -> C,
    ) -> (Command, String) {
        let command = random(self).into();
        let guard = match self.up_to(20) {
            0 => "20000 3 5 word 5000 nonce".to_owned(),
            _ => self.guard.clone(),
        };
        (command, guard)
    }

    fn client(&mut self) -> usize {
        self.up_to(3) as usize
    }
}

fn same(command: Option<&Command>, a: &Answered, b: &Answered) -> bool {
    match (a, b) {
        (Err(Fault::Error(a)), Err(Fault::Error(b))) => a.split(' ').next() == b.split(' ').next(),
        (Ok(Answer::Admission(a)), Ok(Answer::Admission(b))) => admissions::alike(a, b),
        (Ok(a), Ok(b)) => match command {
            Some(Command::Request(request)) => match &request.target {
                Target::Mutex(names) if names.one().is_some() => mutexes::alike(a, b),
                Target::Mutex(_) => sets::alike(a, b),
                Target::Rwlock(..) => rwlocks::alike(a, b),
                Target::Slot(..) => semaphores::alike(a, b),
            },
            Some(Command::Question(question)) => match question {
                Question::InspectMutex(_) | Question::EvictMutex(_) => mutexes::alike(a, b),
                Question::InspectRwlock(_) | Question::EvictRwlock(_) => rwlocks::alike(a, b),
                Question::InspectPool(_) | Question::Resize(..) => semaphores::alike(a, b),
            },
            Some(Command::Rate(_)) => limits::alike(a, b),
            Some(Command::Admission(_) | Command::Server(_)) | None => a == b,
        },
        (a, b) => a == b,
    }
}

/// A push about a freed read-write lock names the waiter of a process that asked last. This depends on a millisecond,
/// so the name is removed.
fn unnamed(mut heard: Vec<Push>) -> Vec<Push> {
    let nobody = mutexes::entry(0);
    for push in heard.iter_mut().filter(|push| push.says == Says::Freed) {
        push.entry = nobody.clone();
    }
    heard
}

/// Returns true if both are the same, except for the delays of a slow machine.
pub(crate) fn near(a: Option<Duration>, b: Option<Duration>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.abs_diff(b) < Duration::from_secs(2),
        (a, b) => a == b,
    }
}
