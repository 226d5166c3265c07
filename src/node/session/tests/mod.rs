//! Tests of what may be sent when, step by step.

mod answers;
mod backlog;
mod clocks;
mod connections;
mod handshakes;
mod logins;
mod parting;
mod repairs;
mod slots;
mod stalls;
mod writes;

use std::{collections::VecDeque, time::Duration};

use super::*;
use crate::node::answer::Answer;
use crate::{
    base::{
        clock::ManualClock,
        name::Name,
        owner::{Chance, Entry, Label},
        rules::Rules,
    },
    node::{
        Command,
        admission::{self, BootRecord, Handshake, Meeting, Server, Stored, Terms},
        mutex::cases::{acquires, extends},
        request::{Release, Target, Verb},
        server,
        settings::Settings,
    },
};

const MS: Duration = Duration::from_millis(1);
const RUN: &str = "aaaa/00000000/-1";
const TERMS: Terms = Terms {
    max_ttl: Duration::from_secs(30),
    margin: Duration::from_secs(5),
};
/// Z of these terms.
const Z: u64 = 35_300;

struct World {
    now: Tick,
    clock: ManualClock,
    settings: Arc<Settings>,
    fleet: Fleet,
    chance: Chance,
    effects: VecDeque<Effect>,
    heard: VecDeque<Heard>,
    session: Session,
}

impl World {
    fn new() -> Self {
        Self::with(Rules::ALL)
    }

    fn with(rules: Rules) -> Self {
        let now = Tick::from_nanos(1_000_000_000);
        let settings = Arc::new(Settings {
            nodes: vec!["a:1".into(), "b:1".into(), "c:1".into()],
            list: "word".into(),
            ranks: None,
            prefix: "quorate".into(),
            node_timeout: Duration::from_millis(500),
            terms: TERMS,
            label: Label::new("test").unwrap(),
            channel: "quorate:wake:test".into(),
            allow_eviction: false,
            rules,
        });
        Self {
            now,
            clock: ManualClock::default(),
            fleet: Fleet::new(Arc::clone(&settings)),
            settings,
            chance: Chance::seeded(1),
            effects: VecDeque::new(),
            heard: VecDeque::new(),
            session: Session::new(0, now),
        }
    }

    fn step<T>(&mut self, act: impl FnOnce(&mut Session, &mut Step<'_>) -> T) -> T {
        let mut step = Step {
            now: self.now,
            clock: &self.clock,
            settings: &self.settings,
            fleet: &mut self.fleet,
            chance: &mut self.chance,
            effects: &mut self.effects,
            heard: &mut self.heard,
        };
        act(&mut self.session, &mut step)
    }

    /// Lets time pass, and ticks whenever a tick is due. It never ticks twice at the same time without a reason.
    fn pass(&mut self, d: Duration) {
        let end = self.now.plus(d);
        let mut rings = 0;
        while let Some(at) = self
            .session
            .next_tick(&self.settings)
            .filter(|at| *at <= end)
        {
            rings = if at <= self.now { rings + 1 } else { 0 };
            assert!(rings < 10, "it rings for ever at {at:?}");
            self.now = self.now.max(at);
            let seen = self.now;
            self.step(|session, step| session.tick(step, seen));
        }
        self.now = end;
    }

    fn sent(&mut self) -> Vec<Command> {
        let effects = std::mem::take(&mut self.effects);
        let commands = |effect| match effect {
            Effect::Send(_, operation, _) => vec![operation.command().clone()],
            _ => Vec::new(),
        };
        effects.into_iter().flat_map(commands).collect()
    }

    fn dial(&mut self, client_id: u64) {
        self.pass(LAST_BACKOFF);
        assert!(
            self.effects.iter().any(|e| matches!(e, Effect::Dial(0))),
            "{:?}",
            self.effects
        );
        self.effects.clear();
        self.step(|session, step| session.connected(step, client_id, None, true));
    }

    /// Answers the handshake: the server is in this run, and its memory was witnessed for this long.
    fn meet(&mut self, run: &str, witnessed: u64) {
        let record = record(run, witnessed);
        self.read(run, Stored::Record(record));
    }

    /// Answers the handshake: this is stored on the server.
    fn read(&mut self, run: &str, stored: Stored) {
        self.read_with(run, stored, |_| {});
    }

    /// The same, with a change in the answer.
    fn read_with(&mut self, run: &str, stored: Stored, change: impl FnOnce(&mut Meeting)) {
        let server = Server {
            run: run.into(),
            role: "master".into(),
            mode: "standalone".into(),
            eviction: "noeviction".into(),
            version: "7.0.15".into(),
        };
        let open = stored.record().is_some_and(BootRecord::votes);
        let mut meeting = Meeting {
            server,
            stored,
            open,
            time: u64::MAX,
            write: Some(Ok(())),
        };
        change(&mut meeting);
        self.answer(Ok(Answer::Admission(admission::Reply::Met(Box::new(
            meeting,
        )))));
    }

    /// Sets the record that was read of the neighbour b.
    fn see_neighbour(&mut self, record: Option<&BootRecord>) {
        self.fleet.see(self.now, 1, record);
    }

    /// The handshake that was sent last.
    fn last_handshake(&mut self) -> Handshake {
        match self.sent().pop() {
            Some(Command::Admission(admission::Command::Handshake(handshake))) => handshake,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, answer: Answered) {
        self.step(|session, step| session.answered(step, answer));
    }

    /// A node that is connected, met and voting.
    fn voting() -> Self {
        let mut world = Self::new();
        world.dial(7);
        world.meet(RUN, 40_000);
        world.sent();
        world
    }

    fn acquire(&mut self, round: u64) -> Result<(), Silence> {
        let operation = asked(round, acquires(Duration::from_secs(10), 1));
        self.step(|session, step| session.ask(step, tag(round), &operation))
    }

    fn repair(&mut self, round: u64) -> Result<(), Silence> {
        let (ttl, token) = (Duration::from_secs(10), 7);
        let operation = asked(round, Verb::Repair { ttl, token });
        self.step(|session, step| session.ask(step, tag(round), &operation))
    }

    fn left(&mut self) {
        let now = self.now;
        self.step(|session, _| session.mark_written(now));
    }

    fn told(&mut self) -> Vec<(u64, Result<Answer, Silence>)> {
        let answer = |heard| match heard {
            Heard::Answer { tag, answer, .. } => Some((tag.round.0, answer)),
            Heard::Push { .. } => None,
        };
        self.heard.drain(..).filter_map(answer).collect()
    }

    fn release(&mut self, round: u64) -> DutyId {
        let until = self.now.plus(Duration::from_secs(10));
        self.step(|session, step| {
            session.release(step, &release_of(round), until, Some(tag(round)))
        })
    }

    fn state(&self) -> NodeState {
        self.session.state(self.now, &self.fleet)
    }
}

fn record(run: &str, witnessed: u64) -> BootRecord {
    BootRecord {
        masters: 3,
        list: "word".into(),
        terms: TERMS,
        run: run.into(),
        id: "id".into(),
        vouched: false,
        used: false,
        witnessed,
    }
}

fn name() -> Name {
    Name::new("a").unwrap()
}

fn tag(round: u64) -> Tag {
    let round = RoundId(round);
    Purpose::Acquire.of(round)
}

fn release_of(round: u64) -> Arc<Operation> {
    asked(round, Verb::Release(Release::default()))
}

/// A request for the mutex.
fn asked(round: u64, verb: Verb) -> Arc<Operation> {
    Target::mutex(name()).operation(&entry(round), verb)
}

fn entry(round: u64) -> Entry {
    let owner = uuid::Uuid::from_u128(round.into());
    Entry::new(owner, &Label::new("test").unwrap())
}

fn kinds(commands: &[Command]) -> Vec<&'static str> {
    let kind = |command: &Command| match command {
        Command::Admission(admission::Command::Handshake(_)) => "handshake",
        Command::Request(request) => match request.verb {
            Verb::Acquire { .. } => "acquire",
            Verb::Repair { .. } => "repair",
            Verb::Release(_) => "release",
            _ => "other",
        },
        Command::Server(server::Command::Disconnect { client: 7 }) => "kill 7",
        Command::Server(server::Command::LoadScripts) => "load",
        _ => "other",
    };
    commands.iter().map(kind).collect()
}
